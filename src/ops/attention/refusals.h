// Why several variants refuse a problem or a device. Each function answers with the reason, or that this is no reason.
#pragma once
#include <initializer_list>

#include "ops/attention/attention.h"

namespace headroom::attention {

Support first_refusal(std::initializer_list<Support>);

Support needs_cuda(const Device&);
Support needs_kernels(const Device&);  // CUDA, and an architecture that this library's kernels are compiled for
Support needs_hopper(const Device&);
Support needs_16_bits(const Problem&);
Support needs_fp8(const Problem&);
Support needs_forward(Pass);  // of attention in fp8
Support needs_positive_scale(const Problem&);
Support needs_lengths_in_32_bits(const Problem&);
Support needs_dims_of(const Problem&, std::int64_t elements);  // rows are read 16 bytes at a time
Support needs_dims_up_to_256(const Problem&);
Support pages_are_of_a_cache(const Problem&, Pass);

}  // namespace headroom::attention
