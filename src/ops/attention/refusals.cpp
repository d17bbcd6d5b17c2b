#include "ops/attention/refusals.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpu/architecture.h"

namespace headroom::attention {

Support first_refusal(std::initializer_list<Support> answers) {
  const auto* found = std::ranges::find_if(answers, [](const Support& s) { return !s; });
  return found == answers.end() ? Support() : *found;
}

Support needs_cuda(const Device& d) { return d.kind == DeviceKind::cuda ? Support() : Support::no("needs a CUDA device"); }

Support needs_kernels(const Device& d) {
  if (const Support s = needs_cuda(d); !s) return s;
  if (why_no_kernels(d).empty()) return {};
  return Support::no(fmt::format("needs sm_{} or newer, this is {}", oldest_sm, called(d.sm)));
}

Support needs_hopper(const Device& d) {
  if (const Support s = needs_cuda(d); !s) return s;
  return d.sm == 90 ? Support() : Support::no(fmt::format("needs Hopper (sm_90), this is sm_{}", d.sm));
}

Support needs_16_bits(const Problem& p) {
  if (p.precision.dtype == DType::bf16 || p.precision.dtype == DType::f16) return {};
  return Support::no(fmt::format("needs bf16 or fp16, {} was asked", name_of(p.precision)));
}

Support needs_fp8(const Problem& p) {
  return p.precision.dtype == DType::e4m3 ? Support() : Support::no(fmt::format("serves fp8, {} was asked", name_of(p.precision)));
}

Support needs_forward(Pass pass) {
  if (pass == Pass::forward) return {};
  return Support::no("attention in fp8 has no backward: ask for forward alone (--pass forward)");
}

Support needs_positive_scale(const Problem& p) {
  const float scale = p.scale_or_default();
  return scale <= 0 ? Support::no(fmt::format("needs a positive scale, it is {}", scale)) : Support();
}

Support needs_lengths_in_32_bits(const Problem& p) {
  return std::max(p.len_q, p.len_k) <= longest_in_32_bits ? Support() : Support::no("serves lengths up to 2^29");
}

Support needs_dims_of(const Problem& p, std::int64_t elements) {
  for (const std::int64_t dim : {p.head_dim, p.value_dim()})
    if (dim % elements != 0) return Support::no(fmt::format("needs head_dim to be a multiple of {} (16 bytes), it is {}", elements, dim));
  return {};
}

Support needs_dims_up_to_256(const Problem& p) {
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  return dim <= 256 ? Support() : Support::no(fmt::format("serves head_dim up to 256, it is {}", dim));
}

Support pages_are_of_a_cache(const Problem& p, Pass pass) {
  return p.page == 0 || pass == Pass::forward ? Support() : Support::no("pages are of a cache: forward only");
}

}  // namespace headroom::attention
