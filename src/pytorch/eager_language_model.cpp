// Operators of a language model: rotations' halves, the embedding, losses, fused attention.
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

namespace {
constexpr std::int64_t torchtunes_chunks = 8;

std::int64_t ligers_rows(std::int64_t rows, std::int64_t vocab, std::int64_t width) {  // rows of one part: about as many bytes as the input
  const std::int64_t parts = (vocab + width - 1) / width, least = (rows + parts - 1) / parts;
  std::int64_t n = 1;
  while (n < least) n *= 2;
  return n;
}
}  // namespace

Value Eager::chunked_loss(const std::string& name, const Value& h_given, const Parameter& head, Chunks how) {
  const DType low = autocast_.value_or(h_given.dtype), held = head.value.dtype;
  const std::int64_t width = last(h_given.shape), rows = h_given.shape.count() / width, vocab = head.value.shape[0];
  const std::int64_t each = how == Chunks::fused ? ligers_rows(rows, vocab, width) : (rows + torchtunes_chunks - 1) / torchtunes_chunks;
  const Value h = h_given.dtype == low ? h_given : cast(name + " input", h_given, low);
  const Value copy = held == low ? head.value.saved() : fresh("head as " + std::string(name_of(low)), low, head.value.shape);
  if (held != low) ran(Engine::copy(held, low), copy, head.value);
  const bool trains = bool(head.value.node);
  struct Part {
    std::int64_t rows = 0;
    Value logits{}, log_p{}, sums{};
  };
  struct All {
    std::vector<Part> parts;
    Value dh, dw, h, copy;
  };
  const auto part_products = [this, trains, low, width, vocab](std::int64_t of_rows, bool backward) {
    if (!backward) return multiplied(vocab, of_rows, width, low, 1);
    if (trains) multiplied(width, vocab, of_rows, low, 2);
    multiplied(width, of_rows, vocab, low, 0);
  };
  auto all = std::make_shared<All>();
  for (std::int64_t begin = 0; begin < rows; begin += each) all->parts.push_back({.rows = std::min(each, rows - begin)});
  if (how == Chunks::fused) {
    all->dh = fresh("gradient of the head's input", low, h.shape);
    if (trains) all->dw = fresh("gradient of the head", held, head.value.shape);
    const Value losses = fresh("losses", DType::f32, {rows});
    for (const Part& p : all->parts) {
      const Value logits = fresh("logits of one part", low, {p.rows, vocab});
      const Value target = fresh("gradient of one part's input", low, {p.rows, width});
      touch_workspace();
      part_products(p.rows, false);
      ran(Kernel::other, logits, logits, logits);  // Liger's kernel reads them twice and leaves their gradient in their place
      multiplied(width, p.rows, vocab, low, 0);
      ran(Kernel::pointwise, target, target);
      if (!trains) continue;
      const Value more = fresh("one part's gradient of the head", low, head.value.shape);
      const Value wide = low == DType::f32 ? Value{} : fresh("the same in FP32", DType::f32, head.value.shape);
      multiplied(width, vocab, p.rows, low, 2);
      if (wide) ran(Kernel::converting, wide, more);
      ran(between(held, DType::f32), all->dw, all->dw, wide ? wide : more);
    }
  } else {
    std::vector<Value> logits;  // all of them are made before the loss of the first
    for (const Part& p : all->parts) {
      logits.push_back(fresh("logits of one part", low, {p.rows, vocab})), touch_workspace();
      part_products(p.rows, false);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) {
      Part& p = all->parts[i];
      if (how == Chunks::compiled) {
        p.logits = logits[i];
        p.sums = fresh("rows' maxima and sums", DType::f32, {2, p.rows});
      } else {
        const Value wide = low == DType::f32 ? Value{} : fresh("logits of one part as fp32", DType::f32, {p.rows, vocab});
        p.log_p = fresh("log-probabilities of one part", DType::f32, {p.rows, vocab});
        if (wide) ran(Kernel::converting, wide, logits[i]);
        softmax_ran(p.rows, vocab, DType::f32, false);
      }
    }
    if (trains) all->h = h.saved();
    all->copy = copy.saved();
  }
  Value loss = fresh(name, DType::f32, {1});
  return record(name, loss, {h, head.value},
                [this, all, how, trains, low, held, width, vocab, part_products, shape = h.shape, of = head.value.shape](const Value&) {
                  if (how == Chunks::fused) return Node::Gradients{std::move(all->dh), std::move(all->dw)};
                  Value dw;
                  std::vector<Value> dx;
                  for (auto p = all->parts.rbegin(); p != all->parts.rend(); ++p) {
                    const Shape s{p->rows, vocab};
                    Value d;
                    if (how == Chunks::compiled) {
                      d = make("d(logits of one part)", low, s);
                      p->logits = {}, p->sums = {};
                    } else {
                      Value wide;
                      {
                        const Value of_log_p = make("d(log-probabilities of one part)", DType::f32, s);
                        wide = make("d(logits of one part) as fp32", DType::f32, s);
                        ran(Kernel::pointwise, of_log_p);
                        softmax_ran(p->rows, vocab, DType::f32, true);
                      }
                      p->log_p = {};
                      const bool narrows = low != DType::f32;
                      d = narrows ? make("d(logits of one part)", low, s) : wide;
                      if (narrows) ran(Kernel::pointwise, d, wide);
                    }
                    part_products(p->rows, true);
                    if (trains) {
                      Value more = make("one part's gradient of the head", low, of);
                      if (dw)
                        ran(Kernel::pointwise, dw, dw, more);
                      else
                        dw = std::move(more);
                    }
                    dx.push_back(make("gradient of one part's input", low, {p->rows, width}));
                    touch_workspace();
                  }
                  all->h = {}, all->copy = {};
                  Value dh = make("gradient of the head's input", low, shape);
                  dx.clear();
                  if (dw && low != held) dw = make("gradient of the head", held, of);
                  return Node::Gradients{std::move(dh), std::move(dw)};
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
