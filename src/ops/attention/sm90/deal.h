// How whole tiles of query rows are dealt to the blocks of a forward: fills ForwardArgs, for the hosts of 16 and of 8 bits.
#pragma once
#include <algorithm>

#include "base/divide.h"
#include "gpu/check.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sm90/fwd.h"
#include "ops/op.h"

namespace headroom::attention::sm90 {

enum class Deal : std::uint8_t {
  pairs,  // in turn; where tiles differ in length, a long and a short one of a head together
  asked   // as blocks ask for them, by a counter in the workspace
};

// As many (batch, head) pairs as keep `bytes` of K and V each in half of L2, in even sections: a small last one would be a tail of its own.
inline int pairs_at_once(std::int64_t pairs, double bytes) {
  const std::int64_t fit = std::clamp<std::int64_t>(std::int64_t((24 << 20) / std::max(bytes, 1.0)), 1, pairs);
  return int(ceil_div(pairs, ceil_div(pairs, fit)));
}

// bytes_of_pair: of K and V that a (batch, head) pair reads, its share where heads share them
inline void deal_whole_tiles(ForwardArgs& a, Deal deal, double bytes_of_pair, Context& ctx) {
  const std::int64_t pairs = std::int64_t(a.batch) * a.heads;
  if (deal == Deal::pairs) {
    a.units = int(dealt_units(a.band.reach, a.row_tiles, pairs));
    return;
  }
  a.units = int(a.row_tiles * pairs);
  a.heads_at_once = pairs_at_once(pairs, bytes_of_pair);
  const Tensor counter = ctx.arena.make("attention.next_unit", DType::i32, {1});
  a.next_unit = counter.as<int>();
  if (!ctx.dry() && a.band.reach != Reach::listed)  // the kernel that lists documents zeroes it too
    cuda(cudaMemsetAsync(counter.data, 0, counter.bytes(), cuda_stream(ctx.stream)));
}

}  // namespace headroom::attention::sm90
