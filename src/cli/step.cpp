// headroom step — time forward, backward and optimiser of a language model.
#include "base/threads.h"
#include "cli/model_options.h"
#include "studies/step_time.h"

namespace headroom::cli {

namespace {
struct Asked {
  StepTime study;
  ModelOptions model;
  std::vector<std::string> precisions{"fp32"};
  std::string keep = "everything";
  std::optional<std::uint64_t> memory;
  std::int64_t steps = 10, warmup = 5, threads = 0;
};
}  // namespace

Run step(CLI::App& app, Common& common) {
  auto a = std::make_shared<Asked>();
  StepTime& s = a->study;
  add_model(app, a->model);
  add_integer(app, "--batch", s.batch, {1, 1 << 30}, "Sequences");
  add_integers(app, "--len", s.lens, {1, 1 << 30}, "Tokens of a sequence");
  add_choices(app, "--precision", a->precisions, {"fp32", "tf32", "bf16", "fp16"}, "Activations and matmuls; the optimiser is fp32");
  add_choice(app, "--keep,--recompute", a->keep, keep_words(), "What a block remembers for backward");
  add_choice(app, "--attention", s.attention, {"flash", "plain"}, "Attention variant");
  add_integer(app, "--steps", a->steps, {1, 1 << 20}, "Calls that count");
  add_integer(app, "--warmup", a->warmup, {0, 1 << 20}, "Calls before them");
  add_integer(app, "--threads", a->threads, {0, 4096}, "Threads; 0: every core");
  add_bytes(app, "--memory", a->memory, "Pretend to have this much [what is available]");
  app.footer(
      "Examples:\n  headroom step --width 256 --layers 4 --heads 4 --len 256\n  headroom step --model small --len 128,256 --memory 4");
  return [a, &common] {
    StepTime& t = a->study;
    t.model = a->model.config();
    t.precisions = precisions_of(a->precisions);
    t.keep = *engine::keep_named(a->keep);
    t.protocol.steps = int(a->steps), t.protocol.warmup = int(a->warmup);
    t.seed = common.seed;
    const Device d = chosen_cpu(common, "step");
    if (const auto kept = kept_ceilings(d, common); kept && a->threads == 0) t.matmul_flops = kept->fp32_flops;  // it used every core
    t.memory_bytes = a->memory.value_or(d.memory_bytes);
    return deliver(step_time(t, d, a->threads > 0 ? int(a->threads) : available_cores(), interrupted), common,
                   interrupted() ? failed : yes);
  };
}

}  // namespace headroom::cli
