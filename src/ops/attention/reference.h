// Attention as the textbook writes it, in FP64: the oracle. Loops over everything, hides nothing, is never fast.
#pragma once
#include <vector>

#include "ops/attention/attention.h"

namespace headroom::attention {

struct Reference {  // contiguous, in the shapes of attention.h
  std::vector<double> o, lse, dq, dk, dv, dsink;
};

// Inputs are read through their strides and dtypes. d_o without data: forward only. dlse may be empty.
Reference reference(const Problem&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o = {}, const Tensor& dlse = {},
                    const Extras& with = {});

// What the sink takes of a row: e^(sink − lse), where either may be infinite.
double share_of_sink(double sink, double lse);

double load(const Tensor&, std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t d);  // one element, widened

}  // namespace headroom::attention
