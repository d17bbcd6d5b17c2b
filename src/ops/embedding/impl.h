// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/embedding/embedding.h"

namespace headroom::embedding {

void forward_cpu(const Tensor& table, const Tensor& tokens, const Tensor& x, float scale, Context&);
void backward_cpu(const Tensor& tokens, const Tensor& dx, const Tensor& dtable, Gradient into_dtable, float scale, Context&);

struct Sorted {      // scratch on a GPU: rows in the order of their tokens, rows of one token in their own order
  Tensor starts;     // int32 [vocab + 1]: where a token's rows begin
  Tensor rows;       // int32 [rows]
  Tensor unordered;  // int32 [rows]: the same, but for the order within a token
};

void add_cpu(const Tensor& table, const Tensor& tokens, const Tensor& x, Context&);

void add_cuda(const Tensor& table, const Tensor& tokens, const Tensor& x, Context&);
void forward_cuda(const Tensor& table, const Tensor& tokens, const Tensor& x, float scale, Context&);
void backward_cuda(const Tensor& tokens, const Tensor& dx, const Tensor& dtable, Gradient into_dtable, float scale, const Sorted&,
                   Context&);

}  // namespace headroom::embedding
