// headroom train — train, save, resume, sample.
#include "base/threads.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "studies/train_run.h"

namespace headroom::cli {

namespace {
struct Asked {
  TrainRun study;
  ModelOptions model;
  std::string text, tokens, tokens_type = "uint16", precision = "fp32", keep = "everything";
  std::int64_t steps = 1000, micro_batches = 1, threads = 0;
};
}  // namespace

Run train(CLI::App& app, Common& common) {
  auto a = std::make_shared<Asked>();
  TrainRun& s = a->study;
  s.recipe.batch = 4;
  add_model(app, a->model);
  auto* text = app.add_option("--text", a->text, "A file of text; its bytes are the tokens, the vocabulary is 256");
  app.add_option("--tokens", a->tokens, "A flat file of token numbers")->excludes(text);
  add_choice(app, "--tokens-type", a->tokens_type, {"uint16", "uint32"}, "Of --tokens");
  add_integer(app, "--batch", s.recipe.batch, {1, 4096}, "Sequences of a micro-batch");
  add_integer(app, "--len", s.recipe.len, {1, 1 << 24}, "Tokens of a sequence");
  add_integer(app, "--micro-batches", a->micro_batches, {1, 4096}, "Micro-batches whose gradients add up to a step");
  add_integer(app, "--steps", a->steps, {1, 1ll << 40}, "Steps of the whole run");
  add_choice(app, "--precision", a->precision, {"fp32", "tf32", "bf16", "fp16"}, "Activations and matmuls; the optimiser is fp32");
  add_choice(app, "--keep,--recompute", a->keep, keep_words(), "What a block remembers for backward");
  add_choice(app, "--attention", s.recipe.attention, {"flash", "plain"}, "Attention variant");
  const auto positive = CLI::Range(0.0, 1e6);
  app.add_option("--lr", s.schedule.peak, "Learning rate after warm-up")->check(positive)->default_str("0.001");
  add_integer(app, "--warmup", s.schedule.warmup, {0, 1 << 30}, "Steps of warm-up; then a cosine to a tenth of --lr");
  app.add_option("--decay", s.hyper.decay, "Weight decay")->check(positive)->default_str("0.1");
  app.add_option("--clip", s.hyper.clip, "Global norm that gradients are clipped to; 0: not")->check(positive)->default_str("1");
  app.add_option("--save", s.folder, "Folder for checkpoints");
  add_integer(app, "--every", s.every, {1, 1 << 30}, "Steps between checkpoints");
  add_flag(app, "--resume", s.resume, "Go on from the newest checkpoint in --save");
  add_integer(app, "--sample", s.sample, {0, 1 << 20}, "Bytes to print at the end, one model run each (with --text)");
  add_integer(app, "--threads", a->threads, {0, 4096}, "Threads; 0: every core");
  app.footer(
      "Examples:\n  headroom train --text examples/lighthouse.txt --layers 4 --width 128 --heads 4 --len 128 --batch 8 --steps 300\n"
      "  headroom train --text book.txt --save run --every 100 --resume");
  return [a, &common] {
    TrainRun& r = a->study;
    check(!a->text.empty() || !a->tokens.empty(), Code::bad_argument, "--text FILE or --tokens FILE is needed");
    const bool bytes = !a->text.empty();
    if (bytes && a->model.vocab == 0) a->model.vocab = 256;
    r.data = bytes ? a->text : a->tokens;
    r.format = bytes ? engine::TokenFormat::text : a->tokens_type == "uint16" ? engine::TokenFormat::u16 : engine::TokenFormat::u32;
    r.recipe.model = a->model.config();
    r.recipe.precision = *precision_named(a->precision);
    r.recipe.keep = {*engine::keep_named(a->keep)};
    r.recipe.micro_batches = int(a->micro_batches);
    r.schedule.floor = r.schedule.peak / 10, r.schedule.steps = a->steps, r.schedule.warmup = std::min(r.schedule.warmup, a->steps / 2);
    r.seed = common.seed;
    Progress progress;
    const auto show = [&](const TrainProgress& p) {
      progress.show(double(p.step) / double(p.steps),
                    fmt::format("step {} of {}, loss {:.3f}, {:.0f} tokens/s", p.step, p.steps, p.loss, p.tokens_per_s));
    };
    const int threads = a->threads > 0 ? int(a->threads) : available_cores();
    return deliver(train_run(r, chosen_device(common), threads, show, interrupted), common);
  };
}

}  // namespace headroom::cli
