#include "pytorch/eager.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pytorch/views.h"

namespace headroom::pytorch {

void Eager::touch_workspace() {
  auto& mine = in_backward_ ? backward_workspace_ : forward_workspace_;
  if (!mine && workspace_bytes_ > 0)
    mine = memory().make_bytes(in_backward_ ? "cuBLAS workspace, autograd's thread" : "cuBLAS workspace", workspace_bytes_);
}

void Eager::touch_bias_workspace() {
  constexpr std::uint64_t bytes = 1 << 20;  // as PyTorch 2.11 asks for on an H200
  touch_workspace();
  if (!bias_workspace_ && workspace_bytes_ > 0) bias_workspace_ = memory().make_bytes("cuBLASLt workspace", bytes);
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

Value Eager::checkpointed(const std::string& name, const Value& x, const Body& f, Visit pass, Keeps keeps) {
  if (!keeps_history()) return f(x, Visit::first);
  const auto chosen = keeps == Keeps::selected ? std::make_shared<Selected>() : nullptr;
  const auto before = std::exchange(selected_, chosen);
  keep_history(false);
  Value out = pass == Visit::again ? unmade(x.dtype, x.shape) : f(x, Visit::first);
  keep_history(true);
  selected_ = before;
  auto node = std::make_shared<Node>();
  node->name = name;
  node->age = next_age();
  node->sources = {x.node};
  node->checkpoint = [this, x = keeps == Keeps::input_on_host ? Value{nullptr, x.dtype, x.shape, Layout::fresh, nullptr} : x.saved(),
                      wanted = bool(x.node), f, autocast = autocast_, chosen](Value g) {
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
    const bool again_before = std::exchange(again_, true);
    Value again = f(start, Visit::again);
    again_ = again_before;
    selected_ = selected_before;
    autocast_ = autocast_before;
    cast_parameters_ = std::move(casts_before);
    start = {};
    run_backward(std::move(again), std::move(g));
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

Value Eager::cast(const std::string& name, const Value& x, DType to, Visit pass) {
  if (x.dtype == to) return x;
  const Value out = pass == Visit::again ? unmade(to, x.shape) : fresh(name, to, x.shape);
  if (pass != Visit::again) ran(copy(x.dtype, to), out, x);
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

Value Eager::linear(const std::string& name, const Value& x_given, const Parameter& weight, Visit pass) {
  const Value w = autocast_ ? operand(name + " weight", weight.value, *autocast_) : weight.value;
  const Value x = autocast_ ? operand(name + " input", x_given, *autocast_) : x_given;
  const Shape to = with_last(x.shape, w.shape[0]);
  const bool keeps = selected_ && ++selected_->products % 2 == 1;
  Value* const before = keeps && pass == Visit::first ? kept_before() : nullptr;
  Value out = before ? std::move(*before) : pass == Visit::again ? unmade(x.dtype, to) : fresh(name, x.dtype, to);
  if (keeps) keep_selected({out});
  touch_workspace();
  const bool dx = bool(x.node), dw = bool(w.node);  // each operand is kept for the other's gradient
  const std::int64_t in = w.shape[1], to_columns = w.shape[0], rows = x.shape.count() / in;
  if (!before && pass != Visit::again) multiplied(to_columns, rows, in, x.dtype, 1);
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

Value Eager::linear_4bit(const std::string& name, const Value& x_given, const Value& packed, Shape weight, DType compute, Visit pass) {
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
  Value out = pass == Visit::again ? unmade(compute, to) : fresh(name, compute, to);
  { const Value whole = written_out(); }
  touch_workspace();
  if (pass != Visit::again) multiplied(to_columns, rows, in, compute, 1);
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
                  const Value parts = parts_of_sums(g.shape.count() / shape.count(), shape.count());
                  ran(Kernel::reducing, g, d);
                  return Node::Gradients{g, d};
                });
}

// ---- elementwise

Value Eager::add(const std::string& name, const Value& a, const Value& b, Visit pass) {
  const DType wide = size_of(a.dtype) >= size_of(b.dtype) ? a.dtype : b.dtype;
  const Value out = pass == Visit::again ? unmade(wide, a.shape) : fresh(name, wide, a.shape);
  if (pass != Visit::again) ran(between(a.dtype, b.dtype), out, a, b);
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

Value Eager::multiply(const std::string& name, const Value& a, const Value& b, Visit pass) {
  const bool wants_a = bool(a.node), wants_b = bool(b.node);
  const bool promotes = a.shape == b.shape || (b.shape.rank == a.shape.rank && last(b.shape) == 1);  // a row of weights has x's type here
  const DType wide = promotes && size_of(b.dtype) > size_of(a.dtype) ? b.dtype : a.dtype;
  const Value out = pass == Visit::again ? unmade(wide, a.shape) : fresh(name, wide, a.shape);
  if (pass != Visit::again) ran(a.shape == b.shape ? between(a.dtype, b.dtype) : Kernel::strided, out, a, b);
  return record(name, out, {a, b},
                [this, kept_a = wants_b ? a.saved() : Value{}, kept_b = wants_a ? b.saved() : Value{}, a_type = a.dtype, b_type = b.dtype,
                 b_shape = b.shape, wants_a, wants_b, again = again_, name = full(name)](const Value& g) mutable {
                  const bool whole = b_shape == g.shape, row = b_shape.rank == 1;
                  Value da, db;
                  if (wants_b) db = make("d(" + name + ") × left", g.dtype, g.shape), ran(Kernel::pointwise, db, g, kept_a);
                  if (wants_a)
                    da = make("d(" + name + ") × right", g.dtype, g.shape), ran(whole ? Kernel::pointwise : Kernel::strided, da, g, kept_b);
                  if (wants_b && !whole) {
                    const Value products = db;
                    const std::int64_t columns = last(b_shape);
                    const Value parts = row ? parts_of_sums(g.shape.count() / columns, columns) : Value{};
                    db = make(row ? "d(" + name + " weight)" : "d(" + name + ") summed", b_type, b_shape);
                    ran(Kernel::reducing, products, db);
                  }
                  if (again) kept_a = kept_b = {};
                  if (da) da = as_type("d(" + name + ") cast", da, a_type);
                  if (db) db = as_type("d(" + name + ") cast", db, b_type);
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
Value Eager::exp(const std::string& name, const Value& x) {
  return derived_by_result(name, autocast_ ? cast(name + " input as fp32", x, DType::f32) : x);
}
Value Eager::sigmoid(const std::string& name, const Value& x) { return derived_by_result(name, x); }

Value Eager::derived_by_result(const std::string& name, const Value& x) {
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

Value Eager::square(const std::string& name, const Value& x) { return powered(name, x, "x to the 1", "2 x"); }

Value Eager::powered(const std::string& name, const Value& x, const char* lower,
                     const char* times_lower) {  // backward of xⁿ: g · (n · xⁿ⁻¹)
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x);
  return record(name, out, {x}, [this, x = x.saved(), name = full(name), lower, times_lower](const Value& g) {
    const Value power = make(lower, x.dtype, x.shape), times = make(times_lower, x.dtype, x.shape);
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, power, x);
    ran(Kernel::pointwise, times, power);
    ran(Kernel::pointwise, d, g, times);
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

Value Eager::row_maximum(const std::string& name, const Value& x) { return best(name, x, 1); }

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

Value Eager::softmax(const std::string& name, Value x, Kept kept) {  // backward: grad · output, then the rows' sums of it
  if (autocast_ && kept == Kept::by_autocast) x = cast(name + " input as fp32", x, DType::f32);
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

}  // namespace headroom::pytorch
