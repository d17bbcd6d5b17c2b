// Attention in fp8 by the C++ door, on any device: what it gives for a case of attention_fp8.h.
#pragma once
#include <vector>

#include "headroom/headroom.hpp"
#include "tests/attention_fp8.h"
#include "tests/capi/call.h"

namespace headroom::capi {

using attention::fp8_cases::Fp8Case;
using attention::fp8_cases::Fp8Inputs;
using attention::fp8_cases::Fp8Result;

inline headroom_attention_problem as_c(const attention::Problem& p, const char* variant = nullptr) {
  auto out = api::attention_problem();
  out.dtype = HEADROOM_BF16, out.quantise = HEADROOM_QUANTISE_FP8, out.variant = variant;
  out.batch = p.batch, out.heads = p.heads, out.kv_heads = p.kv_heads, out.len_q = p.len_q, out.len_k = p.len_k, out.head_dim = p.head_dim;
  out.head_dim_v = p.dim_v;
  out.mask = int(p.mask.kind), out.align = int(p.mask.align), out.window = p.mask.window, out.window_after = p.mask.ahead;
  if (p.scale) out.scale = *p.scale, out.scale_given = 1;
  return out;
}

struct InBf16 {  // a call of the C interface whose tensors hold zeros
  headroom_attention_problem p = as_c(attention::fp8_cases::fp8_problem(2, 1, 40, 50, 32, attention::Mask::causal(), 1));
  std::vector<std::uint16_t> q = std::vector<std::uint16_t>(40 * 2 * 32), k = std::vector<std::uint16_t>(50 * 32), v = k, o = q;
  std::vector<float> lse = std::vector<float>(2 * 40);

  headroom_status forward(headroom_context* context, std::size_t workspace) {
    Aligned memory(workspace);
    const std::int64_t of_q[] = {1, 40, 2, 32}, of_k[] = {1, 50, 1, 32}, of_lse[] = {1, 2, 40};
    headroom_attention_forward_arguments a{};
    a.struct_size = sizeof a;
    a.q = headroom_contiguous(q.data(), HEADROOM_BF16, 4, of_q), a.o = headroom_contiguous(o.data(), HEADROOM_BF16, 4, of_q);
    a.k = headroom_contiguous(k.data(), HEADROOM_BF16, 4, of_k), a.v = headroom_contiguous(v.data(), HEADROOM_BF16, 4, of_k);
    a.lse = headroom_contiguous(lse.data(), HEADROOM_F32, 3, of_lse);
    a.workspace = memory.lend();
    return headroom_attention_forward(context, &p, &a);
  }
};

// O and LSE by the door, put in the place of what the op itself gave in `of_op`.
inline Fp8Result by_door(const api::Context& context, const Fp8Case& c, const Fp8Inputs& in, Fp8Result of_op) {
  const attention::Problem& p = c.problem;
  const auto problem = as_c(p);
  api::Attention attention(context, problem);
  std::vector<api::Memory> held;
  const auto room = [&](std::int64_t count, std::size_t size) {
    held.emplace_back(context, std::size_t(count) * size);
    return held.back().data();
  };
  const auto given = [&](const std::vector<float>& x, std::initializer_list<std::int64_t> shape) {
    std::vector<bf16> stored(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) stored[i] = narrow<bf16>(x[i]);
    void* const at = room(std::int64_t(x.size()), sizeof(bf16));
    if (!stored.empty()) held.back().write(stored.data(), stored.size() * sizeof(bf16));
    return api::tensor(at, HEADROOM_BF16, shape);
  };
  const auto q = given(in.q, {p.batch, p.len_q, p.heads, p.head_dim}), k = given(in.k, {p.batch, p.len_k, p.kv_heads, p.head_dim}),
             v = given(in.v, {p.batch, p.len_k, p.kv_heads, p.value_dim()});
  const auto o = api::tensor(room(p.o_shape().count(), sizeof(bf16)), HEADROOM_BF16, {p.batch, p.len_q, p.heads, p.value_dim()});
  const auto lse = api::tensor(room(p.lse_shape().count(), 4), HEADROOM_F32, {p.batch, p.heads, p.len_q});
  attention.forward({q, k, v, o, lse});
  const auto back = [&](const headroom_tensor& t, auto& to) {
    std::fill(to.begin(), to.end(), 0);
    if (!to.empty()) api::check(headroom_memory_read(context.get(), to.data(), t.data, std::size_t(t.bytes), nullptr));
  };
  back(o, of_op.o), back(lse, of_op.lse);
  return of_op;
}

}  // namespace headroom::capi
