#include "ops/attention/refusals.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpu/architecture.h"

namespace headroom::attention {

namespace {
Support needs_cuda(const Asked& a) { return a.device.kind == DeviceKind::cuda ? Support() : Support::no("needs a CUDA device"); }
}  // namespace

Support first_refusal(const Asked& asked, std::initializer_list<Requirement> requirements) {
  for (const Requirement requirement : requirements)
    if (Support s = requirement(asked); !s) return s;
  return {};
}

Support needs_kernels(const Asked& a) {
  if (Support s = needs_cuda(a); !s) return s;
  if (why_no_kernels(a.device).empty()) return {};
  return Support::no(fmt::format("needs sm_{} or newer, this is {}", oldest_sm, called(a.device.sm)));
}

Support needs_hopper(const Asked& a) {
  if (Support s = needs_cuda(a); !s) return s;
  return a.device.sm == 90 ? Support() : Support::no(fmt::format("needs Hopper (sm_90), this is sm_{}", a.device.sm));
}

Support needs_16_bits(const Asked& a) {
  const Precision& asked = a.problem.precision;
  if (asked.dtype == DType::bf16 || asked.dtype == DType::f16) return {};
  return Support::no(fmt::format("needs bf16 or fp16, {} was asked", name_of(asked)));
}

Support needs_fp8(const Asked& a) {
  const Precision& asked = a.problem.precision;
  return asked.dtype == DType::e4m3 ? Support() : Support::no(fmt::format("serves fp8, {} was asked", name_of(asked)));
}

Support needs_forward(const Asked& a) {
  if (a.pass == Pass::forward) return {};
  return Support::no("attention in fp8 has no backward: ask for forward alone (--pass forward)");
}

Support needs_positive_scale(const Asked& a) {
  const float scale = a.problem.scale_or_default();
  return scale <= 0 ? Support::no(fmt::format("needs a positive scale, it is {}", scale)) : Support();
}

Support needs_lengths_in_32_bits(const Asked& a) {
  return std::max(a.problem.len_q, a.problem.len_k) <= longest_in_32_bits ? Support() : Support::no("serves lengths up to 2^29");
}

Support needs_dims_of_16_bytes(const Asked& a) {
  const auto elements = std::int64_t(16 / size_of(a.problem.precision.dtype));
  for (const std::int64_t dim : {a.problem.head_dim, a.problem.value_dim()})
    if (dim % elements != 0) return Support::no(fmt::format("needs head_dim to be a multiple of {} (16 bytes), it is {}", elements, dim));
  return {};
}

Support needs_dims_up_to_256(const Asked& a) {
  const std::int64_t dim = std::max(a.problem.head_dim, a.problem.value_dim());
  return dim <= 256 ? Support() : Support::no(fmt::format("serves head_dim up to 256, it is {}", dim));
}

Support pages_are_of_a_cache(const Asked& a) {
  return a.problem.page == 0 || a.pass == Pass::forward ? Support() : Support::no("pages are of a cache: forward only");
}

}  // namespace headroom::attention
