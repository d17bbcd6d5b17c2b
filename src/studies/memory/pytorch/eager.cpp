#include "studies/memory/pytorch/eager.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headroom::studies::pytorch {

namespace {

Shape swapped(Shape s) {
  std::swap(s.dim[std::size_t(s.rank - 1)], s.dim[std::size_t(s.rank - 2)]);
  return s;
}
Shape with_last(Shape s, std::int64_t n) {
  s.dim[std::size_t(s.rank - 1)] = n;
  return s;
}
std::int64_t last(const Shape& s) { return s[s.rank - 1]; }
Value view_of(Value v, Shape s, Layout layout) {
  v.shape = s;
  v.layout = layout;
  v.node = nullptr;
  return v;
}

}  // namespace

void Eager::touch_workspace() {
  auto& mine = in_backward_ ? backward_workspace_ : forward_workspace_;
  if (!mine && workspace_bytes_ > 0)
    mine = memory().make_bytes(in_backward_ ? "cuBLAS workspace, autograd's thread" : "cuBLAS workspace", workspace_bytes_);
}

void Eager::backward(Value root, Value gradient) {
  in_backward_ = true;
  in_block(-1);
  run_backward(std::move(root), std::move(gradient));
  in_backward_ = false;
}

Value Eager::when_backward(const Value& x, std::function<void()> act) {
  return record("hook", view_of(x, x.shape, x.layout), {x}, [act = std::move(act)](const Value& g) {
    act();
    return Node::Gradients{g};
  });
}

Value Eager::checkpointed(const std::string& name, const Value& x, const Body& f, Pass pass, Keeps keeps) {
  if (!keeps_history()) return f(x, Pass::first);
  const auto chosen = keeps == Keeps::selected ? std::make_shared<Selected>() : nullptr;
  const auto before = std::exchange(selected_, chosen);
  keep_history(false);
  Value out = pass == Pass::again ? unmade(x.dtype, x.shape) : f(x, Pass::first);
  keep_history(true);
  selected_ = before;
  auto node = std::make_shared<Node>();
  node->name = name;
  node->age = next_age();
  node->sources = {x.node};
  node->backward = [this, x = keeps == Keeps::input_on_host ? Value{nullptr, x.dtype, x.shape, Layout::fresh, nullptr} : x.saved(),
                    wanted = bool(x.node), f, autocast = autocast_, chosen](const Value& g) {
    const auto autocast_before = std::exchange(autocast_, autocast);
    auto casts_before = std::exchange(cast_parameters_, {});
    Value dx;
    Value start = x ? x : make("a checkpoint's input, back from the host", x.dtype, x.shape);
    if (wanted) {
      start.node = std::make_shared<Node>();
      start.node->name = "a checkpoint's input";
      start.node->age = leaf_age;
      start.node->leaf = true;
      start.node->backward = [&dx](const Value& d) {
        dx = d;
        return Node::Gradients{};
      };
    }
    if (chosen) chosen->again = true, chosen->products = 0;
    const auto selected_before = std::exchange(selected_, chosen);
    Value again = f(start, Pass::again);
    selected_ = selected_before;
    autocast_ = autocast_before;
    cast_parameters_ = std::move(casts_before);
    start = {};
    run_backward(std::move(again), g);
    return Node::Gradients{dx};
  };
  out.node = std::move(node);
  return out;
}

Value* Eager::kept_before() {
  if (!selected_ || !selected_->again || selected_->next >= selected_->kept.size()) return nullptr;
  return &selected_->kept[selected_->next++];
}
void Eager::keep_selected(const std::vector<Value>& out) {
  if (!selected_ || selected_->again) return;
  for (const Value& v : out) selected_->kept.push_back(v.saved());
}

// ---- views, copies and casts

Value Eager::transposed(const Value& x) {
  return record("transpose", view_of(x, swapped(x.shape), Layout::transposed), {x},
                [](const Value& g) { return Node::Gradients{view_of(g, swapped(g.shape), Layout::transposed)}; });
}

Value Eager::copied(const std::string& name, const Value& x) {
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::strided, out, x);
  return record(name, out, {x}, [](const Value& g) { return Node::Gradients{view_of(g, g.shape, Layout::view)}; });
}

Value Eager::cast(const std::string& name, const Value& x, DType to) {
  if (x.dtype == to) return x;
  const Value out = fresh(name, to, x.shape);
  ran(copy(x.dtype, to), out, x);
  return record(name, out, {x}, [this, from = x.dtype, name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ")", from, g.shape);
    ran(copy(g.dtype, from), d, g);
    return Node::Gradients{d};
  });
}

