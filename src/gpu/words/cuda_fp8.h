// See cuda_runtime_api.h. Kernels are chosen by these types.
#pragma once

struct __nv_fp8_e4m3 {
  unsigned char bits;
};
struct __nv_fp8_e5m2 {
  unsigned char bits;
};
