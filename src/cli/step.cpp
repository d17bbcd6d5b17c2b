// headroom step — time forward, backward and optimiser of a language model.
#include "base/threads.h"
#include "cli/step_options.h"

namespace headroom::cli {

void add_step(CLI::App& app, StepAsked& a) {
  StepTime& s = a.study;
  add_model(app, a.model);
  add_integer(app, "--batch", s.batch, {1, 1 << 30}, "Sequences");
  add_integers(app, "--len", s.lens, {1, 1 << 30}, "Tokens of a sequence");
  add_choices(app, "--precision", a.precisions, {"fp32", "tf32", "bf16", "fp16"}, "Activations and matmuls; the optimiser is fp32");
  add_choice(app, "--keep,--recompute", a.keep, keep_words(), "What a block remembers for backward");
  add_choice(app, "--attention", s.attention, {"flash", "plain"}, "Attention variant");
  add_integer(app, "--steps", a.steps, {1, 1 << 20}, "Calls that count");
  add_integer(app, "--warmup", a.warmup, {0, 1 << 20}, "Calls before them");
  add_integer(app, "--threads", a.threads, {0, 4096}, "Threads; 0: every core");
  add_bytes(app, "--memory", a.memory, "Pretend to have this much [what is available]");
}

StepTime StepAsked::settings(const Common& common) const {
  StepTime t = study;
  t.model = model.config();
  t.precisions = precisions_of(precisions);
  t.keep = *engine::keep_named(keep);
  t.protocol.steps = int(steps), t.protocol.warmup = int(warmup);
  t.seed = common.seed;
  return t;
}

Run step(CLI::App& app, Common& common) {
  auto a = std::make_shared<StepAsked>();
  add_step(app, *a);
  app.footer(
      "Examples:\n  headroom step --width 256 --layers 4 --heads 4 --len 256\n  headroom step --model small --len 128,256 --memory 4");
  return [a, &common] {
    StepTime t = a->settings(common);
    const Device d = chosen_cpu(common, "step");
    if (const auto kept = kept_ceilings(d, common); kept && a->threads == 0) t.matmul_flops = kept->fp32_flops;  // it used every core
    t.memory_bytes = a->memory.value_or(d.memory_bytes);
    return deliver(step_time(t, d, a->threads > 0 ? int(a->threads) : available_cores(), interrupted), common,
                   interrupted() ? failed : yes);
  };
}

}  // namespace headroom::cli
