// What PyTorch says itself: its peaks of a card, as its allocator reports them, and how it chooses cuDNN's plans.
#pragma once
#include <cstdint>

namespace headroom::dry {

struct TorchPeak {
  std::uint64_t allocated = 0, reserved = 0;
};
TorchPeak torch_peak(int device, bool reset);  // since it was last reset

std::uint64_t torch_asked();  // bytes of all blocks that it handed out so far, on any card

bool torch_tries_convolutions();  // torch.backends.cudnn.benchmark, as it is now

}  // namespace headroom::dry
