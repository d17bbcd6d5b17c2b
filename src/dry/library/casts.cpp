#include "dry/library/casts.h"

#include <cstdint>
#include <utility>

#include "dry/library/frames.h"
#include "dry/library/next.h"

namespace {

thread_local std::optional<bool> before_cast;

}  // namespace

namespace headroom::dry {

std::optional<bool> gradients_before_cast() { return before_cast; }

}  // namespace headroom::dry

extern "C" {

// at::Tensor: a pointer with a destructor, so it is returned through memory that the caller gives.
struct HeadroomDryTensor {
  void* implementation;
  ~HeadroomDryTensor() {}
};
// NOLINTNEXTLINE: the mangled name of PyTorch 2.x
#define CAST_NAME "_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE"
HeadroomDryTensor headroom_dry_cast(std::int8_t, const void*, std::int8_t) __asm__(CAST_NAME);
HeadroomDryTensor headroom_dry_cast(std::int8_t type, const void* tensor, std::int8_t device) {
  static auto* const real = headroom::dry::next<decltype(headroom_dry_cast)>(CAST_NAME, "libtorch_cpu.so", __builtin_return_address(0));
  struct Restore {
    std::optional<bool> before = std::exchange(before_cast, headroom::dry::autograd_now().enabled);
    ~Restore() { before_cast = before; }
  } restore;
  return real(type, tensor, device);
}
}