Value Eager::operand(const std::string& name, const Value& v, DType to) {
  if (v.dtype == to) return v;
  if (!v.node || !v.node->leaf) return cast(name + " as " + std::string(name_of(to)), v, to);
  Value& kept = cast_parameters_[v.node.get()];
  if (!kept) kept = cast(name + " as " + std::string(name_of(to)), v, to);
  return kept;
}

Value Eager::heads_apart(const Value& x, Shape apart) {
  return record("heads apart", view_of(x, apart, Layout::transposed), {x}, [this, back = x.shape](const Value& g) {
    const Value d = make("gradient, heads joined", g.dtype, back);
    ran(Kernel::strided, d, g);
    return Node::Gradients{d};
  });
}

Value Eager::heads_joined(const std::string& name, const Value& x, Shape joined) {
  const Value out = fresh(name, x.dtype, joined);
  ran(Kernel::strided, out, x);
  return record(name, out, {x}, [back = x.shape](const Value& g) { return Node::Gradients{view_of(g, back, Layout::transposed)}; });
}

Value Eager::heads_in_place(const Value& x, Shape joined) {
  return record("heads joined", view_of(x, joined, Layout::view), {x},
                [back = x.shape](const Value& g) { return Node::Gradients{view_of(g, back, Layout::transposed)}; });
}

Value Eager::repeated(const std::string& name, const Value& x, std::int64_t times) {
  if (times == 1) return x;
  Shape s = x.shape;
  s.dim[1] *= times;
  const Value out = fresh(name, x.dtype, s);
  ran(Kernel::strided, out, x);
  return record(name, out, {x}, [this, name = full(name), back = x.shape](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, back);
    ran(Kernel::reducing, g, d);
    return Node::Gradients{d};
  });
}

// ---- products

Value Eager::matmul(const std::string& name, Value a, Value b) {
  if (autocast_) {
    a = operand(name + " left", a, *autocast_);
    b = operand(name + " right", b, *autocast_);
  }
  Value out = fresh(name, a.dtype, with_last(a.shape, last(b.shape)));
  touch_workspace();
  const std::int64_t rows = a.shape[a.shape.rank - 2], inner = last(a.shape), columns = last(b.shape);
  const std::int64_t batch = out.shape.count() / std::max<std::int64_t>(rows * columns, 1);
  multiplied(columns, rows, inner, a.dtype, b.layout == Layout::transposed, batch);
  return record(name, out, {a, b}, [this, rows, inner, columns, batch, a = a.saved(), b = b.saved(), name = full(name)](const Value& g) {
    // Batches of a transposed gradient are put in order once; a broadcast one is written out for each product.
    const Value once = g.layout == Layout::transposed ? make("d(" + name + ") in order", g.dtype, g.shape) : Value{};
    if (once) ran(Kernel::strided, once, g);
    Node::Gradients d(2);
    for (int side : {1, 0}) {
      const Value& operand = side == 0 ? a : b;
      d[std::size_t(side)] = make(fmt::format("d({} {})", name, side == 0 ? "left" : "right"), operand.dtype, operand.shape);
      const Value written_out = g.layout == Layout::broadcast ? make("d(" + name + ") written out", g.dtype, g.shape) : Value{};
      if (written_out) ran(Kernel::strided, written_out);
      touch_workspace();
      if (side == 0)
        multiplied(inner, rows, columns, a.dtype, 1, batch);
      else
        multiplied(columns, inner, rows, a.dtype, 2, batch);
    }
    return d;
  });
}

Value Eager::linear(const std::string& name, const Value& x_given, const Parameter& weight, Pass pass) {
  const Value w = autocast_ ? operand(name + " weight", weight.value, *autocast_) : weight.value;
  const Value x = autocast_ ? operand(name + " input", x_given, *autocast_) : x_given;
  const Shape to = with_last(x.shape, w.shape[0]);
  const bool keeps = selected_ && ++selected_->products % 2 == 1;
  Value* const before = keeps && pass == Pass::first ? kept_before() : nullptr;
  Value out = before ? std::move(*before) : pass == Pass::again ? unmade(x.dtype, to) : fresh(name, x.dtype, to);
  if (keeps) keep_selected({out});
  touch_workspace();
  const bool dx = bool(x.node), dw = bool(w.node);  // each operand is kept for the other's gradient
  const std::int64_t in = w.shape[1], to_columns = w.shape[0], rows = x.shape.count() / in;
  if (!before && pass != Pass::again) multiplied(to_columns, rows, in, x.dtype, 1);
  return record(name, out, {x, w},
                [this, in, to_columns, rows, kept_x = dw ? x.saved() : Value{}, kept_w = dx ? w.saved() : Value{}, x_type = x.dtype,
                 x_shape = x.shape, w_type = w.dtype, w_shape = w.shape, dx, dw, name = full(name)](const Value&) {
                  Node::Gradients d(2);
                  if (dw) d[1] = make("d(" + name + " weight)", w_type, w_shape);
                  if (dx) d[0] = view_of(make("d(" + name + " input)", x_type, x_shape), x_shape, Layout::view);
                  touch_workspace();
                  if (dw) multiplied(in, to_columns, rows, w_type, 2);
                  if (dx) multiplied(in, rows, to_columns, x_type, 0);
                  return d;
                });
}

