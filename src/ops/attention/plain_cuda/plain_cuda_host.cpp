// plain_cuda — S = Q Kᵀ and P = softmax(S) are whole matrices, and P is kept for backward: the honest baseline on a GPU.
//
// Forward:  S (FP32, scratch) = scale·Q Kᵀ → P (storage type, kept) → O = P V.
// Backward: dV = Pᵀ dO; dP (FP32, scratch) = dO Vᵀ; dS = P∘(dP − Δ) (storage type, scratch); dQ = scale·dS K; dK = scale·dSᵀ Q.
// Products are cuBLASLt's, a batch of heads each. Query heads that share a key head take turns; their gradients add up in FP32.
#include <algorithm>

#include "base/error.h"
#include "gpu/architecture.h"
#include "gpu/beside.h"
#include "gpu/blas.h"
#include "gpu/buffer.h"
#include "gpu/check.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/plain_cuda/plain_cuda.h"
#include "ops/attention/refusals.h"

namespace headroom::attention {

namespace {

using blas::Matrix;

struct Heads {  // the products of one batch entry and one turn: heads turn, turn + group, … of Q, key heads 0, 1, …
  const Problem& p;
  std::int64_t batch, turn;

  static void* at(const Tensor& t, std::int64_t offset) { return t.as<std::byte>() + offset * std::int64_t(size_of(t.dtype)); }
  Matrix q(const Tensor& t) const {
    return {at(t, batch * t.stride[0] + turn * t.stride[2]), t.dtype, t.stride[1], p.group() * t.stride[2]};
  }
  Matrix k(const Tensor& t) const { return {at(t, batch * t.stride[0]), t.dtype, t.stride[1], t.stride[2]}; }
  Matrix scores(const Tensor& t) const {  // [batch, heads, len_q, len_k]
    const std::int64_t one = p.len_q * p.len_k;
    return {at(t, (batch * p.heads + turn) * one), t.dtype, p.len_k, p.group() * one};
  }
};

Matrix transposed(Matrix m) {
  m.transposed = true;
  return m;
}

template <class Body>
void for_heads(const Problem& p, Body&& body) {
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t turn = 0; turn < p.group(); ++turn) body(Heads{p, batch, turn});
}

Cost with_scores_on_gpu(const Problem& p, Cost cost, int passes) {  // over whole matrices of them
  const double size = double(size_of(p.precision.dtype)), scores = double(p.batch) * double(p.heads) * double(p.len_q) * double(p.len_k);
  cost.bytes += passes * (size + 4) * scores;
  return cost;
}

// Parts of the op, for a listener: `products` whole matrices of scores by head_dim, and a pass over the scores.
Running products(const char* part, int count, const Problem& p, const Context& ctx) {
  const double size = double(size_of(p.precision.dtype)), scores = double(p.lse_shape().count()) * double(p.len_k);
  const double tensors = size * double(p.q_shape().count() + p.k_shape().count());
  return ctx.part(part, p.precision, {count * 2 * scores * double(p.head_dim), count * (tensors + size * scores)}, Work::matmul);
}
Running softmax(double flops_of_each, double bytes_of_each, const Problem& p, const Context& ctx) {
  const double pairs = double(p.batch * p.heads) * p.visible(), scores = double(p.lse_shape().count()) * double(p.len_k);
  return ctx.part("softmax", p.precision, {flops_of_each * pairs, bytes_of_each * scores}, Work::softmax);
}

void fill_zero(const Tensor& t, cudaStream_t stream) {  // rows of heads may lie anywhere
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t h = 0; h < t.shape[2]; ++h)
      set_rows(Heads::at(t, b * t.stride[0] + h * t.stride[2]), std::size_t(t.stride[1]) * size_of(t.dtype), 0,
               std::size_t(t.shape[3]) * size_of(t.dtype), std::size_t(t.shape[1]), stream);
}

// The products are cuBLASLt's, which says nothing of what it meets: every row is looked at.
void expect_nan(const Lists& lists, const Context& ctx) {
  if (lists.not_numbers) set_bytes(lists.not_numbers.data, 1, lists.not_numbers.bytes(), ctx.stream);
}

}  // namespace

Support plain_cuda_supports(const Problem& p, const Device& device, Pass pass) {
  const Asked asked{p, device, pass};
  if (Support s = needs_kernels(asked); !s) return s;
  if (size_of(p.precision.dtype) < 2) return Support::no("fp8 is not served");
  const Features known{.softcap = true, .sink = true, .documents = true, .dim_v = true};
  if (Support s = needs_lengths_in_32_bits(asked); !s) return s;
  return asks_no_more_than(p, known);
}

