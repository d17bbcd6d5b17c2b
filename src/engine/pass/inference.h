// Inference — a model that answers, run dry: the blocks of a step (block.h) over a cache of keys and values. Any decoder.
#pragma once
#include <optional>
#include <string>

#include "engine/forecast/serving.h"
#include "engine/model/decoder.h"
#include "ops/op.h"

namespace headroom::engine {

// Weights and cache in the precision's type, then a prefill of `len` tokens for each of `batch` sequences, or one new position each
// against a cache of `len`. The arena's peak is the account.
enum class Inference : std::uint8_t { prefill, decode };
struct Generation {
  std::int64_t batch = 1, len = 1;
  Precision precision{};
  std::string attention = "flash";
  WeightFormat weights{};        // formats of weights that are not in the precision
  std::optional<DType> cache{};  // its numbers; empty: the precision's
  std::int64_t page = 1;         // positions: a sequence's cache takes whole pages
  std::int64_t chunk = 0;        // tokens that prefill reads at once; 0: the prompt
  int gpus = 1;                  // the decoder is one rank's share of so many (share_of); their sums after each half are noted
  AttentionBy by = AttentionBy::heads;

  // How many sequences this rank attends for.
  std::int64_t sequences() const { return by == AttentionBy::sequences ? (batch + gpus - 1) / gpus : batch; }
};
std::int64_t cached_positions(const SelfAttention&, const Generation&);  // positions of one sequence
void run_inference(const Decoder&, const Generation&, Inference, Context&);

}  // namespace headroom::engine
