// See cuda_runtime_api.h. Kernels are chosen by this type.
#pragma once

struct __half {
  unsigned short bits;
};
