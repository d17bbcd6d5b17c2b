// headroom memory model — parse, ask the study, print.
#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "studies/memory/model.h"

namespace headroom::cli {

RunCommand memory_model_topic(CLI::App& app, Common& common) {
  struct Asked {
    studies::ModelMemory study;
    ModelOptions model;
  };
  auto a = std::make_shared<Asked>();
  add_model(app, a->model);
  add_described(app, a->study);
  group_by_subject(app);
  app.footer(
      "Examples:\n  headroom memory model --model 2.7B --batch 4 --len 128,512,1024 --precision fp32\n"
      "  headroom memory model --model small --len 1024 --attention plain --device rtx4090\n"
      "  headroom memory model --model 8B --batch 1 --len 32768 --precision bf16 --gpus 8 --shard everything --device h100\n"
      "  headroom memory model --as pytorch --model 2.7B --len 128,512,1024 --precision fp32,bf16\n"
      "  headroom memory model --as pytorch --model llama-3.1-8b --batch 2 --precision bf16 --attention flash --lora 16 --base 4bit "
      "--device 3090\n"
      "  headroom memory model --as pytorch --model xl --precision bf16 --attention flash --gpus 8 --shard everything --compile blocks\n"
      "  headroom memory model --phase inference --model DIR/config.json --batch 1,8 --len 8192 --precision bf16 --device h100\n\n"
      "Exit codes: 0 a row fits; 3 none does.");
  return [a, &common] {
    studies::ModelMemory m = a->study;
    m.model = a->model.model();
    if (m.measure) studies::check_measured_here(is_here(common), common.device);
    m.device = m.measure ? chosen_device(common) : account_device(common, m.memory_bytes);
    m.model_and_device = model_and_device(a->model, common, m.device);
    if (m.device.kind == DeviceKind::cpu ? is_here(common) : !m.device.bus.empty()) (void)take_kept(m.device, common);
    m.workers = m.device.kind == DeviceKind::cpu ? std::max(1, available_cores() / m.ranks.count) : 1;  // as step shares them out
    return with_host("memory", common, false, [&](const studies::Host& host) {
      m.progress = host.progress;
      return studies::memory_model(m);
    });
  };
}

}  // namespace headroom::cli
