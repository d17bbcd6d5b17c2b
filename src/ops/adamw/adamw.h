// AdamW with decoupled decay and bias correction, clipping by the global norm and dynamic loss scaling, without the host ever
// reading a value: what one op finds out, the next reads from the state.
//
// The state is FP64 [state_size] (fields below); start it with start(). The learning rate is the one that set_rate wrote last: a
// recorded update runs again with another one. A gradient that is not finite leaves weights, moments and the count of updates as they
// were. All sums are cut by the shapes alone: the bits do not depend on the number of threads.
#pragma once
#include <span>

#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::adamw {

enum Field : int { loss_scale, good_updates, updates, grad_norm, factor, skipped, rate, state_size = 8 };

struct Hyper {
  double lr = 1e-3;  // for the caller to hand to set_rate
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double clip = 1;             // of the global norm; 0: none
  bool dynamic_scale = false;  // halve the loss scale when a gradient is not finite, double it after growth_interval good updates
  int growth_interval = 1000;
};

struct Update {         // of one parameter; every tensor contiguous
  Tensor grad;          // FP32 or the copy's type, with the loss scale in it
  Tensor master, m, v;  // FP32, updated
  Tensor copy;          // optional: the weight in the compute type, one type for all parameters, written
  bool decay = true;
  Tensor rest = {};  // instead of master: the 16 bits by which a bf16 copy is short of FP32 (ops/copy/split.h)
};

void start(const Tensor& state, double loss_scale, Context&);
void set_rate(const Tensor& state, double lr, Context&);

// Of all parameters together: the norm of all gradients, what follows from it, and every weight.
// Scratch: FP64 partial sums of the norm (1024 on a GPU) and the update's numbers.
void update(std::span<const Update>, const Tensor& state, const Hyper&, Context&);

// The same without a norm of all gradients, so that a parameter can be updated as soon as its own gradient is known: nothing is clipped,
// and a gradient that is not finite is not noticed. begin once, then advance any of the parameters in any order. The numbers are
// made in the caller's scope.
Tensor begin(const Tensor& state, const Hyper&, Context&);
void advance(std::span<const Update>, const Tensor& numbers, Context&);

}  // namespace headroom::adamw
