// How many devices take a step together, what each of them holds of the weights, their gradients and the optimiser's state, and what of
// the batch it takes: sequences of its own, or a part of every sequence's tokens.
#pragma once
#include <cstdint>
#include <string_view>

#include "base/described.h"
#include "base/other_words.h"

namespace headroom::engine {

enum class Sharding : std::uint8_t {  // each shards what the one before does, and more
  none,                               // every rank holds everything; gradients are summed over the ranks before the update
  optimizer,                          // moments, and master weights that have a copy in the compute type (ZeRO-1)
  gradients,                          // also gradients: a block's are whole only while its backward runs (ZeRO-2)
  everything,                         // also weights: a block's are whole only while it runs (ZeRO-3, FSDP)
};

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Sharding> = names<engine::Sharding>("none", "optimizer", "gradients", "everything");
template <>
inline constexpr auto other_words_of<engine::Sharding> = std::to_array<OtherWord<engine::Sharding>>({
    {"0", engine::Sharding::none},  // DeepSpeed's and accelerate's zero_stage
    {"1", engine::Sharding::optimizer},
    {"2", engine::Sharding::gradients},
    {"3", engine::Sharding::everything},
    {"no_shard", engine::Sharding::none},  // FSDP1's
    {"shard_grad_op", engine::Sharding::gradients},
    {"full_shard", engine::Sharding::everything},
    {"ddp", engine::Sharding::none},
    {"zero1", engine::Sharding::optimizer},
    {"zero2", engine::Sharding::gradients},
    {"zero3", engine::Sharding::everything},
    {"fsdp", engine::Sharding::everything},
    {"fsdp2", engine::Sharding::everything},
});
}  // namespace headroom

namespace headroom::engine {

constexpr std::string_view name_of(Sharding s) { return names_of<Sharding>.of(s); }

struct Ranks {
  int count = 1;
  Sharding sharding = Sharding::none;
  bool split_tokens = false;

  int batches() const { return split_tokens ? 1 : count; }  // batches that the ranks take at once
  int parts() const { return split_tokens ? count : 1; }    // parts of a sequence
};
// The launcher usually gives their number, so it is no option; a command that takes it as one says so.
void describe(Of<Ranks> auto& r, auto&& f) {
  f(r.count, {.name = "ranks", .allowed = {1, 4096}});
  f(r.sharding,
    {.name = "shard",
     .about = "What is divided among ranks. optimizer: its state (ZeRO-1); gradients: these too (ZeRO-2); everything: weights too (ZeRO-3)",
     .option = "--shard,--zero"});
  f(r.split_tokens,
    {.name = "split_tokens", .about = "Each rank takes a part of every sequence (context parallel), not sequences of its own"});
}

}  // namespace headroom::engine
