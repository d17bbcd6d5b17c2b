// memory_model — where every byte of a model's training step goes: the step run dry, its tensors gathered by name over the blocks,
// with formulas, timeline, growth with len, the edges, and what removes bytes.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "engine/forecast.h"
#include "report/record.h"

namespace headroom {

struct ModelMemory {
  engine::ModelConfig model;
  std::vector<std::int64_t> batches{4}, lens{1024};
  std::vector<Precision> precisions{{}};
  std::vector<engine::Keep> keeps{engine::Keep::everything};
  std::string attention = "flash";
  engine::Holding holding{};
  Device device;
  int workers = 1;                            // threads that the CPU's scratch is counted for
  std::optional<std::uint64_t> memory_bytes;  // empty: the device's
  bool measure = false;                       // also run a step of each; the device is then one that is present
};

Record memory_model(const ModelMemory&);

}  // namespace headroom
