#include "ops/attention/extras.h"

#include <cmath>

#include "base/shape_text.h"

namespace headroom::attention {

void check_list(const char* name, const Tensor& t, const Shape& shape, DType dtype) {
  check(bool(t), Code::bad_argument, "attention: {} is missing, expected {} {}", name, name_of(dtype), shape_text(shape));
  check(t.shape == shape && t.dtype == dtype, Code::bad_argument, "attention: {} is {} {}, expected {} {}", name, name_of(t.dtype),
        shape_text(t.shape), name_of(dtype), shape_text(shape));
  check(t.count() == 0 || t.contiguous(), Code::bad_argument, "attention: {} must be contiguous", name);
}

namespace {

// A slope for each head: of the call, of each row of the batch, or of each document.
void check_slopes(const Problem& p, const Tensor& t) {
  const Shape of_head{p.heads}, of_row{p.batch, p.heads}, of_document{p.batch, p.documents, p.heads};
  const bool fits = t.shape == of_head || t.shape == of_row || (p.documents != 0 && t.shape == of_document);
  if (t && !fits)
    throw Error(Code::bad_argument,
                fmt::format("attention: alibi is {} {}, expected fp32 {}, or {}{}", name_of(t.dtype), shape_text(t.shape),
                            shape_text(of_head), shape_text(of_row), p.documents == 0 ? "" : ", or " + shape_text(of_document)));
  check_list("alibi", t, t ? t.shape : of_head, DType::f32);
}

}  // namespace

void check(const Problem& p, const Extras& with) {
  if (p.sink) check_list("sink", with.sink, {p.heads}, DType::f32);
  if (p.alibi) check_slopes(p, with.alibi);
  if (p.documents) {
    check_list("cu_q", with.cu_q, {p.batch, p.documents + 1}, DType::i32);
    check_list("cu_k", with.cu_k, {p.batch, p.documents + 1}, DType::i32);
  }
  if (p.page) check_list("pages", with.pages, {p.batch, p.pages_of_sequence()}, DType::i32);
  if (p.dropout != 0 && with.random) check_list("random", with.random, {4}, DType::i32);
  const Operands stored = p.operands();
  if (stored.q.scaled == ScaledBy::head) check_list("q_scale", with.q_scale, {p.batch, p.heads}, DType::f32);
  if (stored.k.scaled == ScaledBy::head) check_list("k_scale", with.k_scale, {p.batch, p.kv_heads}, DType::f32);
  if (stored.v.scaled == ScaledBy::head) check_list("v_scale", with.v_scale, {p.batch, p.kv_heads}, DType::f32);
}

namespace {

void check_borders(const char* name, const Tensor& cu, std::int64_t documents, std::int64_t len, std::int64_t b) {
  const std::int32_t* at = cu.as<std::int32_t>() + b * (documents + 1);
  check(at[0] == 0, Code::bad_argument, "attention: {}[{}] begins with {}, the first document begins at 0", name, b, at[0]);
  for (std::int64_t d = 1; d <= documents; ++d)
    check(at[d] >= at[d - 1], Code::bad_argument, "attention: {}[{}][{}] is {}, after {}: documents lie one behind another", name, b, d,
          at[d], at[d - 1]);
  check(at[documents] <= len, Code::bad_argument, "attention: {}[{}] ends at {}, and there are {} positions", name, b, at[documents], len);
}

void check_finite_slopes(const Tensor& slopes) {
  constexpr float most = 0x1p127f;  // in units of log2 it is finite too; an infinite one times a distance of 0 is no number
  const float* at = slopes.as<float>();
  for (std::int64_t i = 0; i < slopes.count(); ++i)
    check(std::abs(at[i]) <= most, Code::bad_argument, "attention: alibi has the slope {}, it must be finite, and at most 2^127", at[i]);
}

}  // namespace

void check_values(const Problem& p, const Extras& with) {
  if (p.alibi) check_finite_slopes(with.alibi);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    std::int64_t keys = p.len_k;
    if (p.documents) {
      check_borders("cu_q", with.cu_q, p.documents, p.len_q, b);
      check_borders("cu_k", with.cu_k, p.documents, p.len_k, b);
      keys = with.cu_k.as<std::int32_t>()[b * (p.documents + 1) + p.documents];
    }
    if (p.page == 0) continue;
    for (std::int64_t n = 0; n * p.page < keys; ++n) {
      const std::int32_t page = with.pages.as<std::int32_t>()[b * p.pages_of_sequence() + n];
      check(page >= 0 && page < p.pages, Code::bad_argument, "attention: pages[{}][{}] is {}, there are pages 0 to {}", b, n, page,
            p.pages - 1);
    }
  }
}

}  // namespace headroom::attention
