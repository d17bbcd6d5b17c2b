// memory_model_pytorch — the training step of a language model as PyTorch eager would hold it, row by row, and the edges.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "report/record.h"
#include "studies/pytorch_account/language_model.h"

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

Record memory_model_as_pytorch(const PyTorchModelMemory&);

}  // namespace headroom
