// headroom train — train, save, resume, sample.
#include <cstdio>

#include "base/error.h"
#include "base/threads.h"
#include "cli/progress.h"
#include "cli/step_options.h"
#include "studies/train_run.h"

namespace headroom::cli {

namespace {
struct TrainAsked {
  TrainRun study;
  ModelOptions model;
  std::string text, tokens, tokens_type = "uint16", precision = "fp32", keep = "everything";
  HoldingAsked holding;
  std::int64_t steps = 1000, micro_batches = 1, threads = 0;
};
}  // namespace

Run train(CLI::App& app, Common& common) {
  auto a = std::make_shared<TrainAsked>();
  TrainRun& s = a->study;
  s.recipe.batch = 4;
  add_model(app, a->model);
  auto* text = app.add_option("--text", a->text, "A file of text; its bytes are the tokens, the vocabulary is 256")->type_name("FILE");
  app.add_option("--tokens", a->tokens, "A flat file of token numbers")->type_name("FILE")->excludes(text);
  add_choice(app, "--tokens-type", a->tokens_type, {"uint16", "uint32"}, "Of --tokens");
  add_integer(app, "--batch", s.recipe.batch, {1, 4096}, "Sequences of a micro-batch");
  add_integer(app, "--len", s.recipe.len, {1, 1 << 24}, "Tokens of a sequence");
  add_integer(app, "--micro-batches", a->micro_batches, {1, 4096}, "Micro-batches whose gradients add up to a step");
  add_integer(app, "--steps", a->steps, {0, 1ll << 40}, "Steps of the whole run; 0: only validate and sample");
  add_choice(app, "--precision", a->precision, {"fp32", "tf32", "bf16", "fp16"}, "Activations and matmuls; the optimiser is fp32");
  add_choice(app, "--keep,--recompute", a->keep, keep_words(), "What a block remembers for backward");
  add_choice(app, "--attention", s.recipe.attention, {"flash", "plain"}, "Attention variant");
  add_holding(app, a->holding);
  add_number(app, "--lr", s.schedule.peak, 0, 1e6, "Learning rate after warm-up");
  add_integer(app, "--warmup", s.schedule.warmup, {0, 1 << 30}, "Steps of warm-up; then a cosine to a tenth of --lr");
  add_number(app, "--decay", s.hyper.decay, 0, 1e6, "Weight decay");
  add_number(app, "--clip", s.hyper.clip, 0, 1e6, "Global norm that gradients are clipped to; 0: not");
  app.add_option("--init", s.init,
                 "A folder whose weights the run begins with: Hugging Face's (config.json, model.safetensors), or a --save of before")
      ->type_name("DIR");
  app.add_option("--save", s.folder, "Folder for checkpoints")->type_name("DIR");
  add_integer(app, "--every", s.every, {1, 1 << 30}, "Steps between checkpoints");
  add_flag(app, "--resume", s.resume, "Go on from the newest checkpoint in --save");
  add_integer(app, "--validate", s.validation_batches, {0, 1 << 30}, "Batches of the held-out tenth at the end; 0: all of it");
  add_integer(app, "--sample", s.sample, {0, 1 << 20}, "Tokens to print at the end, one model run each: a text, or with --tokens numbers");
  app.add_option("--prompt", s.prompt, "What a sampled text goes on from")->type_name("TEXT")->default_str("a new line");
  add_number(app, "--temperature", s.temperature, 1e-3, 1e3, "Of sampling: small is sure of itself, large is wild");
  add_integer(app, "--threads", a->threads, {0, 4096}, "Threads; 0: every core");
  app.footer(
      "Examples:\n  headroom train --text examples/lighthouse.txt --layers 4 --width 128 --heads 4 --len 128 --batch 8 --steps 300\n"
      "  headroom train --text book.txt --save run --every 100 --resume\n"
      "  headroom train --text book.txt --init run --steps 0 --sample 300 --prompt 'Once '\n"
      "  headroom train --tokens corpus.bin --tokens-type uint32 --init Qwen3-0.6B --len 256 --batch 1 --steps 100 --lr 1e-5\n\n"
      "Exit codes: 0 every step was done; 1 it failed, or Ctrl-C stopped it: the step in hand is finished, saved when there is a --save,\n"
      "and the losses so far are printed.");
  return [a, &app, &common] {
    TrainRun& r = a->study;
    check(!a->text.empty() || !a->tokens.empty(), Code::bad_argument, "--text FILE or --tokens FILE is needed");
    const bool bytes = !a->text.empty();
    if (bytes && a->model.vocab == 0 && r.init.empty()) a->model.vocab = 256;
    r.data = bytes ? a->text : a->tokens;
    r.format = bytes ? engine::TokenFormat::text : a->tokens_type == "uint16" ? engine::TokenFormat::u16 : engine::TokenFormat::u32;
    if (r.init.empty()) {
      r.recipe.model = a->model.config();
    } else {
      for (const char* shape : {"--model", "--layers", "--width", "--heads", "--kv-heads", "--ffn", "--vocab"})
        check(app.count(shape) == 0, Code::bad_argument, "{}: the folder of --init says what the model is; leave {} out", shape, shape);
      r.recipe.model = model_of_init(r.init);
      check(!bytes || r.recipe.model.vocab == 256, Code::bad_argument,
            "--text: its bytes are not the tokens of '{}', whose vocabulary is {}; give --tokens", r.init, r.recipe.model.vocab);
    }
    check(!r.resume || !r.folder.empty(), Code::bad_argument, "--resume: there is no --save to go on from");
    check(bytes || app.count("--prompt") == 0, Code::bad_argument, "--prompt is text, --tokens are numbers; leave it out");
    r.recipe.precision = *precision_named(a->precision);
    r.recipe.keep = {*engine::keep_named(a->keep)};
    r.recipe.holding = a->holding.settings();
    check(a->holding.updating == "after" || app.count("--clip") == 0 || r.hyper.clip == 0, Code::bad_argument,
          "--clip {}: with --update during the norm of all gradients is never known; leave --clip out, or take --update after",
          r.hyper.clip);
    r.recipe.micro_batches = int(a->micro_batches);
    r.schedule.floor = r.schedule.peak / 10, r.schedule.steps = a->steps, r.schedule.warmup = std::min(r.schedule.warmup, a->steps / 2);
    r.seed = common.seed;
    std::optional<Progress> progress(std::in_place);
    const auto show = [&](const TrainProgress& p) {
      progress->show(double(p.step) / double(p.steps),
                     fmt::format("step {} of {}, loss {:.3f}, {:.0f} tokens/s", p.step, p.steps, p.loss, p.tokens_per_s));
    };
    const int threads = a->threads > 0 ? int(a->threads) : available_cores();
    const Trained trained = train_run(r, chosen_device(common), threads, show, interrupted);
    progress.reset();
    const int code = deliver(trained.record, common, trained.stopped ? failed : yes);
    if (trained.stopped)
      std::fputs(fmt::format("headroom train: stopped after step {} of {}{}\n", trained.steps, a->steps,
                             r.folder.empty() ? "; there was no --save" : "; the same command with --resume goes on from there")
                     .c_str(),
                 stderr);
    return code;
  };
}

}  // namespace headroom::cli
