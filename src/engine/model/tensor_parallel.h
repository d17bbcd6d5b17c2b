// Tensor parallelism — what one of several GPUs holds of a decoder: heads, feed-forward columns and vocabulary are divided.
#pragma once
#include <string>

#include "engine/model/decoder.h"

namespace headroom::engine {

// How key heads are shared out. A server may hold a key head on every GPU whose query heads read it; training would have to add up its gradients.
// Whole: every GPU has all heads, for sequences of its own.
enum class KeyHeads : std::uint8_t { divided, repeated, whole };

std::string why_no_shares(const Decoder&, int gpus, KeyHeads);  // empty: everything divides

// A GPU's share: the columns of every expert are divided, the vocabulary is rounded up. An Error (bad_argument) where something does not divide.
Decoder share_of(const Decoder&, int gpus, KeyHeads);

}  // namespace headroom::engine
