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
}  // namespace

RunCommand train(CLI::App& app, Common& common) {
  auto a = std::make_shared<TrainAsked>();
  studies::TrainRun& s = a->study;
  s.recipe.batch = 4;
  add_model(app, a->model);
  auto* text = app.add_option("--text", a->text, "A file of text; its bytes are the tokens, the vocabulary is 256")->type_name("FILE");
  app.add_option("--tokens", a->tokens, "A flat file of token numbers")->type_name("FILE")->excludes(text);
  add_value(app, a->tokens_type, {.name = "tokens_type", .about = "Integer type in the file of --tokens", .choices = number_formats});
  add_described(app, s);
  say_usual_precision(app);
  add_ranks(app, a->ranks);
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
  return [a, &app, &common] {
    studies::TrainRun& r = a->study;
    check(!a->text.empty() || !a->tokens.empty(), Code::bad_argument, "--text FILE or --tokens FILE is needed");
    const bool bytes = !a->text.empty();
    constexpr const char* shapes[] = {"--model", "--layers", "--width", "--heads", "--kv-heads", "--ffn", "--vocab"};
    const auto named = [&app](const std::string& option) {
      const CLI::Option* o = app.get_option_no_throw(option);
      return o && o->count() > 0;
    };
    const bool names_model = std::ranges::any_of(shapes, named);
    const bool goes_on = r.resume && !r.folder.empty() && studies::go_on_as_checkpoint(r, named, names_model || !r.init.empty());
    const bool has_model = goes_on && !names_model;
    if (bytes && a->model.vocab == 0 && r.init.empty() && !has_model) {
      const engine::Decoder named = engine::model_described(a->model.name);
      const bool as_its_file_says = !engine::plain_of(named);
      check(!as_its_file_says || named.vocab == 256, Code::bad_argument,
            "--text: its bytes are not the tokens of '{}', whose vocabulary is {}; give --tokens", a->model.name, named.vocab);
      if (!as_its_file_says) a->model.vocab = 256;
    }
    r.data = bytes ? a->text : a->tokens;
    if (r.documents && app.count("--prompt") == 0) r.prompt.clear();
    r.format = bytes ? engine::TokenFormat::text : a->tokens_type;
    if (r.init.empty()) {
      if (!has_model) r.recipe.model = a->model.model();
    } else {
      for (const char* shape : shapes)
        check(app.count(shape) == 0, Code::bad_argument, "{}: the folder of --init describes the model; leave {} out", shape, shape);
      r.recipe.model = studies::model_of_init(r.init);
      check(!bytes || r.recipe.model.vocab == 256, Code::bad_argument,
            "--text: its bytes are not the tokens of '{}', whose vocabulary is {}; give --tokens", r.init, r.recipe.model.vocab);
    }
    check(!r.resume || !r.folder.empty(), Code::bad_argument, "--resume: there is no --save to continue from");
    check(!r.folder.empty() || app.count("--every") == 0, Code::bad_argument, "--every: there is no --save to keep checkpoints in");
    check(r.folder.empty() || r.schedule.steps > 0, Code::bad_argument,
          "--save: with --steps 0 no step is made, and no checkpoint; leave it out, or write the weights by --save-hf");
    check(!r.switch_precision || r.resume, Code::bad_argument, "--switch-precision: it is of --resume; a new run takes any --precision");
    check(bytes || app.count("--prompt") == 0, Code::bad_argument, "--prompt is text, --tokens are numbers; leave it out");
    for (const char* of_sampling : {"--prompt", "--temperature"})
      check(r.sample > 0 || app.count(of_sampling) == 0, Code::bad_argument, "{}: nothing is sampled; add --sample N", of_sampling);
    check(r.recipe.knows_norm() || app.count("--clip") == 0 || r.hyper.clip == 0, Code::bad_argument,
          "--clip {}: with --update during the norm of all gradients is not known; leave --clip out, or use --update after", r.hyper.clip);
    r.schedule.floor = r.schedule.peak / 10;
    const std::int64_t warmup_asked = std::exchange(r.schedule.warmup, std::min(r.schedule.warmup, r.schedule.steps / 2));
    r.seed = common.seed;
    const dist::Seat seat = find_seat(a->ranks.asked());
    check_for_ranks(app, seat);
    r.recipe.ranks.count = seat.ranks;
    check(!r.documents || !r.recipe.ranks.split_tokens, Code::bad_argument,
          "--documents: rows of packed documents are not split over ranks; leave --split-tokens out");
    check(!r.documents || bytes || r.documents->what == engine::Separator::token, Code::bad_argument,
          "--documents {}: that is of --text; with --tokens give token:N, the number of the token that ends a document",
          WordsOf<engine::DocumentsBy>::to(r.documents.value_or(engine::DocumentsBy{})));
    engine::check(r.recipe);
    return as_ranks(seat, app, common, [&](dist::Group* group) {
      Device device = chosen_device(common, group);
      if (!names_precision(app)) {
        const auto before = r.resume ? studies::precision_of_checkpoint(r.folder) : std::nullopt;
        r.recipe.precision = before.value_or(engine::usual_precision(device));
        engine::check(r.recipe);
      }
      take_kept_links(device, common);
      if (app.count("--warmup") > 0 && r.schedule.warmup < warmup_asked && !common.silent)
        say(fmt::format("headroom train: warm-up is {}, at most half of --steps {}; --warmup asks for {}",
                        counted(std::uint64_t(r.schedule.warmup), "step"), r.schedule.steps, warmup_asked));
      return with_host(
          "train", common, r.resume, [&](const studies::Host& host) { return studies::train_study(r, device, host, group); },
          Elsewhere::lines);
    });
  };
}

}  // namespace headroom::cli
