// Why several variants refuse a problem or a device. Each function answers with the reason, or that this is no reason.
#pragma once
#include <initializer_list>

#include "ops/attention/attention.h"

namespace headroom::attention {

struct Asked {
  const Problem& problem;
  const Device& device;
  Pass pass;
};
using Requirement = Support (*)(const Asked&);
// The first one's reason. Those behind it are not asked: a call asks every variant, and a reason is a string.
Support first_refusal(const Asked&, std::initializer_list<Requirement>);

Support needs_kernels(const Asked&);  // CUDA, and an architecture that this library's kernels are compiled for
Support needs_hopper(const Asked&);
Support needs_16_bits(const Asked&);
Support needs_fp8(const Asked&);
Support needs_forward(const Asked&);  // of attention in fp8
Support needs_positive_scale(const Asked&);
Support needs_lengths_in_32_bits(const Asked&);
Support needs_dims_of_16_bytes(const Asked&);  // rows are read 16 bytes at a time
Support needs_dims_up_to_256(const Asked&);
Support pages_are_of_a_cache(const Asked&);

}  // namespace headroom::attention
