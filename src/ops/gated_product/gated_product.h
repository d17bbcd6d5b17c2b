// A product and the SwiGLU beside it, as one op. Forward: gate_up = x·Wᵀ and act = silu(gate)·up. Backward: the gradients of gate and up from
// dact = dy·W, which is never stored; they take the place of gate and up.
//
// gate_up and act are as ops/swiglu has them. On a CPU, in every type, it is matmul and then swiglu, to the bit. On a GPU it requires Hopper (sm_90),
// bf16, sides that 8 divides and an output that fills the card: supports() says why not, and matmul and swiglu serve there. Gate, up and dact are
// rounded as if they were stored; the sums are FP32 over the whole of k in order, so the bits depend on the shapes alone. They need not be those
// of matmul::multiply, where that splits k.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::gated_product {

struct Sizes {
  std::int64_t rows, terms, width;  // terms: of each sum; width: channels of act
};

struct Forward {
  Tensor x, w;            // [rows, terms], [2 width, terms]
  Tensor gate_up;         // written [rows, 2 width]
  Tensor act = {};        // written if present [rows, width]
  double more_bytes = 0;  // as matmul::Product has it

  Sizes sizes() const { return {x.shape[0], x.shape[1], gate_up.shape[1] / 2}; }
};

struct Backward {
  Tensor dy, w;     // [rows, terms], [terms, width]
  Tensor gate_up;   // read, then its gradient [rows, 2 width]
  Tensor act = {};  // written if present: what forward made of gate_up [rows, width]

  Sizes sizes() const { return {dy.shape[0], dy.shape[1], gate_up.shape[1] / 2}; }
};

Support supports(const Sizes&, DType, const Device&);

// product: the name of the product, where it is an op of its own. Scratch: on a CPU what its product takes, and dact where there is no place
// for act; on a GPU nothing.
void forward(const Forward&, Context&, Name product = "gated_product");
void backward(const Backward&, Context&, Name product = "gated_product.dx");

}  // namespace headroom::gated_product
