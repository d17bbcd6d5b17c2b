#include "ops/attention/fp8/fp8.h"

#include <algorithm>

#include "base/shape_text.h"
#include "gpu/beside.h"
#include "ops/attention/fp8/fp8_impl.h"
#include "ops/attention/row.h"
#include "ops/quantise/encode.h"

namespace headroom::attention {

namespace {

void check_stored(const char* name, const Tensor& t, const Shape& shape, DType dtype) {
  check(t.shape == shape && t.dtype == dtype && t.contiguous(), Code::bad_argument,
        "attention.to_fp8: {} is {} {}, expected {} {}, contiguous", name, name_of(t.dtype), shape_text(t.shape), name_of(dtype),
        shape_text(shape));
}

void check_read(const char* name, const Tensor& t, const Shape& shape) {
  check(t.shape == shape && (shape[3] <= 1 || t.stride[3] == 1), Code::bad_argument,
        "attention.to_fp8: {} is {}, expected {} with its last dimension contiguous", name, shape_text(t.shape), shape_text(shape));
  check(t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16, Code::bad_argument,
        "attention.to_fp8: {} is {}, expected fp32, bf16 or fp16", name, name_of(t.dtype));
}

// One head: its scale, and its numbers by put(row, dimension, code).
template <class Put>
void head_to_fp8(const Tensor& x, std::int64_t b, std::int64_t head, float& scale, Put&& put) {
  with_float(x.dtype, [&]<class T>() {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < x.shape[1]; ++i)
      for (std::int64_t d = 0; d < x.shape[3]; ++d)
        largest = std::max(largest, quantise::finite_magnitude(widen(row_of<const T>(x, b, i, head)[d])));
    scale = quantise::scale_of<e4m3>(largest);
    const float inverse = 1 / scale;
    for (std::int64_t i = 0; i < x.shape[1]; ++i)
      for (std::int64_t d = 0; d < x.shape[3]; ++d)
        put(i, d, quantise::encode<e4m3>(widen(row_of<const T>(x, b, i, head)[d]), inverse).bits);
  });
}

void on_cpu(const Problem& p, const ToFp8& t, Context& ctx) {
  const auto rows_to_fp8 = [&](const Tensor& x, const Tensor& x8, const Tensor& scale, std::int64_t heads, std::int64_t at) {
    const std::int64_t b = at / heads, head = at % heads;
    head_to_fp8(x, b, head, scale.as<float>()[at], [&](std::int64_t i, std::int64_t d, std::uint8_t code) {
      x8.as<std::uint8_t>()[((b * x.shape[1] + i) * heads + head) * x.shape[3] + d] = code;
    });
  };
  const std::int64_t of_q = p.batch * p.heads, of_k = p.batch * p.kv_heads, in_head = p.v_shape()[2] * p.v_shape()[3];
  ctx.share(of_q + 2 * of_k, [&](std::int64_t piece, int) {
    if (piece < of_q) return rows_to_fp8(t.q, t.q8, t.q_scale, p.heads, piece);
    if (piece < of_q + of_k) return rows_to_fp8(t.k, t.k8, t.k_scale, p.kv_heads, piece - of_q);
    const std::int64_t at = piece - of_q - of_k;
    std::uint8_t* const to = t.v8.as<std::uint8_t>() + at * in_head;
    std::fill_n(to, in_head, std::uint8_t(0));
    head_to_fp8(t.v, at / p.kv_heads, at % p.kv_heads, t.v_scale.as<float>()[at],
                [&](std::int64_t key, std::int64_t d, std::uint8_t code) { to[value_at(key, d, p.value_dim())] = code; });
  });
}

}  // namespace

Problem in_16_bits(const Problem& in_fp8) {
  Problem p = in_fp8;
  p.precision = {DType::bf16};
  return p;
}

void to_fp8(const Problem& p, const ToFp8& t, Context& ctx) {
  check(p);
  check(p.precision.dtype == DType::e4m3 && p.page == 0, Code::bad_argument, "attention.to_fp8: the problem must be of fp8 and not paged");
  const Problem read = in_16_bits(p);
  check_read("q", t.q, read.q_shape());
  check_read("k", t.k, read.k_shape());
  check_read("v", t.v, read.v_shape());
  check_stored("q8", t.q8, p.q_shape(), DType::e4m3);
  check_stored("k8", t.k8, p.k_shape(), DType::e4m3);
  check_stored("v8", t.v8, p.v_shape(), DType::e4m3);
  check_stored("q_scale", t.q_scale, {p.batch, p.heads}, DType::f32);
  check_stored("k_scale", t.k_scale, {p.batch, p.kv_heads}, DType::f32);
  check_stored("v_scale", t.v_scale, {p.batch, p.kv_heads}, DType::f32);
  const double bytes = double(t.q.bytes() + t.k.bytes() + t.v.bytes());
  const auto op =
      ctx.note("attention.to_fp8", p.precision,
               {3.0 * double(t.q.count() + t.k.count() + t.v.count()), 2 * bytes + double(t.q8.bytes() + t.k8.bytes() + t.v8.bytes())});
  auto scratch = ctx.arena.scope();
  if (ctx.on_gpu()) {
    const std::int64_t scales = p.batch * (p.heads + 2 * p.kv_heads);
    const Tensor maxima = ctx.arena.make("attention.maxima", DType::u32, {std::max<std::int64_t>(scales, 1)});
    if (!ctx.dry()) beside::call<to_fp8_cuda>(p, t, maxima, ctx);
  } else if (!ctx.dry()) {
    on_cpu(p, t, ctx);
  }
}

}  // namespace headroom::attention
