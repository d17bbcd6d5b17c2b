// Whether a kernel's sums hold a NaN (or an infinity, times 0): mend.h says what follows.
#pragma once

namespace headroom::attention {

template <int n>
__device__ __forceinline__ bool none_is_nan(const float (&x)[n]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < n; ++i) sum = fmaf(x[i], 0.f, sum);
  return sum == 0;
}
template <int n>
__device__ __forceinline__ void report_nan(const float (&x)[n], int* not_numbers) {
  if (!none_is_nan(x)) *not_numbers = 1;
}

}  // namespace headroom::attention
