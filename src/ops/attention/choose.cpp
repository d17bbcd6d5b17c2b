#include <algorithm>
#include <cmath>

#include "ops/attention/impl.h"

namespace headroom::attention {

namespace {

constexpr Variant table[] = {
    {"flash_sm90", "flash", "Hopper: TMA, wgmma, warp-specialised; bf16 and fp16", true, sm90_supports, nothing_saved, sm90_forward,
     sm90_backward},
    {"flash_sm80", "flash", "CUDA from sm_80 on: cp.async, mma.sync; bf16, fp16 and tf32", true, sm80_supports, nothing_saved, sm80_forward,
     sm80_backward},
    {"flash_simt", "flash", "CUDA: exact fp32 on the ordinary cores, no tf32", true, simt_supports, nothing_saved, simt_forward,
     simt_backward},
    {"plain_cuda", "plain", "CUDA: materialises S and P with cuBLASLt and keeps P, the honest baseline", true, plain_cuda_supports,
     plain_make_saved, plain_cuda_forward, plain_cuda_backward},
    {"flash", "flash", "CPU: tiles, online softmax, keeps O and LSE, recomputes in backward", true, flash_supports, nothing_saved,
     flash_forward, flash_backward},
    {"plain", "plain", "CPU: materialises S and P and keeps P, the honest baseline", true, plain_supports, plain_make_saved, plain_forward,
     plain_backward},
};

std::string in_words(const Problem& p) {
  return fmt::format("{} head_dim {} len {}x{} heads {}/{} {}", name_of(p.precision), p.head_dim, p.len_q, p.len_k, p.heads, p.kv_heads,
                     name_of(p.mask));
}

void check_tensor(const char* name, const Tensor& t, const Shape& shape, DType dtype) {
  check(bool(t), Code::bad_argument, "attention: {} is missing, expected {}x{}x{}x{}", name, shape[0], shape[1], shape[2], shape[3]);
  check(t.shape == shape, Code::bad_argument, "attention: {} is {}x{}x{}x{}, expected {}x{}x{}x{}", name, t.shape[0], t.shape[1],
        t.shape[2], t.shape[3], shape[0], shape[1], shape[2], shape[3]);
  check(t.dtype == dtype, Code::bad_argument, "attention: {} is {}, expected {}", name, name_of(t.dtype), name_of(dtype));
  const int last = shape.rank - 1;
  check(shape[last] <= 1 || t.stride[std::size_t(last)] == 1, Code::bad_argument,
        "attention: {} has stride {} in its last dimension, expected 1", name, t.stride[std::size_t(last)]);
}

void check_lse(const char* name, const Tensor& t, const Problem& p) {
  check_tensor(name, t, p.lse_shape(), DType::f32);
  check(t.count() == 0 || t.contiguous(), Code::bad_argument, "attention: {} must be contiguous", name);
}

}  // namespace

float Problem::scale_or_default() const { return scale != 0 ? scale : 1.0f / std::sqrt(float(head_dim)); }

void check(const Problem& p) {
  check(p.batch >= 0, Code::bad_argument, "attention: batch is {}, it must be at least 0", p.batch);
  check(p.heads >= 1 && p.kv_heads >= 1 && p.heads % p.kv_heads == 0, Code::bad_argument,
        "attention: heads {} and kv_heads {}: kv_heads must divide heads, both at least 1", p.heads, p.kv_heads);
  check(p.len_q >= 0 && p.len_k >= 0, Code::bad_argument, "attention: len_q {} and len_k {} must be at least 0", p.len_q, p.len_k);
  check(p.len_q < (1ll << 31) && p.len_k < (1ll << 31), Code::bad_argument, "attention: a length of {} is past 2^31",
        std::max(p.len_q, p.len_k));
  check(p.head_dim >= 1 && p.head_dim <= 256, Code::bad_argument, "attention: head_dim is {}, it must be 1 to 256", p.head_dim);
  check(std::isfinite(p.scale), Code::bad_argument, "attention: scale is {}, it must be finite (0 asks for 1/sqrt(head_dim))", p.scale);
  check(p.mask.kind != MaskKind::window || p.mask.window >= 1, Code::bad_argument, "attention: a window of {} keys; it must be at least 1",
        p.mask.window);
  const auto at_least_one = [](std::int64_t n) { return double(std::max<std::int64_t>(n, 1)); };  // strides of an empty tensor count too
  const double rows = at_least_one(p.batch) * double(p.heads) * at_least_one(std::max(p.len_q, p.len_k));
  const double scores = at_least_one(p.batch) * double(p.heads) * at_least_one(p.len_q) * at_least_one(p.len_k);
  const double elements = rows * double(p.head_dim);
  check(std::max(scores, elements) < 0x1p58, Code::bad_argument,
        "attention: batch {}, heads {}, len {}x{}, head_dim {} is more than 2^58 elements: no memory holds that", p.batch, p.heads, p.len_q,
        p.len_k, p.head_dim);
}

double forward_flops(const Problem& p) { return 4.0 * double(p.batch) * double(p.heads) * double(p.head_dim) * p.band().visible(); }
double backward_flops(const Problem& p) { return 2.5 * forward_flops(p); }

std::span<const Variant> variants() { return table; }

const Variant* variant_named(std::string_view name) {
  for (const Variant& v : table)
    if (v.name == name) return &v;
  return nullptr;
}

const Variant& choose(const Problem& p, const Device& device, std::string_view wanted) {
  check(p);
  std::string refusals;
  for (const Variant& v : table) {
    if (!wanted.empty() && wanted != v.name && wanted != v.family) continue;
    Support s = v.supports(p, device, Pass::forward);
    if (s.ok) s = v.supports(p, device, Pass::backward);
    if (s.ok) return v;
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", v.name, s.why);
  }
  if (refusals.empty()) refusals = fmt::format("no variant is called '{}'", wanted);
  throw Error(Code::unsupported, fmt::format("attention: nothing here serves {} on {} ({})", in_words(p), device.name, refusals));
}

Saved nothing_saved(const Problem&, Context&) { return {}; }

Saved make_saved(const Variant& v, const Problem& p, Context& ctx) {
  check(p);
  auto phase = ctx.arena.in_phase(Phase::saved);
  return v.make_saved(p, ctx);
}

void forward(const Variant& v, const Problem& p, const Forward& t, Context& ctx) {
  check(p);
  check_tensor("q", t.q, p.q_shape(), p.precision.dtype);
  check_tensor("k", t.k, p.k_shape(), p.precision.dtype);
  check_tensor("v", t.v, p.k_shape(), p.precision.dtype);
  check_tensor("o", t.o, p.q_shape(), p.precision.dtype);
  check_lse("lse", t.lse, p);
  auto scratch = ctx.arena.scope();
  v.forward(p, t, ctx);
}

void backward(const Variant& v, const Problem& p, const Backward& t, Context& ctx) {
  check(p);
  const DType dtype = p.precision.dtype;
  check_tensor("q", t.q, p.q_shape(), dtype);
  check_tensor("k", t.k, p.k_shape(), dtype);
  check_tensor("v", t.v, p.k_shape(), dtype);
  check_tensor("o", t.o, p.q_shape(), dtype);
  check_tensor("d_o", t.d_o, p.q_shape(), dtype);
  check_tensor("dq", t.dq, p.q_shape(), dtype);
  check_tensor("dk", t.dk, p.k_shape(), dtype);
  check_tensor("dv", t.dv, p.k_shape(), dtype);
  check_lse("lse", t.lse, p);
  if (t.dlse) check_lse("dlse", t.dlse, p);
  auto scratch = ctx.arena.scope();
  v.backward(p, t, ctx);
}

std::size_t workspace_bytes(const Variant& v, const Problem& p, const Device& device, Pass pass, int workers) {
  check(p);
  Arena saved_arena, arena;
  Context saving{saved_arena, device}, ctx{arena, device};
  ctx.dry_workers = workers;
  const DType dtype = p.precision.dtype;
  const Tensor q(nullptr, dtype, p.q_shape()), k(nullptr, dtype, p.k_shape()), lse(nullptr, DType::f32, p.lse_shape());
  const Saved saved = v.make_saved(p, saving);
  if (pass == Pass::forward)
    forward(v, p, {q, k, k, q, lse, saved}, ctx);
  else
    backward(v, p, {q, k, k, q, lse, q, {}, q, k, k, saved}, ctx);
  return arena.peak();
}

}  // namespace headroom::attention
