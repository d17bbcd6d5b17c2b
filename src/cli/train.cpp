// headroom train — train, save, resume, sample.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cli/help.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "cli/ranks_options.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "studies/train/going_on.h"

namespace headroom::cli {

namespace {
struct TrainAsked {
  studies::TrainRun study;
  ModelOptions model;
  RanksOptions ranks;
  std::string text, tokens;
  engine::TokenFormat tokens_type = engine::TokenFormat::u16;
};

std::vector<std::string> number_formats() {  // a text is --text
  auto words = names_of<engine::TokenFormat>.all();
  std::erase(words, names_of<engine::TokenFormat>.of(engine::TokenFormat::text));
  return words;
}

void add_options(CLI::App& app, TrainAsked& a) {
  studies::TrainRun& s = a.study;
  s.recipe.batch = 4;
  add_model(app, a.model);
  auto* text = app.add_option("--text", a.text, "A file of text; its bytes are the tokens, the vocabulary is 256")->type_name("FILE");
  app.add_option("--tokens", a.tokens, "A flat file of token numbers")->type_name("FILE")->excludes(text);
  add_value(app, a.tokens_type, {.name = "tokens_type", .about = "Integer type in the file of --tokens", .choices = number_formats});
  add_described(app, s);
  say_usual_precision(app);
  add_ranks(app, a.ranks);
  app.add_option("--init", s.init, "Folder with the initial weights: Hugging Face's (config.json, model.safetensors), or an earlier --save")
      ->type_name("DIR");
  app.add_option("--save", s.folder, "Folder for checkpoints")->type_name("DIR");
  app.add_option("--save-hf", s.hugging_face,
                 "Folder for the trained weights as a Hugging Face model: config.json, model.safetensors (FP32)")
      ->type_name("DIR");
  add_flag(app, "--resume", s.resume,
           "Continue from the newest checkpoint in --save, with its model and settings; with more --steps than it was made for, extend it");
  add_flag(app, "--switch-precision", s.switch_precision, "With --resume: go on in another --precision or --scales than the checkpoint's");
  app.add_option("--prompt", s.prompt, "Start of the sampled text")
      ->type_name("TEXT")
      ->default_str("a new line, or with --documents nothing");
}

void group_and_explain(CLI::App& app) {
  std::vector<std::string> levers{"--memory"};
  engine::Levers all;
  describe(all, [&](auto&, const Description& d) { levers.push_back(first_option_of(d)); });
  group(app, {{"Data", {"--text", "--tokens", "--tokens-type", "--documents", "--len", "--batch"}},
              {"Model", {"--model", "--layers", "--width", "--heads", "--kv-heads", "--ffn", "--vocab", "--init"}},
              {"Training", {"--steps", "--lr", "--warmup", "--decay", "--clip", "--micro-batches", "--log-every"}},
              {"Precision and memory", levers},
              {"GPUs and processes", {"--gpus", "--ranks", "--rank", "--rendezvous", "--shard", "--split-tokens", "--threads"}},
              {"Saving and going on", {"--save", "--every", "--resume", "--switch-precision", "--save-hf"}},
              {"After training", {"--validate", "--sample", "--temperature", "--prompt"}}});
  app.footer(
      "Examples:\n  headroom train --text examples/lighthouse.txt --layers 4 --width 128 --heads 4 --len 128 --batch 8 --steps 300\n"
      "  headroom train --text book.txt --save run --every 100 --resume\n"
      "  headroom train --text book.txt --save run --resume --steps 3000  # a finished run, extended\n"
      "  headroom train --text book.txt --init run --steps 0 --sample 300 --prompt 'Once '\n"
      "  headroom train --text stories.jsonl --documents jsonl --len 512  # packed; none sees another\n"
      "  headroom train --text book.txt --device cpu --ranks 2 --shard optimizer\n"
      "  headroom train --text book.txt --device cpu --precision fp8 --scales block\n"
      "  headroom train --tokens corpus.bin --tokens-type uint32 --init Qwen3-0.6B --len 256 --batch 1 --steps 100 --lr 1e-5 "
      "--save-hf tuned\n\n"
      "Exit codes: 0 every step ran; 1 it failed, or Ctrl-C stopped it: the current step is finished, and saved with --save, "
      "and the losses so far are printed; 3 it does not fit.");
}

constexpr const char* shapes[] = {"--model", "--layers", "--width", "--heads", "--kv-heads", "--ffn", "--vocab"};

void check_takes_bytes(const std::string& name, const engine::Decoder& model) {
  check(model.vocab == 256, Code::bad_argument, "--text: its bytes are not the tokens of '{}', whose vocabulary is {}; give --tokens", name,
        model.vocab);
}

engine::Decoder model_of_init(const CLI::App& app, const std::string& folder, bool text) {
  for (const char* shape : shapes)
    check(app.count(shape) == 0, Code::bad_argument, "{}: the folder of --init describes the model; leave {} out", shape, shape);
  engine::Decoder model = studies::model_of_init(folder);
  if (text) check_takes_bytes(folder, model);
  return model;
}

engine::Decoder model_named(ModelOptions asked, bool text) {
  if (text && asked.vocab == 0) {
    const engine::Decoder named = engine::model_described(asked.name);
    if (engine::plain_of(named))
      asked.vocab = 256;
    else
      check_takes_bytes(asked.name, named);
  }
  return asked.model();
}

// With --resume it is the checkpoint's, else that of --init, else the one that --model and the sizes name.
void choose_model(const CLI::App& app, TrainAsked& a, bool text) {
  studies::TrainRun& r = a.study;
  const auto named = [&app](const std::string& option) {
    const CLI::Option* o = app.get_option_no_throw(option);
    return o && o->count() > 0;
  };
  const bool names_model = std::ranges::any_of(shapes, named);
  const bool goes_on = r.resume && !r.folder.empty() && studies::go_on_as_checkpoint(r, named, names_model || !r.init.empty());
  if (!r.init.empty())
    r.recipe.model = model_of_init(app, r.init, text);
  else if (!goes_on || names_model)
    r.recipe.model = model_named(a.model, text);
}

void check_saving(const CLI::App& app, const studies::TrainRun& r) {
  check(!r.resume || !r.folder.empty(), Code::bad_argument, "--resume: there is no --save to continue from");
  check(!r.folder.empty() || app.count("--every") == 0, Code::bad_argument, "--every: there is no --save to keep checkpoints in");
  check(r.folder.empty() || r.schedule.steps > 0, Code::bad_argument,
        "--save: with --steps 0 no step is made, and no checkpoint; leave it out, or write the weights by --save-hf");
  check(!r.switch_precision || r.resume, Code::bad_argument, "--switch-precision: it is of --resume; a new run takes any --precision");
}

void check_sampling(const CLI::App& app, const studies::TrainRun& r, bool text) {
  check(text || app.count("--prompt") == 0, Code::bad_argument, "--prompt is text, --tokens are numbers; leave it out");
  for (const char* of_sampling : {"--prompt", "--temperature"})
    check(r.sample > 0 || app.count(of_sampling) == 0, Code::bad_argument, "{}: nothing is sampled; add --sample N", of_sampling);
}

void check_documents(const studies::TrainRun& r, bool text) {
  check(!r.documents || !r.recipe.ranks.split_tokens, Code::bad_argument,
        "--documents: rows of packed documents are not split over ranks; leave --split-tokens out");
  check(!r.documents || text || r.documents->what == engine::Separator::token, Code::bad_argument,
        "--documents {}: that is of --text; with --tokens give token:N, the number of the token that ends a document",
        WordsOf<engine::DocumentsBy>::to(r.documents.value_or(engine::DocumentsBy{})));
}

void take_asked(const CLI::App& app, TrainAsked& a, std::uint64_t seed) {
  const bool text = !a.text.empty();
  check(text || !a.tokens.empty(), Code::bad_argument, "--text FILE or --tokens FILE is needed");
  studies::TrainRun& r = a.study;
  choose_model(app, a, text);
  r.data = text ? a.text : a.tokens;
  r.format = text ? engine::TokenFormat::text : a.tokens_type;
  if (r.documents && app.count("--prompt") == 0) r.prompt.clear();
  check_saving(app, r);
  check_sampling(app, r, text);
  check(r.recipe.knows_norm() || app.count("--clip") == 0 || r.hyper.clip == 0, Code::bad_argument,
        "--clip {}: with --update during the norm of all gradients is not known; leave --clip out, or use --update after", r.hyper.clip);
  check_documents(r, text);
  r.schedule.floor = r.schedule.peak / 10;
  r.seed = seed;
}

// The warm-up is half of the steps at most; the sentence says so where --warmup asks for more.
std::string shorten_warmup(const CLI::App& app, engine::Schedule& schedule) {
  const std::int64_t asked = std::exchange(schedule.warmup, std::min(schedule.warmup, schedule.steps / 2));
  if (app.count("--warmup") == 0 || schedule.warmup == asked) return "";
  return fmt::format("warm-up is {}, at most half of --steps {}; --warmup asks for {}", counted(std::uint64_t(schedule.warmup), "step"),
                     schedule.steps, asked);
}

void take_usual_precision(const CLI::App& app, studies::TrainRun& r, const Device& device) {
  if (names_precision(app)) return;
  const auto before = r.resume ? studies::precision_of_checkpoint(r.folder) : std::nullopt;
  r.recipe.precision = before.value_or(engine::usual_precision(device));
  engine::check(r.recipe);
}
}  // namespace

RunCommand train(CLI::App& app, Common& common) {
  auto a = std::make_shared<TrainAsked>();
  add_options(app, *a);
  group_and_explain(app);
  return [a, &app, &common] {
    take_asked(app, *a, common.seed);
    studies::TrainRun& r = a->study;
    const std::string shorter = shorten_warmup(app, r.schedule);
    const dist::Seat seat = find_seat(a->ranks.asked());
    check_for_ranks(app, seat);
    r.recipe.ranks.count = seat.ranks;
    engine::check(r.recipe);
    return as_ranks(seat, app, common, [&](dist::Group* group) {
      Device device = chosen_device(common, group);
      take_usual_precision(app, r, device);
      take_kept_links(device, common);
      if (!shorter.empty() && !common.silent) say(fmt::format("headroom train: {}", shorter));
      return with_host(
          "train", common, r.resume, [&](const studies::Host& host) { return studies::train_study(r, device, host, group); },
          Elsewhere::lines);
    });
  };
}

}  // namespace headroom::cli
