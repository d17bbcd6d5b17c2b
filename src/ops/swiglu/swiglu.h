// act = silu(gate) · up, and its gradients.
//
// gate_up is [rows, 2·ffn], gate first, up second; act [rows, ffn]; one storage type, contiguous; the arithmetic is FP32.
// dgate_up may lie in gate_up's own memory, so that backward needs none of its own. Backward has all that act is made of at hand, so it
// can write it again at the price of a store, where nobody kept it.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::swiglu {

struct Forward {
  Tensor gate_up;
  Tensor act;  // written
};

struct Backward {
  Tensor gate_up, dact;
  Tensor dgate_up;  // written
  Tensor act = {};  // written when it is there; may lie in dact's memory
};

void forward(const Forward&, Context&);
void backward(const Backward&, Context&);

}  // namespace headroom::swiglu
