// headroom memory attention — parse, ask the study, print.
#include "base/error.h"
#include "cli/model_options.h"
#include "cli/outcome.h"
#include "studies/memory/attention.h"

namespace headroom::cli {

namespace {

Device device_of(const studies::AttentionMemory& s, const Common& common) {
  if (s.measure && common.device.empty()) return chosen_device(common);
  return account_device(common, s.memory_bytes);
}

}  // namespace

RunCommand memory_attention_topic(CLI::App& app, Common& common) {
  auto s = std::make_shared<studies::AttentionMemory>();
  add_described(app, *s);
  app.footer(
      "Examples:\n"
      "  headroom memory attention --dim 64 --len 1024,4096,16384 --memory 24\n"
      "  headroom memory attention --heads 16 --precision fp32,bf16 --device h100\n"
      "  headroom memory attention --as pytorch --batch 8 --dim 16,32 --len 256,1024 --softmax composed --upstream sum\n\n"
      "Exit codes: 0 a row fits; 3 none fits, or none is supported.");
  return [s, &common] {
    s->device = device_of(*s, common);
    if (s->device.kind == DeviceKind::cpu) s->workers = s->device.units;
    s->stop = interrupted;
    return show(studies::memory_attention(*s), common);
  };
}

}  // namespace headroom::cli
