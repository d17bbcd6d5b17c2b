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
  std::string masters = "whole", updating = "after";
  std::int64_t steps = 10, threads = 0;
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
  add_choice(app, "--masters", a->masters, {"whole", "halves"}, "FP32 weights: beside their bf16 copies, or sharing their bytes");
  add_choice(app, "--update", a->updating, {"after", "during"}, "AdamW after backward, or group by group inside it: no clipping");
  add_integer(app, "--steps", a->steps, {1, 1 << 20}, "Calls that count");
  add_integers(app, "--warmup", s.warmups, {0, 1 << 20}, "Calls before them; a row for each");
  add_choices(app, "--phase", s.phases, {"forward", "forward+backward", "train"}, "What a call does");
  add_integer(app, "--threads", a->threads, {0, 4096}, "Threads; 0: every core");
  add_bytes(app, "--memory", a->memory, "Pretend to have this much [what is available]");
  app.footer(
      "Examples:\n  headroom step --width 256 --layers 4 --heads 4 --len 256\n  headroom step --model small --len 128,256 --memory 4\n"
      "  headroom step --device cuda --model small,medium,large,xl,2.7B --len 128,256,512,1024 --precision fp32,bf16");
  return [a, &common] {
    StepTime& t = a->study;
    for (const std::string& name : parse_list(a->model.name, "--model")) {
      ModelOptions one = a->model;
      one.name = name;
      t.models.push_back(one.config());
    }
    t.precisions = precisions_of(a->precisions);
    t.keep = *engine::keep_named(a->keep);
    t.masters = a->masters == "halves" ? engine::Masters::halves : engine::Masters::whole;
    t.updating = a->updating == "during" ? engine::Updating::during : engine::Updating::after;
    t.steps = int(a->steps);
    t.seed = common.seed;
    const Device d = chosen_device(common);
    if (d.kind == DeviceKind::cpu && a->threads == 0)
      if (const auto kept = kept_ceilings(d, common)) t.matmul_flops = kept->fp32_flops;  // it used every core
    t.memory_bytes = a->memory.value_or(d.memory_bytes);
    return deliver(step_time(t, d, a->threads > 0 ? int(a->threads) : available_cores(), interrupted), common,
                   interrupted() ? failed : yes);
  };
}

}  // namespace headroom::cli
