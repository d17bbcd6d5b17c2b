// What is refused, and how: one line of our words for every option, file and pipe that cannot be taken.
#include <fmt/format.h>

#include "base/device.h"
#include "store/results.h"
#include "tests/cli/small_run.h"

namespace headroom {
namespace {

class Refusals : public SmallRun {};

TEST_F(Refusals, AnEmptyValueIsAnUnsetVariableAndRefused) {
  put_text();
  for (const char* option : {"--save", "--init", "--text", "--out", "--db", "--device", "--model", "--lr", "--prompt"}) {
    refused(fmt::format("train --text x {} ''", option), 2, fmt::format("{} is empty", option));
    refused(fmt::format("train --text x {}=", option), 2, fmt::format("{} is empty", option));
  }
  refused("attention --device ''", 2, "--device is empty");
  refused("results ''", 2, "an argument is empty");
  refused("report 1 '' --out x.html", 2, "an argument is empty");
}

TEST_F(Refusals, AWordInTheWrongPlaceIsToldItsOwn) {
  refused("memory model llama-3.1-8b", 2, "'llama-3.1-8b' is not the value of any option; a model is named by --model");
  refused("memory small", 2, "there is no 'small'; choose from attention, model");
  refused("forecast --batch 8 -- true", 2, "there is no option --batch; a program and its own options come after --");
  refused("forecast python3 train.py --epochs 8", 2, "there is no option --epochs; a program and its own options come after --");
  refused("plan --epochs 8", 2, "there is no option --epochs (see");
  refused("plan -- small", 2, "'small' is not the value of any option; a model is named by --model");
  refused("PLAN", 2, "did you mean 'plan'?");
  refused("version", 2, "did you mean '--version'?");
  refused("profile stp", 2, "there is no 'stp'; choose from step, attention, or -- and a program; did you mean 'step'?");
  refused("compare", 2, "A is missing. The earlier run: its number, or a file that --format json or csv wrote");
  refused("compare 1", 2, "B is missing. The later run");
  refused("--device h100 plan", 2, "--device comes before a command; options come after it");
  refused("--verison", 2, "Alone there are --help and --version; did you mean '--version'?");
  keep_a_run();
  refused("results rows.json --db " + db_, 2, "'rows.json' is no run's number; headroom results lists the runs");
}

TEST_F(Refusals, EveryRefusalIsOneLineOfOurWords) {
  shell_refused("$H attention --variant \"fl\n\033[31mash\"", 2, "fl\\n\\x1b[31mash");
  shell_refused("$H train --text \"a\nb\"", 2, "a\\nb");
  refused("results --db ':memory:'", 2, "is not a file; name a file for the results");
  refused("attention --len 16 --db :memory:", 2, "is not a file; name a file for the results");
  refused("attention --len 16 --steps 1 --db /dev/null", 2, "no file that keeps");
  refused("report --db /no/such/store.db", 1, "there is no '/no/such/store.db' yet");
  put("empty.db", "");
  for (const char* command : {"report", "results", "report 1", "compare 1 1"})
    refused(fmt::format("{} --db {}", command, at("empty.db")), 1, "there is nothing in '" + at("empty.db") + "' yet");
  {
    Results r(db_, Results::Access::write);
    const auto run = r.start_run("device", "{}", cpu_device().name);
    r.add_row(run, {"k", R"({"what": 5, "dtype": "fp32"})", "{}"});
    r.finish_run(run);
  }
  refused("plan --device cpu --layers 1 --width 32 --heads 2 --len 16 --db " + db_, 1, "damaged; headroom device measures them again");
  put("garbled.db", std::string("SQLite format 3\0", 16) + std::string(8000, 'x'));
  refused("results --db " + at("garbled.db"), 1, "is damaged; it was left as it is");
  put("rows.json", "{}" + std::string(8000, ' '));
  refused("results --db " + at("rows.json"), 1, "is damaged, or was never a file of results; it was left as it is");
  put("model.json", "{\"width\": ");
  refused("plan --model " + at("model.json"), 2, "model: '" + at("model.json") + "' is not JSON");
}

TEST_F(Refusals, AMachinesFileIsBelievedOnlyWhole) {
  const auto says = [&](const char* text, const char* said) {
    put("card.json", text);
    refused("plan --device " + at("card.json"), 2, said);
  };
  says(R"({"name": "X"})", "its memory_mib is missing");
  says(R"({"name": "X", "memory_mib": 0})", "its memory_mib is missing");
  says(R"({"memory_mib": 8192})", "its name is missing");
  says(R"({"name": "X", "memory_mib": 8192, "units": -4})", "units is -4");
  says(R"({"name": "X", "memory_mib": 8192, "units": 1.5})", "units is 1.5");
  says(R"({"name": "X", "memory_mib": 1e300})", "memory_mib is 1e+300, it must be a number from 0 (not known) to 1e9");
  says(R"({"name": "X", "memory_mib": 8192, "units": 9999999})", "a whole number from 0 (not known) to 1000000");
  says(R"({"name": "X", "memory_mib": 8192, "sm": 90})", "its units (multiprocessors) are missing or 0");
  says(R"({"name": "X", "memory_mib": 8192, "units": 10})", "its file does not say its architecture, by which kernels are chosen");
  says(R"({"name": "X", "memory_mib": "8192"})", "memory_mib is \"8192\"");
  says(R"({"name": "X", "memory_mb": 8192})", "did you mean 'memory_mib'?");
  says(R"({"name": "X", "memory_mib": 8192, "kind": "tpu"})", "kind is 'tpu'");
}

TEST_F(Refusals, DeepJsonIsASentenceWhereverJsonIsRead) {
  put("deep.json", std::string(100'000, '[') + std::string(100'000, ']'));
  put("deeper.json", [] {
    std::string s;
    for (int i = 0; i < 100'000; ++i) s += "{\"rows\":";
    return s + "1" + std::string(100'000, '}');
  }());
  keep_a_run("{\"variant\": \"flash\", \"x\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  for (const std::string& file : {at("deep.json"), at("deeper.json")}) {
    const std::pair<const char*, int> commands[] = {{"memory model --model ", 2},
                                                    {"plan --device h200 --model ", 2},
                                                    {"precision autocast --model ", 2},
                                                    {"precision autocast --policy ", 2},
                                                    {"report ", 2},
                                                    {"plan --device ", 2},
                                                    {"memory attention --device ", 2}};
    for (const auto& [command, code] : commands) refused(command + file, code, "nested deeper than 100 levels");
    refused("compare " + file + " " + file, 2, "nested deeper than 100 levels");
  }
  for (const char* command : {"results 1", "report 1", "compare 1 1"}) refused(std::string(command) + " --db " + db_, 1, "row 1 of");
}

TEST_F(Refusals, APipeThatNobodyWritesToHoldsNobody) {
  for (const char* name : {"pipe.safetensors", "pipe"}) ASSERT_EQ(mkfifo(at(name).c_str(), 0600), 0);
  refused("train --text " + at("pipe"), 2, "a pipe without a writer");
  for (const char* command : {"memory model --model ", "plan --device h200 --model ", "plan --device ", "precision autocast --model ",
                              "precision autocast --policy ", "report "})
    refused(command + at("pipe"), 2, "pipe' is a pipe, not a regular file");
  refused("compare " + at("pipe") + " 1", 2, "pipe' is a pipe, not a regular file");
  refused("results --db " + at("pipe"), 2, "no file that keeps");
  fs::create_directories(folder_ / "hf");
  put("hf/config.json", R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 64})");
  ASSERT_EQ(mkfifo(at("hf/model.safetensors").c_str(), 0600), 0);
  put_text();
  refused("train --text " + at("text.txt") + " --init " + at("hf") + " --len 16 --steps 1", 2,
          "model.safetensors' is a pipe, not a regular file");
  fs::remove(at("hf/config.json"));
  ASSERT_EQ(mkfifo(at("hf/config.json").c_str(), 0600), 0);
  for (const std::string& words : {"train --text " + at("text.txt") + " --init " + at("hf"), "memory model --model " + at("hf")})
    refused(words, 2, "config.json' is a pipe, not a regular file");
  const Ended read = shell(
      std::string("cat text.txt | $H train --text /dev/stdin --layers 1 --width 32 --heads 2 --len 16 --batch 2 --steps 1 --format json"));
  EXPECT_EQ(read.code, 0) << "one that somebody writes to is read: " << read.err;
}

TEST_F(Refusals, RanksThatDifferAreNamedAndADefaultIsItself) {
  const std::string step = "$H step --device cpu --width 32 --layers 1 --heads 2 --vocab 100 --batch 1 --steps 1 ";
  const auto both = [&](const std::string& of_first, const std::string& of_second) {
    const std::string meet = fmt::format("--ranks 2 --rendezvous local:edges-{} ", getpid());
    return shell(step + meet + "--rank 1 " + of_second + " 2> second & " + step + meet + "--rank 0 --db r.db " + of_first +
                 "; code=$?; wait; cat second >&2; exit $code");
  };
  const Ended same = both("--len 16 --warmup 5", "--len 16");
  EXPECT_EQ(same.code, 0) << same.err;
  const Ended other = both("--len 16", "");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("rank 1 was given other settings than rank 0: --len is "), std::string::npos) << other.err;
  EXPECT_NE(other.err.find(" there, and 16 on rank 0"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace headroom
