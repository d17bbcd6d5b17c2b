// act = silu(gate) · up, and its gradients.
//
// gate_up is [rows, 2·ffn], gate first, up second; act [rows, ffn]; one storage type, contiguous; the arithmetic is FP32.
// dgate_up may share gate_up's memory, so that backward allocates nothing. Backward reads everything that act is made of, so it can write
// act again for the cost of a store, if forward's was not kept.
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
  Tensor act = {};  // written if present; may share dact's memory
};

void forward(const Forward&, Context&);
void backward(const Backward&, Context&);

}  // namespace headroom::swiglu
