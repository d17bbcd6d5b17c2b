#include "studies/memory/asked.h"

#include "base/error.h"

namespace headroom::studies {

void check_has_cuda_allocator(const Device& device) {
  check(device.kind == DeviceKind::cuda, Code::bad_argument,
        "--device cpu: --as pytorch accounts for PyTorch's CUDA allocator; name a GPU, present or not, as in --device h200");
}

void check_measured_here(bool is_here, const std::string& device) {
  check(is_here, Code::bad_argument, "--measure: there is no {} in this machine; leave --measure out for the forecast, or name cpu or cuda",
        device);
}

}  // namespace headroom::studies
