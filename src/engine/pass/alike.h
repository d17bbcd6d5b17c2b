// Pieces of a step that are like each other, chunks of logits or micro-batches, are walked once by a dry run: the bytes are the same, and
// the walk says how often each op runs.
#pragma once
#include <algorithm>

#include "ops/op.h"

namespace headroom::engine {

// How many of `pieces` are like the second: those between it and the last. 0 where each has to be walked: with memory, and where a listener
// hears of each.
inline std::int64_t alike_of(std::int64_t pieces, const Context& ctx) {
  return ctx.dry() && !ctx.listener ? std::max<std::int64_t>(0, pieces - 3) : 0;
}

inline std::size_t walked(const Context& ctx) { return ctx.walk ? ctx.walk->steps.size() : 0; }

// The ops of the walk since it had `from` of them run `times` as often.
inline void repeat_since(std::size_t from, std::int64_t times, const Context& ctx) {
  for (std::size_t i = from; i < walked(ctx); ++i) ctx.walk->steps[i].times *= double(times);
}

}  // namespace headroom::engine
