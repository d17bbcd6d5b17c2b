// headroom train as a measured run: what it says while it runs, what it keeps, how it is extended, and how two of them are compared.
#include <fmt/format.h>

#include "engine/files/save.h"
#include "engine/forecast/forecast.h"
#include "gpu/place.h"
#include "tests/cli/program.h"

namespace headroom {
namespace {

class TrainProgram : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    put("text.txt", std::string(2000, 'a') + "bcd" + std::string(2000, 'e'));
    base_ = "train --device cpu --layers 1 --width 32 --heads 2 --len 16 --batch 2 --validate 0 --db " + db_ + " --text " + at("text.txt") +
            " ";
  }
  Json answer(const std::string& arguments) const {
    const Ended e = run(arguments + " --format json");
    EXPECT_EQ(e.code, 0) << arguments << "\n" << e.err;
    return Json::parse(e.out, nullptr, false);
  }
  Json kept(int run_number) const { return Json::parse(run("results " + std::to_string(run_number) + " --format json --db " + db_).out); }
  static std::vector<int> steps_of(const Json& rows) {
    std::vector<int> steps;
    for (const Json& row : rows) steps.push_back(row["step"]);
    return steps;
  }
  std::string base_;
};

TEST_F(TrainProgram, SaysWhereItIsAlsoWhereNobodyWatches) {
  const Ended e = run(base_ + "--steps 10");
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.err.find("headroom train: step 1 of 10, loss "), 0u) << e.err;
  EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 2) << "and which run it was, no line for every step: " << e.err;
}

TEST_F(TrainProgram, AFinishedRunIsExtended) {
  const std::string save = base_ + "--log-every 5 --every 10 --save " + at("run") + " ";
  const Json first = answer(save + "--steps 20");
  const Json more = answer(save + "--steps 40 --resume");
  EXPECT_EQ(steps_of(more["rows"]), (std::vector<int>{25, 30, 35, 40}));
  EXPECT_GT(more["rows"][0]["lr"], first["rows"].back()["lr"]) << "the learning rate is that of the longer schedule";
  EXPECT_NE(more["notes"][0].get<std::string>().find("Extended at step 20"), std::string::npos);
  EXPECT_EQ(steps_of(kept(2)["rows"]), (std::vector<int>{1, 5, 10, 15, 20, 25, 30, 35, 40})) << "the curve is whole";
  EXPECT_EQ(kept(2)["settings"]["extended_at"], "20");

  fs::remove(at("run") + "/step-00000040.safetensors");  // as if it had been killed after step 30
  const Json again = answer(save + "--steps 40 --resume");
  EXPECT_EQ(steps_of(again["rows"]), (std::vector<int>{35, 40}));
  EXPECT_EQ(again["validation_loss"], more["validation_loss"]) << "to the bit";
  EXPECT_EQ(again["rows"][1]["loss"], more["rows"][3]["loss"]);

  const Json third = answer(save + "--steps 50 --resume");
  EXPECT_NE(third["notes"][0].get<std::string>().find("Extended at step 20, 40"), std::string::npos);
  refused(save + "--steps 30 --resume", 2, "was trained with steps 50, this run asks for 30");
  refused(save + "--steps 60 --lr 0.5 --resume", 2, "was trained with lr");
}

