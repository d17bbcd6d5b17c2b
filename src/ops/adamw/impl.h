// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/adamw/adamw.h"

namespace headroom::adamw {

struct Numbers {  // one update's numbers, in FP32 as the elements use them
  float factor, beta1, beta2, rest1, rest2, step, root2, eps, keep;
  float go;              // 0: the gradient was not finite; nothing may change
  std::uint32_t random;  // this update's, from its number and the seed
};

constexpr std::int64_t piece = 65536;  // elements that a thread of the CPU takes at once; whole units

std::int64_t* row_of(const Tensor& sums, int rank);

void start_cpu(const Tensor& state, double loss_scale);
void set_cpu(const Tensor& state, Field, double value);
void squares_cpu(std::span<const Update>, std::int64_t* sum, Context&);
void begin_cpu(const Tensor& state, const Hyper&, const Tensor& sums, const Tensor& numbers);
void advance_cpu(std::span<const Update>, const Tensor& numbers, Context&);

void start_cuda(const Tensor& state, double loss_scale, Context&);
void set_cuda(const Tensor& state, Field, double value, Context&);
void squares_cuda(std::span<const Update>, std::int64_t* sum, Context&);
void begin_cuda(const Tensor& state, const Hyper&, const Tensor& sums, const Tensor& numbers, Context&);
void advance_cuda(std::span<const Update>, const Tensor& numbers, Context&);

}  // namespace headroom::adamw
