// PyTorch's peaks of a card, as its allocator reports them.
#pragma once
#include <cstdint>

namespace headroom::dry {

struct TorchPeak {
  std::uint64_t allocated = 0, reserved = 0;
};
TorchPeak torch_peak(int device, bool reset);  // since it was last reset

}  // namespace headroom::dry
