// act = f(gate) · up, or act = f(x) without a gate, and their gradients, for the functions that feed-forward layers have beside SwiGLU,
// the gated silu (ops/swiglu).
//
// in is [rows, 2·width] gated, gate first, or [rows, width]; act [rows, width]; one storage type, contiguous; the arithmetic is FP32.
// din may share in's memory, so that backward allocates nothing. Backward reads everything that act is made of, so it can write act
// again for the cost of a store, if forward's was not kept.
#pragma once
#include "base/described.h"
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::activation {

enum class Function : std::uint8_t {
  silu,
  gelu,       // x·Φ(x), with the error function
  gelu_tanh,  // its approximation by tanh: GPT-2's gelu_new, Gemma's gelu_pytorch_tanh
  relu
};

struct Forward {
  Tensor in;
  Tensor act;  // written
  Function function = Function::silu;
};

struct Backward {
  Tensor in, dact;
  Tensor din;       // written
  Tensor act = {};  // written if present; may share dact's memory
  Function function = Function::silu;
};

void forward(const Forward&, Context&);
void backward(const Backward&, Context&);

}  // namespace headroom::activation

template <>
inline constexpr auto headroom::names_of<headroom::activation::Function> = headroom::names<headroom::activation::Function>("silu", "gelu",
                                                                                                                           "gelu_tanh",
                                                                                                                           "relu");
