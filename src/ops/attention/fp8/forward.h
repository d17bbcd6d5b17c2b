// A forward call in fp8 whose tensors are bf16: Q, K and V become E4M3 in scratch of the arena, then a variant of fp8 writes O in bf16.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

Problem in_fp8(const Problem& in_bf16);  // the same question of E4M3: `choose` a variant for this one

void forward_in_fp8(const Variant&, const Problem& in_bf16, const Forward&, Context&);

// Scratch of that call, found by running it dry: the copies in 8 bits, their scales, and what the variant takes.
std::size_t workspace_bytes_in_fp8(const Variant&, const Problem& in_bf16, const Device&, int workers);

}  // namespace headroom::attention
