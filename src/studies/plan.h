// plan — the settings of a training step that fit a memory, fastest first; each a dry run of the step it stands for.
#pragma once
#include <vector>

#include "engine/forecast.h"
#include "report/record.h"

namespace headroom {

struct Plan {
  engine::ModelConfig model;
  std::int64_t batch = 4, len = 1024;
  std::vector<Precision> precisions;
  std::vector<std::string> attentions{"flash", "plain"};
  Device device;
  int workers = 1;
  std::uint64_t memory_bytes = 0;
  std::size_t most = 10;  // rows to show
};

struct Setting {
  engine::Recipe recipe;  // of one micro-batch
  std::int64_t micro_batches = 1;
  std::size_t peak_bytes = 0, saved_bytes = 0, standing_bytes = 0;
  double flops = 0, traffic = 0, ms = 0;  // of the whole step; ms 0 when the device's ceilings are not known
};

std::vector<Setting> settings_of(const Plan&);  // fastest first (fewest FLOPs where not all have a time), then smaller peak first

struct Planned {
  Record record;
  bool fits;
};
Planned plan(const Plan&);

}  // namespace headroom