Value Eager::linear_4bit(const std::string& name, const Value& x_given, const Value& packed, Shape weight, DType compute, Pass pass) {
  const Value x = cast(name + " input", x_given, compute);
  const auto written_out = [this, name = full(name), weight, compute] {
    const Value scales = make(name + " scales, written out", DType::f32, {(weight.count() + 63) / 64});
    const Value whole = make(name + " weight, written out", compute, weight);
    ran(Kernel::other, scales, scales);
    ran(Kernel::other, whole, scales);  // and half a byte a number
    return whole;
  };
  const std::int64_t in = weight[1], to_columns = weight[0], rows = x_given.shape.count() / in;
  const Shape to = with_last(x.shape, weight[0]);
  Value out = pass == Pass::again ? unmade(compute, to) : fresh(name, compute, to);
  { const Value whole = written_out(); }
  touch_workspace();
  if (pass != Pass::again) multiplied(to_columns, rows, in, compute, 1);
  return record(
      name, out, {x},
      [this, in, to_columns, rows, packed = packed.saved(), shape = x.shape, compute, written_out, name = full(name)](const Value&) {
        const Value whole = written_out();
        touch_workspace();
        multiplied(in, rows, to_columns, compute, 0);
        return Node::Gradients{view_of(make("d(" + name + " input)", compute, shape), shape, Layout::view)};
      });
}

// A product adds the bias where it writes; what is left is the bias's own gradient.
Value Eager::biased(const std::string& name, const Value& x, const Parameter& bias) {
  return record(name, view_of(x, x.shape, x.layout), {x, bias.value},
                [this, type = bias.value.dtype, shape = bias.value.shape, name = full(name)](const Value& g) {
                  const Value d = make("d(" + name + " bias)", type, shape);
                  ran(Kernel::reducing, g, d);
                  return Node::Gradients{g, d};
                });
}

// ---- elementwise

Value Eager::add(const std::string& name, const Value& a, const Value& b, Pass pass) {
  const DType wide = size_of(a.dtype) >= size_of(b.dtype) ? a.dtype : b.dtype;
  const Value out = pass == Pass::again ? unmade(wide, a.shape) : fresh(name, wide, a.shape);
  if (pass != Pass::again) ran(between(a.dtype, b.dtype), out, a, b);
  return record(name, out, {a, b}, [this, ta = a.dtype, tb = b.dtype, name = full(name)](const Value& g) {
    return Node::Gradients{as_type("d(" + name + ") cast", g, ta), as_type("d(" + name + ") cast", g, tb)};
  });
}

Value Eager::subtract(const std::string& name, const Value& a, const Value& b) {
  const Value out = fresh(name, a.dtype, a.shape);
  ran(a.shape == b.shape ? between(a.dtype, b.dtype) : Kernel::strided, out, a, b);
  return record(name, out, {a, b}, [this, column = b.shape, name = full(name)](const Value& g) {
    Value negated = make("-d(" + name + ")", g.dtype, g.shape);
    ran(g.layout == Layout::view ? Kernel::strided : Kernel::pointwise, negated, g);
    if (column == g.shape) return Node::Gradients{g, negated};
    const Value summed = make("d(" + name + ") summed", g.dtype, column);
    ran(Kernel::reducing, negated, summed);
    return Node::Gradients{g, summed};
  });
}

