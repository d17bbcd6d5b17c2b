// The 8-bit forward on Hopper, between its host side (fwd_fp8_host.cpp) and its instances.
#pragma once
#include "ops/attention/fp8/fp8_layout.h"
#include "ops/attention/sm90/fwd.h"

namespace headroom::attention::sm90 {

struct ForwardFp8Args : ForwardArgs {        // scale_log2 is of the numbers that are meant, v a map of fp8_layout.h's blocks
  const float *q_scale, *k_scale, *v_scale;  // [batch, heads], [batch, kv_heads] twice
};

template <class Tiles, Reach reach>
void start_forward_fp8(const ForwardFp8Args&, int multiprocessors, cudaStream_t);

}  // namespace headroom::attention::sm90
