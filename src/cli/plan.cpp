// headroom plan — which settings fit, and what each costs.
#include "studies/plan.h"
#include "base/error.h"
#include "base/threads.h"
#include "cli/model_options.h"

namespace headroom::cli {

namespace {
struct PlanAsked {
  Plan study;
  ModelOptions model;
  std::vector<std::string> precisions;
  std::optional<std::uint64_t> memory;
  std::int64_t most = 10, gpus = 1;
};
}  // namespace

Run plan(CLI::App& app, Common& common) {
  auto a = std::make_shared<PlanAsked>();
  add_model(app, a->model);
  add_integer(app, "--batch", a->study.batch, {1, 4096}, "Sequences of a step, of all GPUs together; micro-batches divide it");
  add_integer(app, "--len", a->study.len, {1, 1 << 30}, "Tokens of a sequence");
  add_bytes(app, "--memory", a->memory, "Memory to fit into, of each GPU [the device's]");
  add_integer(app, "--gpus", a->gpus, {1, 4096}, "GPUs that share the batch: replicas, and what sharding saves and sends (forecast only)");
  add_choices(app, "--precision", a->precisions, {"fp32", "tf32", "bf16", "fp16"}, "To choose from [fp32,bf16, and tf32 on a GPU]");
  add_choices(app, "--attention", a->study.attentions, {"flash", "plain"}, "To choose from");
  add_integer(app, "--most", a->most, {1, 10000}, "Rows to show");
  app.footer(
      "Examples:\n  headroom plan --model 2.7B --batch 4 --len 1024 --device h200\n"
      "  headroom plan --model 2.7B --batch 4 --len 1024 --device h200 --memory 24\n"
      "  headroom plan --model 8B --batch 16 --len 4096 --gpus 8 --device h100 --precision bf16\n\n"
      "Exit codes: 0 something fits; 3 nothing does, the nearest setting is shown.");
  common.only_counts = true;
  return [a, &common] {
    Plan& p = a->study;
    p.model = a->model.config();
    p.device = described_device(common);
    const bool gpu = p.device.kind == DeviceKind::cuda;
    const bool here = !gpu || !p.device.bus.empty();
    if (here) p.device.ceilings = ceilings_here(p.device, common);
    if (a->precisions.empty())
      a->precisions = gpu ? std::vector<std::string>{"fp32", "tf32", "bf16"} : std::vector<std::string>{"fp32", "bf16"};
    p.precisions = precisions_of(a->precisions, p.device);
    p.gpus = int(a->gpus);
    check(gpu || p.gpus == 1, Code::bad_argument, "--gpus {}: this is a CPU; name a GPU, present or not, as in --device h200", p.gpus);
    p.memory_bytes = a->memory.value_or(p.device.memory_bytes);
    p.workers = gpu ? 1 : available_cores();
    p.most = std::size_t(a->most);
    const Planned answer = headroom::plan(p);
    return deliver(answer.record, common, answer.fits ? yes : no);
  };
}

}  // namespace headroom::cli
