// See cuda_runtime_api.h. Kernels are chosen by this type.
#pragma once

struct __nv_bfloat16 {
  unsigned short bits;
};
