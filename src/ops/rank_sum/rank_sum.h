// The ranks' parts of one tensor, added in the order of ranks in FP32, divided, and rounded once.
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace headroom::rank_sum {

struct Parts {      // each of `count` elements of `type`
  const void* own;  // this rank's
  int rank, ranks;
  const void* others;  // rank 0's; the next rank's is `apart` elements behind it. This rank's place there is not read
  std::int64_t apart, count;
  DType type;  // FP32, bf16 or fp16
};

struct Sum {
  void* to;              // may be the own part
  void* also = nullptr;  // a second place for the same, if any
  int divisor = 1;
};

// stream: a cudaStream_t of the memory's GPU.
void add_on_gpu(const Parts&, const Sum&, void* stream);
void add_on_cpu(const Parts&, const Sum&);

}  // namespace headroom::rank_sum
