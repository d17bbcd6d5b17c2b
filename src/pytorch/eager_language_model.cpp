// Operators of a language model: rotations' halves, the embedding, cross-entropy, fused attention.
#include <algorithm>
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

Value Eager::every_second(const Value& x) {
  return record("slice", view_of(x, with_last(x.shape, last(x.shape) / 2), Layout::view), {x},
                [this, x_type = x.dtype, shape = x.shape](const Value& g) {
                  const Value d = make("gradient of a slice, zeros elsewhere", x_type, shape);
                  ran(Kernel::pointwise, d);
                  ran(Kernel::strided, g, g);
                  return Node::Gradients{d};
                });
}

Value Eager::stacked(const std::string& name, const Value& a, const Value& b) {
  const Value out = fresh(name, a.dtype, with_last(a.shape, 2 * last(a.shape)));
  for (const Value* side : {&a, &b}) ran(Kernel::strided, *side, *side);
  return record(name, out, {a, b}, [half = a.shape](const Value& g) {
    return Node::Gradients{view_of(g, half, Layout::view), view_of(g, half, Layout::view)};
  });
}

Value Eager::embedding(const std::string& name, const Parameter& table, Shape tokens, std::int64_t width) {
  Value out = fresh(name, table.value.dtype, {tokens[0], tokens[1], width});
  ran(Kernel::other, out, out);
  return record(name, out, {table.value},
                [this, tokens, shape = table.value.shape, type = table.value.dtype, name = full(name)](const Value&) {
                  launched([&](Launches& to) { to.embedding_gradient(tokens.count(), shape[0], shape[1], type); });
                  return Node::Gradients{make("d(" + name + " weight)", type, shape)};
                });
}

// log_softmax keeps its result. Autocast runs the loss itself in FP32, on a copy that is kept as well.
Value Eager::cross_entropy(const std::string& name, const Value& logits) {
  Value out = fresh(name + " log-probabilities", logits.dtype, logits.shape);
  const std::int64_t columns = last(logits.shape), rows = logits.shape.count() / columns;
  softmax_ran(rows, columns, logits.dtype, false);
  Value log_p = record(name + " log_softmax", out, {logits}, [this, rows, columns, out = out.saved(), name](const Value& g) {
    softmax_ran(rows, columns, g.dtype, true);
    return Node::Gradients{make("d(logits)", g.dtype, g.shape)};
  });
  if (autocast_) log_p = cast(name + " log-probabilities as fp32", log_p, DType::f32);
  Value weight = fresh(name + " weight", DType::f32, {1});
  const Value loss = fresh(name, DType::f32, {1});
  ran(Kernel::other, loss);
  return record(name, loss, {log_p}, [this, log_p = log_p.saved(), weight](const Value& g) {
    const Value d = make("d(log-probabilities)", log_p.dtype, log_p.shape);
    ran(Kernel::pointwise, g);
    ran(Kernel::pointwise, d);
    ran(Kernel::other, g);
    return Node::Gradients{d};
  });
}

// Keeps the inputs, the output and the log-sum-exp. Backward needs an FP32 accumulator of dQ and one number per row; the FP32
// (memory-efficient) kernel pads its accumulator to 64 × 64 tiles.
Value Eager::fused_attention(const std::string& name, Value q, Value k, Value v, const Value& mask) {
  if (autocast_) {
    q = operand(name + " q", q, *autocast_);
    k = operand(name + " k", k, *autocast_);
    v = operand(name + " v", v, *autocast_);
  }
  const bool small = size_of(q.dtype) == 2;
  const Value written_out = mask ? fresh(name + " mask", q.dtype, {q.shape[0], 1, q.shape[2], k.shape[2]}) : Value{};
  const Shape rows{q.shape[0], q.shape[1], q.shape[2]};
  bool made_again = true;
  const auto once = [&](const char* what, DType t, Shape s) {
    Value* const before = kept_before();
    if (before) made_again = false;
    Value made = before ? std::move(*before) : fresh(name + what, t, s);
    keep_selected({made});
    return made;
  };
  Value out = once(" output", q.dtype, with_last(q.shape, last(v.shape)));
  Value lse = once(" log-sum-exp", DType::f32, rows);
  Value seed, offset;
  if (small) {
    seed = once(" dropout seed", DType::i64, {1});
    offset = once(" dropout offset", DType::i64, {1});
  }
  if (made_again) launched([&](Launches& to) { to.attention(q.shape, k.shape[2], q.dtype, false); });
  return record(name, out, {q, k, v},
                [this, small, written_out, q = q.saved(), k = k.saved(), v = v.saved(), out = out.saved(), lse, seed, offset,
                 name = full(name)](const Value& g) {
                  const Value given = g.layout == Layout::broadcast ? make("d(" + name + ") written out", g.dtype, g.shape) : Value{};
                  Node::Gradients d{make("d(" + name + " q)", q.dtype, q.shape), make("d(" + name + " k)", k.dtype, k.shape),
                                    make("d(" + name + " v)", v.dtype, v.shape)};
                  const bool shared = k.shape[1] < q.shape[1];  // each query head's own gradients of keys and values are added up
                  const Value dk = shared ? make("dK of each query head", k.dtype, q.shape) : Value{},
                              dv = shared ? make("dV of each query head", v.dtype, q.shape) : Value{};
                  const auto up = [&](std::int64_t n) { return small ? n : (n + 63) / 64 * 64; };
                  const Value accumulator = make("dQ in FP32", DType::f32, {q.shape[0], q.shape[1], up(q.shape[2]), up(q.shape[3])});
                  const Value delta = make("row sums of dO·O", DType::f32, lse.shape);
                  launched([&](Launches& to) { to.attention(q.shape, k.shape[2], q.dtype, true); });
                  return d;
                });
}

}  // namespace headroom::pytorch
