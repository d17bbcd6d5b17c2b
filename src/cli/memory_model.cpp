// headroom memory model — parse, ask the study, print.
#include "base/threads.h"
#include "cli/model_options.h"
#include "studies/memory_model.h"

namespace headroom::cli {

namespace {
struct Asked {
  ModelMemory study;
  ModelOptions model;
  std::vector<std::string> precisions{"fp32"}, keeps{"everything"};
};
}  // namespace

Run memory_model_topic(CLI::App& app, Common& common) {
  auto a = std::make_shared<Asked>();
  ModelMemory& s = a->study;
  add_model(app, a->model);
  add_integers(app, "--batch", s.batches, {1, 1 << 30}, "Sequences");
  add_integers(app, "--len", s.lens, {1, 1 << 30}, "Tokens of a sequence");
  add_choices(app, "--precision", a->precisions, {"fp32", "tf32", "bf16", "fp16"}, "Activations and matmuls; the optimiser is fp32");
  add_choices(app, "--keep,--recompute", a->keeps, keep_words(), "What a block remembers for backward; the rest is computed again");
  add_choice(app, "--attention", s.attention, {"flash", "plain"}, "plain keeps N×N matrices, flash does not");
  add_bytes(app, "--memory", s.memory_bytes, "Memory that the edges are sought for [the device's]");
  app.footer("Examples:\n  headroom memory model --model 2.7B --batch 4 --len 128,512,1024 --precision fp32\n"
             "  headroom memory model --model small --len 1024 --attention plain --device rtx4090");
  return [a, &common] {
    ModelMemory& m = a->study;
    m.model = a->model.config();
    m.precisions = precisions_of(a->precisions), m.keeps = keeps_of(a->keeps);
    m.device = described_device(common);
    m.workers = m.device.kind == DeviceKind::cpu ? available_cores() : 1;
    return deliver(memory_model(m), common);
  };
}

}  // namespace headroom::cli
