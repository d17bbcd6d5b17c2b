// headroom plan — which settings fit, and what each costs.
#include <malloc.h>

#include <algorithm>

#include "base/threads.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "studies/plan/plan.h"

namespace headroom::cli {

namespace {

// A search makes and frees the same large vectors thousands of times: what is freed stays with the process, so no page is cleared twice.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 256 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

constexpr const char *each_gpus = "--per-device-train-batch-size", *accumulation = "--gradient-accumulation-steps";

// Their batch is of one GPU, where plan's is of all; both may be said, with the same meaning as there.
void add_words_of_trainers(CLI::App& app, std::string& each, std::string& accumulated) {
  app.add_option(fmt::format("{},--per-device-batch-size,--per-gpu-train-batch-size,--micro-batch-size", each_gpus), each)->group("");
  app.add_option(accumulation, accumulated)->group("");
}

void check_words_of_trainers(const CLI::App& app, const std::string& each, const std::string& accumulated) {
  check(each.empty() || app.count("--batch") == 0, Code::bad_argument, "{} is of one GPU, --batch of all; leave one of them out",
        each_gpus);
  check(accumulated.empty() || !each.empty(), Code::bad_argument,
        "{}: plan chooses micro-batches itself; say --batch, of all together, or {} too", accumulation, each_gpus);
}

std::int64_t batch_of_all(const std::string& each, const std::string& accumulated, int gpus) {
  const std::int64_t micro = parse_integer(each, each_gpus, {1, 4096});
  return micro * gpus * (accumulated.empty() ? 1 : parse_integer(accumulated, accumulation, {1, 4096}));
}

}  // namespace

RunCommand plan(CLI::App& app, Common& common) {
  struct Asked {
    studies::Plan study;
    ModelOptions model;
    std::string each, accumulated;  // the words of PyTorch's trainers, of one GPU
  };
  auto a = std::make_shared<Asked>();
  add_words_of_trainers(app, a->each, a->accumulated);  // first: after the last group of a help a hidden one leaves an empty line
  add_model(app, a->model);
  add_described(app, a->study);
  group_by_subject(app);
  app.footer(
      "Examples:\n  headroom plan --as pytorch --model llama-3.1-8b --batch 2 --len 2048 --device 4090  # what can be fine-tuned, and "
      "how\n"
      "  headroom plan --model 2.7B --batch 4 --len 1024 --device h200\n"
      "  headroom plan --model 2.7B --batch 1 --len 1024 --device h200 --memory 40\n"
      "  headroom plan --model 8B --batch 16 --len 4096 --gpus 8 --device h100 --precision bf16\n"
      "  headroom plan --as pytorch --model qwen3-8b --batch 8 --len 4096 --gpus 8 --device h100 --precision bf16\n"
      "  headroom plan --phase inference --model DIR/config.json --batch 8 --len 8192 --device h100\n\n"
      "Settings are ordered by ms, the time that a step is expected to take; by its lower bound, ms_at_least, where no step of the "
      "device was measured.\n"
      "Exit codes: 0 something fits; 3 nothing does, the nearest setting is shown.");
  common.machine = Machine::described;
  return [a, &app, &common] {
    studies::Plan p = a->study;
    check_words_of_trainers(app, a->each, a->accumulated);
    if (!a->each.empty())
      p.batch = batch_of_all(a->each, a->accumulated, p.gpus);
    else if (app.count("--batch") == 0 && p.use != studies::ModelUse::inference && p.batch % p.gpus != 0)
      p.batch = p.gpus;
    p.model = a->model.model();
    p.device = account_device(common, p.memory_bytes);
    p.model_and_device = model_and_device(a->model, common, p.device);
    const bool gpu = p.device.kind == DeviceKind::cuda;
    p.workers = gpu ? 1 : std::max(1, available_cores() / p.gpus);
    p.stop = interrupted;
    const bool pytorch = p.whose == studies::Whose::pytorch;  // PyTorch's account checks its own settings
    if (!pytorch) studies::check(p);
    if (!pytorch && is_here(common)) p.device = with_ceilings(p.device, common);
    keep_freed_memory();
    return with_host("plan", common, false, [&](const studies::Host& host) {
      p.progress = host.progress;
      return studies::plan(p);
    });
  };
}

}  // namespace headroom::cli
