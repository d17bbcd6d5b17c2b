// The instruction sets that the CPU kernels are compiled for: scalar (the baseline), AVX2 and AVX-512.
// Include it before anything of Highway.
#pragma once
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#ifdef HEADROOM_WITHOUT_AVX512  // under sanitizers, on a machine that has none
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
