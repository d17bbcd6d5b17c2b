// AdamW with decoupled decay, bias correction, clipping by the global norm and dynamic loss scaling. The host never reads a
// value: one op writes its results to the state, and the next reads them there.
//
// The state is FP64 [state_size] (fields below); start it with start(). The learning rate is the one that set_rate wrote last: a
// recorded update runs again with another one. A gradient that is not finite leaves weights, moments and the count of updates as they
// were. Sums are split by shape alone, so the bits do not depend on the number of threads.
#pragma once
#include <span>

#include "base/scaled.h"
#include "base/tensor.h"
#include "ops/op.h"

namespace headroom::adamw {

enum Field : int { loss_scale, good_updates, updates, grad_norm, factor, skipped, rate, seed, state_size = 8 };

inline constexpr double flops_of_element = 15;  // the FLOPs that an update counts

struct Hyper {
  double lr = 1e-3;  // the caller passes it to set_rate
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  double clip = 1;             // largest global norm; 0: no clipping
  bool dynamic_scale = false;  // halve the loss scale when a gradient is not finite, double it after growth_interval good updates
  int growth_interval = 1000;
};

struct Update {         // updates one parameter, or a run of its elements; every tensor contiguous
  Tensor grad;          // FP32 or the copy's type, with the loss scale in it
  Tensor master, m, v;  // updated; a master is FP32, moments are FP32, bf16, or 8 bits (uint8) with scales
  Tensor copy;          // optional: the weight in the compute type, one type for all parameters, written
  bool decay = true;
  Tensor rest = {};  // instead of master: the 16 bits of FP32 that the bf16 copy lacks (ops/copy/split.h)
  // More than one: the gradient is the sum of as many tensors like grad, this many elements apart, added in order in FP32. All updates
  // of a call have as many.
  int parts = 1;
  std::int64_t apart = 0;
  Tensor m_scale = {}, v_scale = {};  // scales of 8-bit moments: FP32, one for every moments_block elements (moments.h)
  // The rounding of moments that are not FP32 depends on the parameter's number, and on the number of the first element in it. That
  // element must begin a block.
  std::uint32_t parameter = 0;
  std::int64_t first = 0;
  // Optional, for a whole matrix: the 8-bit copies of `copy` that products read, [rows, columns] and [columns, rows], written with
  // their scales; and ops/quantise's counts, to which theirs are added, or none.
  Scaled as_is = {}, transposed = {};
  Tensor counts = {};
};
constexpr std::int64_t moments_block = 256;  // elements, from a parameter's beginning, that share a scale
double bytes_of_moments(const Update&);      // both moments' bytes, for one element

void start(const Tensor& state, double loss_scale, Context&);
void set_rate(const Tensor& state, double lr, Context&);
void set_seed(const Tensor& state, std::uint64_t, Context&);  // seed of rounding; 0 until set

// An update of all parameters together is squares, begin, advance; update does all three. Between squares and begin the sums of other
// ranks can be brought beside one's own. Both tensors are made in the caller's scope.
//
// The sum of the squares of all gradients, in fixed point (exact_sum.h): cut into units of `unit` elements from each tensor's beginning, so
// tensors that are cut there, in any number of pieces on any number of ranks, give the same bits.
constexpr std::int64_t unit = 1024;
Tensor make_sums(int ranks, Context&);                                          // int64 [ranks, …]
void squares(std::span<const Update>, const Tensor& sums, int rank, Context&);  // row `rank` of the sums is written

// The numbers of an update, and the state's next values. Without sums there is no norm: nothing is clipped, a gradient that is not
// finite is not noticed, and a parameter can be updated as soon as its own gradient is known.
// zeros: so many words behind them that are 0, for ops that use the numbers.
Tensor begin(const Tensor& state, const Hyper&, Context&, const Tensor& sums = {}, std::int64_t zeros = 0);
void advance(std::span<const Update>, const Tensor& numbers, Context&);  // any of the parameters, in any order
void quantise_copy(const Update&, Context&);                             // the 8-bit copies of what `copy` is now

void update(std::span<const Update>, const Tensor& state, const Hyper&, Context&);

}  // namespace headroom::adamw
