// A library that says that it has GPU kernels: FAKE_OTHER, those of another version; else of this build, and none.
#include "gpu/beside.h"

extern "C" __attribute__((visibility("default"))) const headroom::beside::Door* headroom_cuda() {
#ifdef FAKE_OTHER
  static const headroom::beside::Door door{"0.0", nullptr};
#else
  static const headroom::beside::Door door{headroom::beside::this_build, nullptr};
#endif
  return &door;
}
