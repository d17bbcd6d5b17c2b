// What a caller brings to a CUDA device: a thread, which may have another device current, and pointers, which may be another memory's.
#pragma once
#include "base/device.h"

namespace headroom {

// Makes the device current for this thread until the brace, then what it was before. Nothing on a CPU.
class [[nodiscard]] OnDevice {
 public:
  explicit OnDevice(const Device&);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;  // -1: nothing to go back to
};

// An Error (bad_argument) when the driver says that the device cannot read this pointer. `name`: as the caller knows it.
void check_reachable(const void* data, const Device&, const char* name);
// The same for the CPU: refuses memory that only a GPU reads. Asks the driver only where this process has a CUDA context through us.
void check_host_memory(const void* data, const char* name);
void noted_cuda_use();  // a CUDA context was made through us: from now on the driver can be asked about pointers

}  // namespace headroom
