// Rotary positions: element i of a head's first half and element i of its second half are rotated by position · theta^(−2i/dim),
// as in Llama. The rotation is orthogonal, so its gradient is the opposite rotation. In place. A row's position is its
// number in the sequence, or what `positions` says, int32 [batch, len], each below the table's rows: the caller has checked.
//
// x is [batch, len, heads, dim], any strides but 1 in the last dimension; table [≥ len, dim] FP32: cosines, then sines.
#pragma once
#include "base/tensor.h"
#include "ops/op.h"
#include "ops/rope/scaling.h"

namespace headroom::rope {

enum class Turn : std::uint8_t { forward, back };

Support supports(std::int64_t dim);  // dim: elements of a head that turn; a dry run counts what it refuses
void fill(const Tensor& table, double theta, Context&, std::int64_t first = 0);  // for positions from the first one on
std::vector<float> table_of(const Frequencies&, std::int64_t len);               // the contents of a table of scaled positions: [len, dim]
void rotate(const Tensor& x, const Tensor& table, Turn, Context&, const Tensor& positions = {});

}  // namespace headroom::rope