// A job that restarts has one command from its first run on, so an empty folder is no error; a wrong one must not look like it.
TEST_F(TrainProgram, ResumeSaysWhatItFound) {
  const std::string save = base_ + "--resume --save " + at("run") + " ";
  const auto first_line = [](const Ended& e) { return e.err.substr(0, e.err.find('\n')); };
  const Ended none = run(save + "--steps 2 --format json");
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(first_line(none),
            "headroom train: there is no checkpoint to resume in '" + at("run") + "', a new folder; starting from step 0");
  EXPECT_EQ(Json::parse(none.out)["from_step"], 0);
  const Ended all = run(save + "--steps 2");
  EXPECT_NE(first_line(all).find("step-00000002.safetensors' is of the last step: no step is left to train"), std::string::npos) << all.err;
  EXPECT_EQ(all.out.find("No step was left to train, 2 steps were done before: loss of held-out data "), 0u) << all.out;
  const Ended on = run(save + "--steps 3 --format json");
  EXPECT_EQ(first_line(on), "headroom train: continuing from '" + at("run") + "/step-00000002.safetensors'");
  EXPECT_EQ(Json::parse(on.out)["from_step"], 2);
  fs::create_directories(at("other"));
  const Ended other = run(base_ + "--resume --steps 1 --save " + at("other"));
  EXPECT_EQ(first_line(other), "headroom train: there is no checkpoint to resume in '" + at("other") + "'; starting from step 0");
  const Ended with_weights = run("train --device cpu --len 16 --batch 2 --validate 0 --steps 4 --resume --db " + db_ + " --text " +
                                 at("text.txt") + " --init " + at("other") + " --save " + at("run"));
  EXPECT_NE(first_line(with_weights).find("; the weights of '" + at("other") + "' are not read"), std::string::npos) << with_weights.err;
  EXPECT_EQ(run(base_ + "--steps 1").err.find("resume"), std::string::npos) << "only where it was asked";
  const Ended ranks = run(save + "--steps 4 --ranks 2");
  EXPECT_EQ(ranks.code, 2) << "two ranks take twice the batch: " << ranks.err;
}

// Two hosts whose --save is not one folder: rank 1 would begin at step 0, where rank 0 goes on.
TEST_F(TrainProgram, RanksThatSeeOtherCheckpointsSaySo) {
  for (const char* host : {"one", "other"}) fs::create_directories(at(host));
  const std::string train = fmt::format(
      "$H train --device cpu --layers 1 --width 32 --heads 2 --len 16 --batch 2 --validate 1 --text ../text.txt --save run --db ../r.db "
      "--shard optimizer --ranks 2 --rendezvous local:resumed-{} ",
      getpid());
  const auto both = [&](const std::string& more) {
    return shell("(cd other; " + train + more + "--rank 1 2> ../second) & cd one; " + train + more +
                 "--rank 0; code=$?; wait; cat ../second >&2; exit $code");
  };
  const Ended first = both("--steps 2 ");
  ASSERT_EQ(first.code, 0) << first.err;
  const Ended e = both("--steps 4 --resume ");
  EXPECT_EQ(e.code, 2) << e.err;
  EXPECT_NE(e.err.find("--resume: ranks do not see the same checkpoints in 'run': here, on rank "), std::string::npos) << e.err;
  EXPECT_NE(e.err.find("--save must be one folder that all ranks share"), std::string::npos) << e.err;
}

TEST_F(TrainProgram, WhatWouldNotBeDoneIsRefusedOrSaid) {
  refused(base_ + "--steps 1 --every 10", 2, "--every: there is no --save to keep checkpoints in");
  refused(base_ + "--steps 0 --save " + at("run"), 2, "no step is made, and no checkpoint");
  EXPECT_FALSE(fs::exists(at("run")));
  refused(base_ + "--steps 1 --prompt ab", 2, "--prompt: nothing is sampled; add --sample N");
  refused(base_ + "--steps 1 --temperature 0.1", 2, "--temperature: nothing is sampled; add --sample N");
  const Ended cut = run(base_ + "--steps 5 --warmup 100");
  EXPECT_EQ(cut.err.find("headroom train: warm-up is 2 steps, at most half of --steps 5; --warmup asks for 100\n"), 0u) << cut.err;
  EXPECT_EQ(run(base_ + "--steps 5").err.find("warm-up"), std::string::npos) << "the default fits itself to the steps";

  const pid_t child =
      start({"train",   "--device", "cpu",     "--layers", "1",      "--width",      "32",   "--heads", "2",         "--len",    "16",
             "--batch", "2",        "--steps", "1000000",  "--text", at("text.txt"), "--db", db_,       "--save-hf", at("tuned")},
            true);
  while (text_of(at("err")).find("step 1 of") == std::string::npos) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, SIGINT);
  EXPECT_GE(ended_within(child, std::chrono::seconds(20)), 0);
  EXPECT_NE(text_of(at("err")).find("'" + at("tuned") + "' was not written, that is for the end"), std::string::npos) << text_of(at("err"));
}

