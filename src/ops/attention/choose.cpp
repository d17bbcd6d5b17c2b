#include <algorithm>
#include <cmath>
#include <limits>

#include "gpu/architecture.h"
#include "ops/attention/checked.h"
#include "ops/attention/choose_dry.h"
#include "ops/attention/extras.h"
#include "ops/attention/impl.h"

namespace headroom::attention {

namespace {

constexpr Variant table[] = {
    {"flash_decode", "flash", "CUDA from sm_80 on: up to 16 new positions against many keys; bf16 and fp16", true, decode_supports,
     nothing_saved, decode_forward, decode_backward},
    {"flash_sm90", "flash", "Hopper: TMA, wgmma, warp-specialised; bf16 and fp16", true, sm90_supports, nothing_saved, sm90_forward,
     sm90_backward, sm90_turns_back},
    {"flash_sm90_fp8", "flash", "Hopper: Q, K and V in E4M3 with a scale to a head, O in bf16; forward only", true, sm90_fp8_supports,
     nothing_saved, sm90_fp8_forward, no_backward},
    {"flash_sm80", "flash", "CUDA from sm_80 on: cp.async, mma.sync; bf16, fp16 and tf32", true, sm80_supports, nothing_saved, sm80_forward,
     sm80_backward},
    {"flash_sm80_fp32", "flash", "CUDA cards with fast tf32: fp32 as three products of tf32, errors below fp32's", true, sm80_fp32_supports,
     nothing_saved, sm80_fp32_forward, sm80_fp32_backward},
    {"flash_simt", "flash", "CUDA: exact fp32 on the ordinary cores, no tf32", true, simt_supports, nothing_saved, simt_forward,
     simt_backward},
    {"plain_cuda", "plain", "CUDA: materialises S and P with cuBLASLt and keeps P, the honest baseline", true, plain_cuda_supports,
     plain_make_saved, plain_cuda_forward, plain_cuda_backward},
    {"flash", "flash", "CPU: tiles, online softmax, keeps O and LSE, recomputes in backward", true, flash_supports, nothing_saved,
     flash_forward, flash_backward},
    {"flash_fp8", "flash", "CPU: emulates flash_sm90_fp8, number by number; slow, forward only", true, flash_fp8_supports, nothing_saved,
     flash_fp8_forward, no_backward},
    {"plain", "plain", "CPU: materialises S and P and keeps P, the honest baseline", true, plain_supports, plain_make_saved, plain_forward,
     plain_backward},
};

std::string in_words(const Problem& p) {
  return fmt::format("{} head_dim {}{} len {}x{} heads {}/{} {}{}{}{}{}{}{}", name_of(p.precision), p.head_dim,
                     p.value_dim() == p.head_dim ? "" : fmt::format("/{}", p.value_dim()), p.len_q, p.len_k, p.heads, p.kv_heads,
                     name_of(p.mask), p.softcap == 0 ? "" : fmt::format(" softcap {}", p.softcap), p.sink ? " sink" : "",
                     p.documents == 0 ? "" : fmt::format(" {} documents", p.documents),
                     p.page == 0 ? "" : fmt::format(" pages of {}", p.page), p.dropout == 0 ? "" : fmt::format(" dropout {}", p.dropout),
                     p.alibi ? " alibi" : "");
}

}  // namespace

Support asks_no_more_than(const Problem& p, Features known) {
  const auto asks = [&](bool it, bool known_of, const char* what) { return it && !known_of ? what : nullptr; };
  const char* const unknown[] = {asks(p.softcap != 0, known.softcap, "soft capping is not served"),
                                 asks(p.sink, known.sink, "a sink logit is not served"),
                                 asks(p.documents != 0, known.documents, "packed documents are not served"),
                                 asks(p.value_dim() != p.head_dim, known.dim_v, "needs values of the keys' dimension"),
                                 asks(p.page != 0, known.pages, "paged keys are not served"),
                                 asks(p.dropout != 0, known.dropout, "dropout is not served"),
                                 asks(p.alibi, known.alibi, "slopes of ALiBi are not served")};
  for (const char* why : unknown)
    if (why) return Support::no(why);
  return {};
}

namespace {

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

void check(const Problem& p) {
  check(p.batch >= 0, Code::bad_argument, "attention: batch is {}, it must be at least 0", p.batch);
  check(p.heads >= 1 && p.kv_heads >= 1 && p.heads % p.kv_heads == 0, Code::bad_argument,
        "attention: heads {} and kv_heads {}: kv_heads must divide heads, both at least 1", p.heads, p.kv_heads);
  check(p.len_q >= 0 && p.len_k >= 0, Code::bad_argument, "attention: len_q {} and len_k {} must be at least 0", p.len_q, p.len_k);
  check(p.len_q < (1ll << 31) && p.len_k < (1ll << 31), Code::bad_argument, "attention: a length of {} is past 2^31",
        std::max(p.len_q, p.len_k));
  check(p.head_dim >= 1 && p.head_dim <= 1024, Code::bad_argument, "attention: head_dim is {}, it must be 1 to 1024", p.head_dim);
  check(p.dim_v >= 0 && p.dim_v <= 1024, Code::bad_argument, "attention: dim_v is {}, it must be 1 to 1024, or 0 for head_dim", p.dim_v);
  check(p.softcap >= 0 && std::isfinite(p.softcap), Code::bad_argument, "attention: softcap is {}, it must be finite and at least 0",
        p.softcap);
  check(p.softcap == 0 || (p.softcap >= std::numeric_limits<float>::min() && std::isfinite(p.scale_or_default() / p.softcap)),
        Code::bad_argument,
        "attention: softcap is {}: scores divided by it are beyond a float; leave it 0 for none, or take at least 1e-30", p.softcap);
  check(p.dropout >= 0 && p.dropout < 1, Code::bad_argument, "attention: dropout is {}, it must be at least 0 and below 1", p.dropout);
  check(p.dropout == 0 || double(p.batch) * double(p.heads) <= 0x1p31, Code::bad_argument,
        "attention: dropout serves up to 2^31 heads, batch {} and heads {} are more", p.batch, p.heads);
  check(p.documents >= 0 && p.documents < (1ll << 30), Code::bad_argument, "attention: {} documents; there must be 0 to 2^30", p.documents);
  check(p.documents == 0 || std::max(p.len_q, p.len_k) <= longest_in_32_bits, Code::bad_argument,
        "attention: {} packed positions are past 2^29", std::max(p.len_q, p.len_k));
  check(p.page >= 0 && p.pages >= 0 && p.page <= longest_in_32_bits && p.pages < (1ll << 31), Code::bad_argument,
        "attention: {} pages of {} positions; both must be at least 0 and below 2^31", p.pages, p.page);
  check(std::isfinite(p.scale_or_default()), Code::bad_argument, "attention: scale is {}, it must be finite", p.scale_or_default());
  check(p.mask);
  const auto at_least_one = [](std::int64_t n) { return double(std::max<std::int64_t>(n, 1)); };  // an empty tensor has strides, too
  const double rows = at_least_one(p.batch) * double(p.heads) * at_least_one(std::max(p.len_q, p.len_k));
  const double scores = at_least_one(p.batch) * double(p.heads) * at_least_one(p.len_q) * at_least_one(p.len_k);
  const double positions = p.page ? double(p.pages) * double(p.page) * double(p.kv_heads) : 0;
  const double elements = std::max(rows, positions) * double(std::max(p.head_dim, p.value_dim()));
  check(std::max(scores, elements) < 0x1p58, Code::bad_argument,
        "attention: batch {}, heads {}, len {}x{}, head_dim {} is more than 2^58 elements: no memory holds that", p.batch, p.heads, p.len_q,
        p.len_k, p.head_dim);
}

namespace {

double pairs_of(const Problem& p) { return double(p.batch) * double(p.heads) * p.visible(); }
double share_of_keys_seen(const Problem& p) {  // by any row: fewer than all where new rows see a window of a cache
  if (p.documents || p.len_k == 0) return 1;
  const Band b = p.band();
  return double(std::max<std::int64_t>(0, b.clamp_key(p.len_q + b.high) - b.clamp_key(b.low))) / double(p.len_k);
}
double tensor_bytes(const Problem& p) {  // the bytes of Q, K, V and O
  const Operands t = p.operands();
  const auto bytes = [](const Shape& shape, Operand one) { return double(shape.count()) * double(size_of(one.dtype)); };
  return bytes(p.q_shape(), t.q) + bytes(p.o_shape(), t.o) + share_of_keys_seen(p) * (bytes(p.k_shape(), t.k) + bytes(p.v_shape(), t.v));
}

}  // namespace

double forward_flops(const Problem& p) { return 2.0 * double(p.head_dim + p.value_dim()) * pairs_of(p); }
double backward_flops(const Problem& p) { return 2.0 * double(3 * p.head_dim + 2 * p.value_dim()) * pairs_of(p); }
static Sides sides_of(const Problem& p) { return {p.len_q, p.len_k, p.head_dim, p.batch * p.heads}; }
Cost forward_cost(const Problem& p) { return {forward_flops(p), tensor_bytes(p) + 4 * double(p.lse_shape().count()), 0, sides_of(p)}; }
Cost backward_cost(const Problem& p) {
  return {backward_flops(p), 2 * tensor_bytes(p) + 4 * double(p.lse_shape().count()), 0, sides_of(p)};
}

Cost capped(const Problem& p, Cost cost, double operations) {
  if (p.softcap != 0) cost.on_card.in_turn = operations * pairs_of(p);
  return cost;
}

std::span<const Variant> variants() { return table; }

const Variant* variant_named(std::string_view name) {
  for (const Variant& v : table)
    if (v.name == name) return &v;
  return nullptr;
}

std::string_view family_of(std::string_view wanted) {
  for (const Variant& v : table)
    if (wanted == v.name || wanted == v.family) return v.family;
  return {};
}

const Variant& choose(const Problem& p, const Device& device, std::string_view wanted, Pass last) {
  check(p);
  std::string refusals;
  for (const Variant& v : table) {
    if (!wanted.empty() && wanted != v.name && wanted != v.family) continue;
    Support s = v.supports(p, device, Pass::forward);
    if (s.ok && last == Pass::backward) s = v.supports(p, device, Pass::backward);
    if (s.ok) return v;
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", v.name, s.why);
  }
  if (refusals.empty()) refusals = fmt::format("no variant is called '{}'", wanted);
  throw Error(Code::unsupported, fmt::format("attention: nothing here serves {} on {} ({})", in_words(p), device.name, refusals));
}

Saved nothing_saved(const Problem&, Context&) { return {}; }

void no_backward(const Problem& p, const Backward&, Context&) {
  throw Error(Code::unsupported, fmt::format("attention: {} has no backward", in_words(p)));
}

namespace {

// Which families serve a problem that `wanted` does not, in words.
std::string what_serves(const Problem& p, const Device& device, std::string_view wanted) {
  for (const std::string_view family : {"flash", "plain"}) {
    if (family == wanted) continue;
    try {
      choose(p, device, family);
      return fmt::format("; {} attention serves it", family);
    } catch (const Error& e) {
      if (e.at.code != Code::unsupported) throw;
    }
  }
  return "";
}

}  // namespace

const Variant& choose_dry(const Problem& p, const Device& device, std::string_view wanted) {
  const std::string why_not = why_no_kernels(device);
  check(why_not.empty(), Code::unsupported, "attention: {}", why_not);
  try {
    return choose(p, device, wanted);
  } catch (const Error& e) {
    if (e.at.code != Code::unsupported) throw;
    throw Error(Code::unsupported, e.what() + what_serves(p, device, wanted));
  }
}

Saved make_saved(const Variant& v, const Problem& p, Context& ctx) {
  check(p);
  auto phase = ctx.arena.in_phase(Phase::saved);
  return v.make_saved(p, ctx);
}

void check(const Problem& p, const Forward& t) {
  const Operands stored = p.operands();
  check_tensor("q", t.q, p.q_shape(), stored.q.dtype);
  check_tensor("k", t.k, p.k_shape(), stored.k.dtype);
  check_tensor("v", t.v, p.v_shape(), stored.v.dtype);
  check_tensor("o", t.o, p.o_shape(), stored.o.dtype);
  check_lse("lse", t.lse, p);
}

void forward(const Variant& v, const Problem& p, const Forward& t, Context& ctx) {
  check(p);
  check(p, t);
  check(p, t.with);
  auto scratch = ctx.arena.scope();
  v.forward(p, t, ctx);
}

void backward(const Variant& v, const Problem& p, const Backward& t, Context& ctx) {
  check(p);
  const Operands stored = p.operands();
  const DType gradient = stored.o.dtype;
  check_tensor("q", t.q, p.q_shape(), stored.q.dtype);
  check_tensor("k", t.k, p.k_shape(), stored.k.dtype);
  check_tensor("v", t.v, p.v_shape(), stored.v.dtype);
  check_tensor("o", t.o, p.o_shape(), stored.o.dtype);
  check_tensor("d_o", t.d_o, p.o_shape(), gradient);
  check_tensor("dq", t.dq, p.q_shape(), gradient);
  check_tensor("dk", t.dk, p.k_shape(), gradient);
  check_tensor("dv", t.dv, p.v_shape(), gradient);
  check_lse("lse", t.lse, p);
  if (t.dlse) check_lse("dlse", t.dlse, p);
  check(p, t.with);
  if (t.dsink) {
    check(p.sink, Code::bad_argument, "attention: dsink is asked of a problem without a sink");
    check_list("dsink", t.dsink, {p.heads}, DType::f32);
  }
  if (t.turned_by) {
    check(turns_back(v, p), Code::unsupported,
          "attention: {} does not take turned_by for {}: leave it out and call rope::rotate afterwards", v.name, in_words(p));
    check(t.turned_by.dtype == DType::f32 && t.turned_by.shape.rank == 2 && t.turned_by.contiguous() &&
              t.turned_by.shape[0] >= std::max(p.len_q, p.len_k) && t.turned_by.shape[1] == p.head_dim,
          Code::bad_argument, "attention: turned_by must be fp32 [positions, {}], of at least {} positions", p.head_dim,
          std::max(p.len_q, p.len_k));
  }
  auto scratch = ctx.arena.scope();
  v.backward(p, t, ctx);
}

bool turns_back(const Variant& v, const Problem& p) { return v.turns_back && v.turns_back(p); }

Extras dry_extras(const Problem& p) {
  Extras with;
  const Operands stored = p.operands();
  if (p.sink) with.sink = Tensor(nullptr, DType::f32, {p.heads});
  if (p.alibi) with.alibi = Tensor(nullptr, DType::f32, {p.heads});
  if (p.documents) with.cu_q = with.cu_k = Tensor(nullptr, DType::i32, {p.batch, p.documents + 1});
  if (p.page) with.pages = Tensor(nullptr, DType::i32, {p.batch, p.pages_of_sequence()});
  if (stored.q.scaled == ScaledBy::head) {
    with.q_scale = Tensor(nullptr, DType::f32, {p.batch, p.heads});
    with.k_scale = with.v_scale = Tensor(nullptr, DType::f32, {p.batch, p.kv_heads});
  }
  return with;
}

std::size_t workspace_bytes(const Variant& v, const Problem& p, const Device& device, Pass pass, int workers) {
  check(p);
  Arena saved_arena, arena;
  Context saving{saved_arena, device}, ctx{arena, device};
  ctx.dry_workers = workers;
  const Operands stored = p.operands();
  const Tensor q(nullptr, stored.q.dtype, p.q_shape()), k(nullptr, stored.k.dtype, p.k_shape()), val(nullptr, stored.v.dtype, p.v_shape()),
      o(nullptr, stored.o.dtype, p.o_shape()), lse(nullptr, DType::f32, p.lse_shape());
  const Saved saved = v.make_saved(p, saving);
  const Extras with = dry_extras(p);
  if (pass == Pass::forward) {
    forward(v, p, {.q = q, .k = k, .v = val, .o = o, .lse = lse, .saved = saved, .with = with}, ctx);
  } else {
    const auto gradient = [&](const Shape& shape) { return Tensor(nullptr, stored.o.dtype, shape); };
    backward(v, p,
             {.q = q,
              .k = k,
              .v = val,
              .o = o,
              .lse = lse,
              .d_o = gradient(p.o_shape()),
              .dlse = {},
              .dq = gradient(p.q_shape()),
              .dk = gradient(p.k_shape()),
              .dv = gradient(p.v_shape()),
              .saved = saved,
              .with = with,
              .dsink = p.sink ? with.sink : Tensor()},
             ctx);
  }
  return arena.peak();
}

}  // namespace headroom::attention
