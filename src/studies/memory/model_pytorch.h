// memory_model_pytorch — the bytes of a language model's training step in PyTorch eager, row by row, and the largest sizes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "studies/memory/pytorch/language_model.h"
#include "studies/memory/room.h"

namespace headroom {

struct PyTorchModelMemory {
  std::string name;
  pytorch::LanguageModel model;  // batch, len and precision come from the lists
  std::vector<std::int64_t> batches{4}, lens{1024};
  std::vector<Precision> precisions{{}};
  Device device;
  std::optional<std::uint64_t> memory_bytes;     // empty: the device's
  std::optional<std::uint64_t> workspace_bytes;  // empty: by the device's architecture
};

Answer memory_model_as_pytorch(const PyTorchModelMemory&);

}  // namespace headroom