TEST_F(TrainProgram, ARunGoesOnWithItsOwnSettingsAndModel) {
  put("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  const std::string run = "train --device cpu --threads 1 --validate 1 --text " + at("text.txt") + " --save " + at("own") + " ";
  const std::string settings = "--layers 1 --width 32 --heads 2 --len 32 --batch 2 --lr 0.01 --masters halves --precision bf16 ";
  const Json whole = answer(run + settings + "--steps 6");
  fs::remove(at("own") + "/step-00000006.safetensors");
  answer(run + settings + "--steps 4");
  const Json again = answer(run + "--resume");  // it was to have 4 steps
  EXPECT_EQ(again["step"], 4);
  const Json more = answer(run + "--resume --steps 8");
  EXPECT_EQ(more["step"], 8);
  EXPECT_EQ(more["peak_bytes"], whole["peak_bytes"]);
  refused(run + "--resume --steps 8 --len 64", 2, "was trained with len 32, this run asks for 64");
  refused(run + "--resume --steps 8 --width 64", 1, "is a checkpoint of another model");
  refused("train --resume " + at("own"), 2, "a run's folder by --save");
}

TEST_F(TrainProgram, OtherTrainersWordsAreTakenOrAnswered) {
  const std::string ours = base_ + "--steps 4 --lr 0.01 --decay 0.2 --clip 0.5 --warmup 1 --log-every 2 --micro-batches 2";
  std::string tiny = base_;
  for (const auto& [from, to] :
       {std::pair{"--layers", "--n_layer"}, {"--width", "--n_embd"}, {"--heads", "--n_head"}, {"--len", "--block_size"}})
    tiny.replace(tiny.find(from), std::string(from).size(), to);
  const Json a = answer(ours), b = answer(tiny +
                                          "--max_steps 4 --learning_rate 0.01 --weight_decay 0.2 --max_grad_norm 0.5 "
                                          "--warmup_steps 1 --logging_steps 2 --gradient_accumulation_steps 2");
  EXPECT_EQ(a["validation_loss"], b["validation_loss"]);
  EXPECT_EQ(steps_of(a["rows"]), steps_of(b["rows"]));
  const std::string resume = "--resume continues from the newest checkpoint in --save DIR";
  for (const auto& [words, said] : {std::pair<std::string, std::string>{"--resume_from_checkpoint run", resume},
                                    {"--resume=run", "--resume takes no value; the folder is --save's"},
                                    {"--ckpt run", resume},
                                    {"--output_dir run", "--save DIR keeps checkpoints"},
                                    {"--num_train_epochs 3", "--steps N is how long it trains"},
                                    {"--optim sgd", "it trains with AdamW"},
                                    {"--lora 8", "all weights are trained"},
                                    {"--bf16", "there is no option --bf16: --precision bf16"}})
    refused(base_ + words, 2, said);
}

// A lever of a later version decides the bits: a run that ignored it would go on as another run.
TEST_F(TrainProgram, ASettingOfAnotherVersionIsRefused) {
  answer(base_ + "--steps 2 --save " + at("run"));
  const std::string path = engine::newest_checkpoint(at("run")).value();
  engine::Described saved = engine::describe_checkpoint(path);
  const engine::Recipe recipe(saved.model, 2, 16);
  const Device cpu;
  Place place(cpu, 1);
  const std::size_t needed = engine::forecast_peak(recipe, cpu, 1);
  const PlaceMemory memory = place.take(needed);
  Arena arena(memory.data(), needed);
  Context ctx{arena, cpu, &place.threads()};
  engine::Training training(recipe, ctx);
  engine::load(training, path);
  Json settings = Json::parse(saved.position.settings);
  settings["of_later"] = "on";
  saved.position.settings = settings.dump();
  engine::make_folder(at("later"));
  engine::save(training, saved.position, at("later"));
  refused(base_ + "--steps 4 --resume --save " + at("later"), 1,
          "was trained with of_later \"on\", a setting that this version does not know");
}

TEST_F(TrainProgram, TwoCurvesAreCompared) {
  ASSERT_EQ(run(base_ + "--steps 20 --log-every 5").code, 0);
  ASSERT_EQ(run(base_ + "--steps 20 --lr 0.01 --log-every 10").code, 0);
  const Ended same = run("compare 1 1 --format json --db " + db_);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(Json::parse(same.out)["loss_curves"]["largest_difference"], 0);
  const Ended other = run("compare 1 2 --format json --db " + db_);
  EXPECT_EQ(other.code, 3) << other.err;
  const Json curves = Json::parse(other.out)["loss_curves"];
  EXPECT_EQ(curves["steps_in_common"], 3);
  EXPECT_EQ(steps_of(curves["losses"]), (std::vector<int>{1, 10, 20}));
  const Json& last = curves["losses"][2];
  EXPECT_EQ(last["a_loss"], kept(1)["rows"][4]["loss"]);
  EXPECT_EQ(last["b_loss"], kept(2)["rows"][2]["loss"]);
  EXPECT_EQ(last["difference"].get<double>(), last["b_loss"].get<double>() - last["a_loss"].get<double>());
  EXPECT_EQ(curves["last_difference"], last["difference"]);
  EXPECT_NE(run("report 1 2 --format md --db " + db_).out.find("Loss of both runs"), std::string::npos);
}

TEST_F(TrainProgram, TheFolderOfInitIsNotReplaced) {
  answer(base_ + "--steps 1 --save-hf " + at("tuned"));
  refused("train --device cpu --len 16 --batch 2 --validate 0 --steps 1 --db " + db_ + " --text " + at("text.txt") + " --init " +
              at("tuned") + " --save-hf " + at("tuned/"),
          2, "whose weights it would replace");
}

TEST_F(TrainProgram, DocumentsArePackedAndSaidSo) {
  std::string text;
  for (int d = 0; d < 40; ++d) text += std::string(1 + std::size_t(d * 7 % 20), char('a' + d % 9)) + "\n";
  put("text.txt", text);
  const std::string packed = base_ + "--documents lines --log-every 5 ";
  const Json straight = answer(packed + "--steps 20");
  const std::string note = straight["notes"][0];
  EXPECT_EQ(note.find("40 documents in "), 0u) << note;
  EXPECT_NE(note.find(" longer than a row were cut."), std::string::npos) << note;
  EXPECT_EQ(straight["peak_bytes"], straight["forecast_peak_bytes"]);
  EXPECT_GT(straight["validation_loss"], 0);
  EXPECT_EQ(kept(1)["settings"]["documents"], "lines");

  const std::string save = packed + "--every 10 --save " + at("run") + " ";
  answer(save + "--steps 20");
  fs::remove(at("run") + "/step-00000020.safetensors");  // as if it had been killed after step 10
  const Json resumed = answer(save + "--steps 20 --resume");
  EXPECT_EQ(resumed["rows"].back()["loss"], straight["rows"].back()["loss"]) << "to the bit";
  EXPECT_EQ(resumed["validation_loss"], straight["validation_loss"]);
  const Json ranks = answer(packed + "--steps 20 --ranks 2 --shard gradients");
  const Json micros = answer(packed + "--steps 20 --micro-batches 2");
  EXPECT_EQ(ranks["rows"].back()["loss"], micros["rows"].back()["loss"]) << "whichever ranks take them";
  refused(base_ + "--documents paragraphs --save " + at("run") + " --steps 20 --resume", 2,
          "was trained with documents \"lines\", this run asks for \"paragraphs\"");
  refused(packed + "--steps 1 --ranks 2 --split-tokens", 2, "leave --split-tokens out");
  refused(base_ + "--documents line --steps 1", 2, "did you mean 'lines'?");
  refused(base_ + "--documents token:256 --steps 1", 2, "beyond the vocabulary of 256");
  refused(base_ + "--documents token:200 --steps 1", 2, "token 200 is not in");
  refused(base_ + "--documents jsonl --steps 1", 2, "line 1 of");
  put("tokens.u16", text);
  refused("train --device cpu --layers 1 --width 32 --heads 2 --documents lines --tokens " + at("tokens.u16"), 2, "give token:N");
}

TEST_F(TrainProgram, AFileThatDoesNotServeSaysWhatWould) {
  const std::string train = "train --device cpu --layers 1 --width 32 --heads 2 ";
  put("short.txt", "too short a text");
  refused(train + "--text " + at("short.txt"), 2, "too few for len 128; give a longer text, or a smaller --len");
  put("high.u16", std::string(600, '\x7f'));  // 0x7f7f
  refused(train + "--vocab 100 --tokens " + at("high.u16"), 2,
          "token 32639 at 0 is beyond the vocabulary of 100; --vocab 32640 has it, if --tokens-type is right");
  put("odd.u32", std::string(602, '\0'));
  refused(train + "--tokens-type uint32 --tokens " + at("odd.u32"), 2,
          "602 bytes, not a multiple of 4; does it hold tokens of another --tokens-type?");
}

TEST_F(TrainProgram, AStepOfPackedDocumentsSaysSo) {
  const std::string step =
      "step --device cpu --width 32 --layers 1 --heads 2 --vocab 50 --batch 2 --phase train --steps 1 --warmup 1 --db " + db_;
  const auto row = [&](const std::string& more) { return answer(step + more)["rows"][0]; };
  const Json packed = row(" --documents 5,1,0,58"), whole = row(" --len 64"), apart = row(" --documents 1,31,32");
  EXPECT_EQ(packed["documents"], "5,1,0,58");
  EXPECT_EQ(packed["len"], 64);
  EXPECT_EQ(packed["peak_bytes"], packed["forecast_peak_bytes"]);
  EXPECT_EQ(apart["peak_bytes"], apart["forecast_peak_bytes"]);
  EXPECT_GT(packed["peak_bytes"], whole["peak_bytes"]);
  EXPECT_NEAR(
      whole["model_tflops"].get<double>() * whole["ms"].get<double>() - apart["model_tflops"].get<double>() * apart["ms"].get<double>(),
      3.5 * 4 * 32 * 2 * (64 * 65 - 1 * 2 - 31 * 32 - 32 * 33) / 2 * 1e-9, 1e-9)
      << "pairs that nobody sees are not counted";
  refused(step + " --documents 5 --len 5", 2, "leave --len out");
  refused(step + " --documents 0", 2, "they have no token");
  refused("profile step --device cpu --documents 5 --len 5", 2, "leave --len out");
}

TEST_F(TrainProgram, ASampledDocumentEndsWhereItsEndIsDrawn) {
  std::string text;
  for (int d = 0; d < 200; ++d) text += "abcd\n";
  put("text.txt", text);
  const std::string packed = base_ + "--documents lines --steps 60 --lr 0.02 --warmup 5 --temperature 0.01 --sample 40 ";
  EXPECT_EQ(answer(packed)["sample"], "abcd");
  EXPECT_EQ(answer(packed + "--prompt ab")["sample"], "cd");
}

TEST_F(TrainProgram, TooLittleToValidateOnIsASentence) {
  put("text.txt", std::string(150, 'a') + std::string(50, 'b'));  // the held-out tenth is 20 tokens: one sequence of 16, no batch of 2
  const Json j = answer(base_ + "--steps 2");
  EXPECT_TRUE(j["validation_loss"].is_null());
  EXPECT_NE(j["notes"][0].get<std::string>().find("shorter than one batch"), std::string::npos);
  const Ended text = run(base_ + "--steps 2");
  EXPECT_EQ(text.out.find("nan"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace headroom
