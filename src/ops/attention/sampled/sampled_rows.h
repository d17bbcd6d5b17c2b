// The sampled oracle's sums over every row, formed where the tensors are when that is a CUDA device.
#pragma once
#include "gpu/place.h"
#include "ops/attention/sampled/sampled.h"

namespace headroom::attention {

RowSums row_sums_on_gpu(const Problem&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, std::int64_t batch,
                        std::int64_t head, const Place&);

}  // namespace headroom::attention