void plain_cuda_forward(const Problem& p, const Forward& t, Context& ctx) {
  const Lists lists = make_lists(p, ctx);
  const Tensor s = ctx.arena.make("s", DType::f32, {p.batch, p.heads, p.len_q, p.len_k});
  const Tensor workspace = ctx.arena.make("cublas_workspace", DType::u8, {std::int64_t(blas::workspace_bytes)});
  const auto op = ctx.note("attention.plain_cuda.forward", p.precision, with_scores_on_gpu(p, forward_cost(p), 2), Work::attention_parts);
  if (ctx.dry() || p.lse_shape().count() == 0) return;
  if (p.len_k == 0) return no_keys(p, t, ctx);
  const auto stream = cuda_stream(ctx.stream);
  const Math math = p.precision.math;
  list_documents_on_gpu(p, t.with, lists, ctx);
  {
    const auto running = products("scores", 1, p, ctx);
    for_heads(p, [&](const Heads& h) {
      blas::multiply({h.q(t.q), transposed(h.k(t.k)), h.scores(s), p.len_q, p.len_k, p.head_dim, p.kv_heads, p.scale_or_default(), 0, math},
                     workspace.data, stream);
    });
  }
  {
    const auto running = softmax(5, 8.0 + double(size_of(p.precision.dtype)), p, ctx);
    beside::call<plain::softmax_rows>(p, band_of(p, lists, 0), s, t.saved.p, t, stream);
  }
  const auto running = products("values", 1, p, ctx);
  for_heads(p, [&](const Heads& h) {
    blas::multiply({h.scores(t.saved.p), h.k(t.v), h.q(t.o), p.len_q, p.value_dim(), p.len_k, p.kv_heads, 1, 0, math}, workspace.data,
                   stream);
  });
  expect_nan(lists, ctx);
  mend_forward_on_gpu(p, t, lists, ctx);
}

void plain_cuda_backward(const Problem& p, const Backward& t, Context& ctx) {
  const DType dtype = p.precision.dtype;
  const Shape scores{p.batch, p.heads, p.len_q, p.len_k};
  const Tensor dp = ctx.arena.make("dp", DType::f32, scores);
  const Tensor ds = dtype == DType::f32 ? dp : ctx.arena.make("ds", dtype, scores);
  const bool adds_up = p.group() > 1 && dtype != DType::f32;  // several roundings would be one too many
  const Shape widest = p.value_dim() > p.head_dim ? p.v_shape() : p.k_shape();
  const Tensor sum = adds_up ? ctx.arena.make("dk_sum", DType::f32, widest) : Tensor();  // dV's, then dK's
  const Tensor s = p.softcap != 0 ? ctx.arena.make("s", DType::f32, scores) : Tensor();  // formed again: P does not tell the cap's slope
  const Tensor delta = t.dsink ? ctx.arena.make("delta", DType::f32, p.lse_shape()) : Tensor();
  const Tensor workspace = ctx.arena.make("cublas_workspace", DType::u8, {std::int64_t(blas::workspace_bytes)});
  const Lists lists = make_lists(p, ctx);
  const auto op = ctx.note("attention.plain_cuda.backward", p.precision, with_scores_on_gpu(p, backward_cost(p), 5), Work::attention_parts,
                           Making::gradients);
  if (ctx.dry()) return;
  const auto stream = cuda_stream(ctx.stream);
  if (p.lse_shape().count() == 0 || p.len_k == 0) {
    for (const Tensor* gradient : {&t.dq, &t.dk, &t.dv}) fill_zero(*gradient, stream);
    if (t.dsink) sum_dsink_on_gpu(p, t.with.sink, t.lse, without_keys(p, t), t.dsink, ctx);
    return;
  }
  const Math math = p.precision.math;
  const auto multiply = [&](Matrix a, Matrix b, Matrix c, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, float beta = 0) {
    blas::multiply({a, b, c, m, n, k, p.kv_heads, alpha, beta, math}, workspace.data, stream);
  };
  const auto gradient_of_keys = [&](const Tensor& to, const Tensor& left, const Tensor& right,
                                    float alpha) {  // Σ over the turns of leftᵀ right
    const Tensor target = adds_up ? Tensor(sum.data, DType::f32, to.shape) : to;
    for_heads(p, [&](const Heads& h) {
      multiply(transposed(h.scores(left)), h.q(right), h.k(target), p.len_k, to.shape[3], p.len_q, alpha, h.turn > 0 ? 1.f : 0.f);
    });
    if (adds_up) beside::call<plain::store_rounded>(target, to, stream);
  };
  {
    const auto running = products("values", 2, p, ctx);
    gradient_of_keys(t.dv, t.saved.p, t.d_o, 1);
    for_heads(p, [&](const Heads& h) { multiply(h.q(t.d_o), transposed(h.k(t.v)), h.scores(dp), p.len_q, p.len_k, p.value_dim(), 1); });
    if (s)
      for_heads(p, [&](const Heads& h) {
        multiply(h.q(t.q), transposed(h.k(t.k)), h.scores(s), p.len_q, p.len_k, p.head_dim, p.scale_or_default());
      });
  }
  {
    const auto running = softmax(2, 4.0 + 2.0 * double(size_of(dtype)), p, ctx);
    beside::call<plain::softmax_rows_backward>(p, t, {.dp = dp, .ds = ds, .s = s, .delta = delta}, stream);
    if (delta)
      sum_dsink_on_gpu(p, t.with.sink, t.lse, {.delta = delta.as<float>(), .sign = 1, .padded = p.len_q, .in_sixteens = false}, t.dsink,
                       ctx);
  }
  const auto running = products("scores", 2, p, ctx);
  for_heads(p, [&](const Heads& h) { multiply(h.scores(ds), h.k(t.k), h.q(t.dq), p.len_q, p.head_dim, p.len_k, p.scale_or_default()); });
  gradient_of_keys(t.dk, ds, t.q, p.scale_or_default());
  list_documents_on_gpu(p, t.with, lists, ctx);
  expect_nan(lists, ctx);
  mend_backward_on_gpu(p, t, lists, ctx);
}

}  // namespace headroom::attention
