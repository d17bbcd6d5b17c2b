// What stands behind the door: trusts what the door has checked, takes the scratch that the door has made.
#pragma once
#include "ops/adamw/adamw.h"

namespace headroom::adamw {

struct Numbers {  // of one update, in the arithmetic of the elements
  float factor, beta1, beta2, rest1, rest2, step, root2, eps, keep;
  float go;  // 0: the gradient was not finite, nothing may change
};

struct Scratch {
  Tensor sums;     // FP64: of a tensor's pieces (CPU), of the blocks (GPU)
  Tensor numbers;  // FP32 [sizeof(Numbers) / 4]
};

constexpr std::int64_t piece = 65536;       // elements of one partial sum on the CPU
constexpr std::int64_t norm_blocks = 1024;  // partial sums on a GPU, whatever its size: the same bits on every card

void start_cpu(const Tensor& state, double loss_scale);
void set_rate_cpu(const Tensor& state, double lr);
void prepare_cpu(std::span<const Update>, const Scratch&, const Tensor& state, const Hyper&, Context&);  // no sums: no norm
void advance_cpu(std::span<const Update>, const Tensor& numbers, Context&);

void start_cuda(const Tensor& state, double loss_scale, Context&);
void set_rate_cuda(const Tensor& state, double lr, Context&);
void prepare_cuda(std::span<const Update>, const Scratch&, const Tensor& state, const Hyper&, Context&);
void advance_cuda(std::span<const Update>, const Tensor& numbers, Context&);

}  // namespace headroom::adamw