Value Eager::multiply(const std::string& name, const Value& a, const Value& b) {
  const bool wants_a = bool(a.node), wants_b = bool(b.node);
  const Value out = fresh(name, a.dtype, a.shape);
  ran(a.shape == b.shape ? between(a.dtype, b.dtype) : Kernel::strided, out, a, b);
  return record(name, out, {a, b},
                [this, kept_a = wants_b ? a.saved() : Value{}, kept_b = wants_a ? b.saved() : Value{}, b_type = b.dtype, b_shape = b.shape,
                 wants_a, wants_b, name = full(name)](const Value& g) {
                  const bool whole = b_shape == g.shape, row = b_shape.rank == 1;
                  Value da, db;
                  if (wants_b) db = make("d(" + name + ") × left", g.dtype, g.shape), ran(Kernel::pointwise, db, g, kept_a);
                  if (wants_a)
                    da = make("d(" + name + ") × right", g.dtype, g.shape), ran(whole ? Kernel::pointwise : Kernel::strided, da, g, kept_b);
                  if (wants_b && !whole) {
                    const Value products = db;
                    db = make(row ? "d(" + name + " weight)" : "d(" + name + ") summed", b_type, b_shape);
                    ran(Kernel::reducing, products, db);
                  }
                  return Node::Gradients{da, db};
                });
}

// d(a/b) by b is −g · ((a/b)/b): three temporaries and the result, all as large as a, before a's own gradient is made.
Value Eager::divide(const std::string& name, const Value& a, const Value& b) {
  const Value out = fresh(name, a.dtype, a.shape);
  ran(Kernel::strided, out, a);
  return record(name, out, {a, b}, [this, a = a.saved(), b = b.saved(), name = full(name)](const Value& g) {
    Value by_divisor;
    {
      const Value quotient = make("left/right", a.dtype, a.shape), twice = make("left/right/right", a.dtype, a.shape);
      const Value negated = make("-d(" + name + ")", g.dtype, g.shape);
      by_divisor = make("d(" + name + " right), not yet summed", g.dtype, g.shape);
      ran(Kernel::strided, quotient, a);
      ran(Kernel::strided, twice, quotient);
      ran(Kernel::pointwise, negated, g);
      ran(Kernel::pointwise, by_divisor, negated, twice);
    }
    Value da = make("d(" + name + " left)", g.dtype, g.shape);
    ran(Kernel::strided, da, g);
    const Value db = make("d(" + name + " right)", b.dtype, b.shape);
    ran(Kernel::reducing, by_divisor, db);
    return Node::Gradients{da, db};
  });
}

Value Eager::scaled(const std::string& name, const Value& x) {
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ") scaled", g.dtype, g.shape);
    ran(Kernel::pointwise, d, g);
    return Node::Gradients{d};
  });
}

Value Eager::shifted(const std::string& name, const Value& x) {
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [](const Value& g) { return Node::Gradients{g}; });
}

Value Eager::constant_times(const std::string& name, const Value& x, const Value& constant, DType result) {
  const Value out = fresh(name, result, x.shape);
  ran(x.dtype == constant.dtype ? Kernel::strided : Kernel::strided_converting, out, x);
  return record(name, out, {x}, [this, constant = constant.saved(), type = x.dtype, name = full(name)](const Value& g) {
    const Value product = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::strided, product, g);
    return Node::Gradients{as_type("d(" + name + ") cast", product, type)};
  });
}

Value Eager::where(const std::string& name, const Value& mask, const Value& x) {
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::strided, out, x);
  return record(name, out, {x}, [this, mask = mask.saved(), name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::strided, d, g);
    return Node::Gradients{d};
  });
}

// Autocast runs exp, sum and softmax in FP32.
Value Eager::exp(const std::string& name, const Value& given) {
  const Value x = autocast_ ? cast(name + " input as fp32", given, DType::f32) : given;
  Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, out = out.saved(), name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, d, g, out);
    return Node::Gradients{d};
  });
}

Value Eager::sigmoid(const std::string& name, const Value& x) {
  Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, out = out.saved(), name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, d, g, out);
    return Node::Gradients{d};
  });
}

Value Eager::silu(const std::string& name, const Value& x) {
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, x = x.saved(), name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, d, g, x);
    return Node::Gradients{d};
  });
}

Value Eager::square(const std::string& name, const Value& x) {  // g · (2 · x¹)
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, x = x.saved(), name = full(name)](const Value& g) {
    const Value power = make("x to the 1", x.dtype, x.shape), twice = make("2 x", x.dtype, x.shape);
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, power, x);
    ran(Kernel::pointwise, twice, power);
    ran(Kernel::pointwise, d, g, twice);
    return Node::Gradients{d};
  });
}

Value Eager::reciprocal_root(const std::string& name, const Value& x) {  // −½ · g · y³
  Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, out = out.saved(), name = full(name)](const Value& g) {
    const Value half = make("-g/2", g.dtype, g.shape), cube = make("y cubed", g.dtype, g.shape);
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, half, g);
    ran(Kernel::pointwise, cube, out);
    ran(Kernel::pointwise, d, half, cube);
    return Node::Gradients{d};
  });
}

