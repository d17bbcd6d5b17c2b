// headroom plan — which settings fit, and what each costs.
#include "studies/plan/plan.h"
#include "base/error.h"
#include "base/threads.h"
#include "cli/model_options.h"
#include "studies/memory/inference.h"

namespace headroom::cli {

namespace {
struct PlanAsked {
  Plan study;
  ModelOptions model;
  std::string phase = "train";
};

Answer plan_of_inference(const Plan& p) {
  InferenceMemory m;
  m.model = p.model, m.batches = {p.batch}, m.lens = {p.len}, m.precisions = p.precisions, m.device = p.device, m.workers = p.workers;
  m.attention = p.attentions.at(0), m.memory_bytes = p.memory_bytes;
  return plan_inference(m);
}
}  // namespace

Run plan(CLI::App& app, Common& common) {
  auto a = std::make_shared<PlanAsked>();
  add_model(app, a->model);
  add_described(app, a->study);
  add_choice(app, "--phase", a->phase, {"train", "inference"}, "A training step, or the largest batch that answers at each length");
  app.footer(
      "Examples:\n  headroom plan --model 2.7B --batch 4 --len 1024 --device h200\n"
      "  headroom plan --model 2.7B --batch 1 --len 1024 --device h200 --memory 40\n"
      "  headroom plan --model 8B --batch 16 --len 4096 --gpus 8 --device h100 --precision bf16\n"
      "  headroom plan --phase inference --model DIR/config.json --batch 8 --len 8192 --device h100\n\n"
      "Exit codes: 0 something fits; 3 nothing does, the nearest setting is shown.");
  common.only_counts = true;
  return [a, &common] {
    Plan& p = a->study;
    p.model = a->model.config();
    p.device = described_device(common);
    const bool gpu = p.device.kind == DeviceKind::cuda;
    const bool here = !gpu || !p.device.bus.empty();
    if (here) p.device.ceilings = ceilings_here(p.device, common);
    const bool answers = a->phase == "inference";
    if (p.precisions.empty() && answers) p.precisions = {{DType::bf16, Math::exact}};
    if (p.precisions.empty()) {
      p.precisions = {{DType::f32, Math::exact}, {DType::bf16, Math::exact}};
      if (gpu) p.precisions.insert(p.precisions.begin() + 1, {DType::f32, Math::tf32});
    }
    check_precisions(p.precisions, p.device);
    check(gpu || p.gpus == 1, Code::bad_argument, "--gpus {}: this is a CPU; name a GPU, present or not, as in --device h200", p.gpus);
    check(!answers || p.gpus == 1, Code::bad_argument, "--phase inference is of one device; leave --gpus out");
    p.stop = interrupted;
    p.workers = gpu ? 1 : available_cores();
    const Answer answer = answers ? plan_of_inference(p) : headroom::plan(p);
    return deliver(answer.record, common, answer.fits ? yes : no);
  };
}

}  // namespace headroom::cli
