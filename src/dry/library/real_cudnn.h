// The program's own libcudnn, which says how much workspace its plans take on the described card. From version 9.8 on cuDNN searches engines
// and makes plans without a device, for a description of one ("deviceless ahead-of-time compilation"). Older ones need a device.
#pragma once
#include <cstdint>

namespace headroom::dry {

struct RealCudnn {
  int (*create)(int type, void** out) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set)(void*, int attribute, int type, std::int64_t count, const void* from) = nullptr;
  int (*get)(void*, int attribute, int type, std::int64_t room, std::int64_t* count, void* to) = nullptr;
  int (*finalize)(void*) = nullptr;
  void* card = nullptr;  // the description, a descriptor of its own
};

const RealCudnn* real_cudnn();  // null: it does not answer without a device
int cudnn_version();            // 91900 for 9.19.0; 0: none is loaded

}  // namespace headroom::dry
