// plan — the settings of a training step that fit a memory, fastest first; each a dry run of the step it stands for.
#pragma once
#include <vector>

#include "engine/forecast.h"
#include "report/record.h"

namespace headroom {

struct Plan {
  engine::ModelConfig model;
  std::int64_t batch = 4, len = 1024;  // of the whole step, all GPUs together
  int gpus = 1;                        // more than one: every way to shard them is a row, forecast only
  std::vector<Precision> precisions;
  std::vector<std::string> attentions{"flash", "plain"};
  Device device;
  int workers = 1;
  std::uint64_t memory_bytes = 0;  // of each GPU
  std::size_t most = 10;           // rows to show
};

struct Setting {
  engine::Recipe recipe;  // of one micro-batch
  std::int64_t micro_batches = 1;
  std::size_t peak_bytes = 0, saved_bytes = 0, standing_bytes = 0;
  double flops = 0, traffic = 0, link_bytes = 0;  // of the whole step, on one GPU
  double ms = 0, link_ms = 0;                     // ms 0 when the device's ceilings are not known; link_ms is in it
  std::size_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  // that stand at the peak
};

std::vector<Setting> settings_of(const Plan&);  // fastest first (fewest FLOPs where not all have a time), then smaller peak first

struct Planned {
  Record record;
  bool fits;
};
Planned plan(const Plan&);

}  // namespace headroom