Value Eager::rms_norm(const std::string& name, const Value& x, const Parameter& weight) {
  const Value out = fresh(name, x.dtype, x.shape), root = fresh(name + " 1/rms", DType::f32, with_last(x.shape, 1));
  ran(Kernel::norm, out, x);
  return record(name, out, {x, weight.value}, [this, x = x.saved(), root, w = weight.value.saved(), name = full(name)](const Value& g) {
    Node::Gradients d{make("d(" + name + " input)", x.dtype, x.shape), make("d(" + name + " weight)", w.dtype, w.shape)};
    ran(Kernel::norm_backward, d[0], x, g);
    ran(Kernel::norm_weights, x, g);
    return d;
  });
}

// ---- rows

Value Eager::row_maximum(const std::string& name, const Value& x) {
  Value out = fresh(name, x.dtype, with_last(x.shape, 1));
  Value indices = fresh(name + " indices", DType::i64, out.shape);
  ran(Kernel::reducing, x, out, indices);
  return record(name, out, {x}, [this, indices, type = x.dtype, shape = x.shape, name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ") scattered", type, shape);
    ran(Kernel::pointwise, d);
    ran(Kernel::other, g, indices);
    return Node::Gradients{d};
  });
}

Value Eager::row_sum(const std::string& name, const Value& given) {
  const Value x = autocast_ ? cast(name + " input as fp32", given, DType::f32) : given;
  const Value out = fresh(name, x.dtype, with_last(x.shape, 1));
  ran(Kernel::reducing, x, out);
  return record(name, out, {x}, [shape = x.shape](const Value& g) { return Node::Gradients{view_of(g, shape, Layout::broadcast)}; });
}

Value Eager::row_mean(const std::string& name, const Value& x) {
  const Value out = fresh(name, x.dtype, with_last(x.shape, 1));
  ran(Kernel::reducing, x, out);
  return record(name, out, {x}, [this, shape = x.shape, name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ") spread", g.dtype, shape);
    ran(Kernel::strided, d, g);
    return Node::Gradients{d};
  });
}

Value Eager::sum(const std::string& name, const Value& x) {
  const Value out = fresh(name, x.dtype, {1});
  ran(Kernel::reducing, x, out);
  return record(name, out, {x}, [shape = x.shape](const Value& g) { return Node::Gradients{view_of(g, shape, Layout::broadcast)}; });
}

Value Eager::softmax(const std::string& name, Value x) {  // backward: grad · output, then the rows' sums of it
  if (autocast_) x = cast(name + " input as fp32", x, DType::f32);
  Value out = fresh(name, x.dtype, x.shape);
  const std::int64_t columns = last(x.shape), rows = x.shape.count() / columns;
  softmax_ran(rows, columns, x.dtype, false);
  return record(name, out, {x}, [this, rows, columns, out = out.saved(), name = full(name)](const Value& g) {
    Value d;
    const Value product = make("d(" + name + ") · output", g.dtype, g.shape);
    d = make("d(" + name + " input)", g.dtype, g.shape);
    ran(Kernel::pointwise, product, g, out);
    softmax_ran(rows, columns, g.dtype, true);
    return Node::Gradients{d};
  });
}

// ---- the language model's own

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

std::int64_t ligers_rows(std::int64_t rows, std::int64_t vocab, std::int64_t width) {  // of one part: about as many bytes as the input
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
Value Eager::fused_attention(const std::string& name, Value q, Value k, Value v) {
  if (autocast_) {
    q = operand(name + " q", q, *autocast_);
    k = operand(name + " k", k, *autocast_);
    v = operand(name + " v", v, *autocast_);
  }
  const bool small = size_of(q.dtype) == 2;
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
  return record(
      name, out, {q, k, v},
      [this, small, q = q.saved(), k = k.saved(), v = v.saved(), out = out.saved(), lse, seed, offset, name = full(name)](const Value& g) {
        const Value given = g.layout == Layout::broadcast ? make("d(" + name + ") written out", g.dtype, g.shape) : Value{};
        Node::Gradients d{make("d(" + name + " q)", q.dtype, q.shape), make("d(" + name + " k)", k.dtype, k.shape),
                          make("d(" + name + " v)", v.dtype, v.shape)};
        const auto up = [&](std::int64_t n) { return small ? n : (n + 63) / 64 * 64; };
        const Value accumulator = make("dQ in FP32", DType::f32, {q.shape[0], q.shape[1], up(q.shape[2]), up(q.shape[3])});
        const Value delta = make("row sums of dO·O", DType::f32, lse.shape);
        launched([&](Launches& to) { to.attention(q.shape, k.shape[2], q.dtype, true); });
        return d;
      });
}

}  // namespace headroom::studies::pytorch
