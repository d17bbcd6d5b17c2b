// What an op takes at a device's ceilings, its shape included: tiles come in waves over a card's units, and parts of tiles take as long as whole ones.
#pragma once
#include "engine/pass/training.h"
#include "ops/op.h"

namespace headroom::engine {

double ceiling_ms(const OpCall&, const Recipe&, const Ceilings&, int units);  // one call's; units 0: a CPU

constexpr double in_cache_bytes =
    40e6;  // what was just read or written is found in the second-level cache, at twice memory's rate at least

double share_of_copy_rate(double words);  // what a loss over rows of so many words reaches
constexpr double fitted_words = 50304;    // words of the models to which a loss's factor is fitted
// A capped loss: for each operation that its formula counts, the kernel takes as long as so many (106 us of 4096 x 10 000 logits, 377 of 1024 x 151 936).
constexpr double operations_of_capped_loss = 9.6;

// flash_sm80 on a card that has newer instructions: its time over the ceiling with many blocks and long rows, and how much longer it takes by its shape.
double older_over_ceiling(const OpCall&);
double older_attention(const OpCall&, const Recipe&, int units);

const SelfAttention& attention_of(const Recipe&);  // the first layer's; a recipe of ops alone has no model

}  // namespace headroom::engine
