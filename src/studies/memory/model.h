// memory_model — where every byte of a model's training step goes: a dry run, its tensors grouped by name over the blocks,
// with formulas, timeline, growth with len, the largest sizes, and ways to save bytes.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "engine/forecast.h"
#include "studies/memory/room.h"

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
  std::optional<std::uint64_t> memory_bytes;  // empty: all that a program can have of the device
  bool measure = false;                       // also run a step of each; the device is then one that is present
};

Answer memory_model(const ModelMemory&);  // fits: any of the rows does

}  // namespace headroom
