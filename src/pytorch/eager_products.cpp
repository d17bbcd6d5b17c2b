// Products of matrices. `multiplied` says columns first, as cuBLAS does; its flags say which operands are transposed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

Value Eager::matmul(const std::string& name, Value a, Value b) {
  if (autocast_) {
    a = operand(name + " left", a, *autocast_);
    b = operand(name + " right", b, *autocast_);
  }
  const Value out = fresh(name, a.dtype, with_last(a.shape, last(b.shape)));
  Sizes n{.rows = a.shape[a.shape.rank - 2], .inner = last(a.shape), .columns = last(b.shape)};
  n.batch = out.shape.count() / std::max<std::int64_t>(n.rows * n.columns, 1);
  touch_workspace();
  multiplied(n.columns, n.rows, n.inner, a.dtype, b.layout == Layout::transposed, n.batch);
  return record(name, out, {a, b},
                [this, n, a = a.saved(), b = b.saved(), name = full(name)](const Value& g) { return of_operands(name, a, b, g, n); });
}

// Batches of a transposed gradient are put in order once; a broadcast one is written out for each product.
Node::Gradients Eager::of_operands(const std::string& name, const Value& a, const Value& b, const Value& g, Sizes n) {
  const Value in_order = g.layout == Layout::transposed ? by(Kernel::strided, make(d_of(name) + " in order", g), g) : Value{};
  const auto gradient_of = [&](const char* side, const Value& x, auto product) {
    const Value d = make(fmt::format("d({} {})", name, side), x);
    const Value written_out = g.layout == Layout::broadcast ? by(Kernel::strided, make(d_of(name) + " written out", g)) : Value{};
    touch_workspace();
    product();
    return d;
  };
  const Value db = gradient_of("right", b, [&] { multiplied(n.columns, n.inner, n.rows, a.dtype, 2, n.batch); });
  const Value da = gradient_of("left", a, [&] { multiplied(n.inner, n.rows, n.columns, a.dtype, 1, n.batch); });
  return {da, db};
}

Value Eager::linear(const std::string& name, const Value& x_given, const Parameter& weight, Visit pass) {
  const Value w = autocast_ ? operand(name + " weight", weight.value, *autocast_) : weight.value;
  const Value x = autocast_ ? operand(name + " input", x_given, *autocast_) : x_given;
  const Shape to = with_last(x.shape, w.shape[0]);
  const bool selects = selected_ && ++selected_->products % 2 == 1;
  Value* const before = selects && pass == Visit::first ? kept_before() : nullptr;
  const Value out = before ? std::move(*before) : fresh(pass, name, x.dtype, to);
  if (selects) keep_selected({out});
  touch_workspace();
  const Sizes n{.rows = x.shape.count() / w.shape[1], .inner = w.shape[1], .columns = w.shape[0]};
  if (!before && pass != Visit::again) multiplied(n.columns, n.rows, n.inner, x.dtype, 1);
  const bool dx = bool(x.node), dw = bool(w.node);  // each operand is kept for the other's gradient
  const Value no_x{nullptr, x.dtype, x.shape, {}, nullptr}, no_w{nullptr, w.dtype, w.shape, {}, nullptr};
  return record(name, out, {x, w},
                [this, n, x = dw ? x.saved() : no_x, w = dx ? w.saved() : no_w, dx, dw, name = full(name)](const Value&) {
                  Node::Gradients d(2);
                  if (dw) d[1] = make("d(" + name + " weight)", w);
                  if (dx) d[0] = view_of(make("d(" + name + " input)", x), x.shape, Layout::view);
                  touch_workspace();
                  if (dw) multiplied(n.inner, n.columns, n.rows, w.dtype, 2);
                  if (dx) multiplied(n.inner, n.rows, n.columns, x.dtype, 0);
                  return d;
                });
}

Value Eager::linear_4bit(const std::string& name, const Value& x_given, const Value& packed, Shape weight, DType compute, Visit pass) {
  const Value x = cast(name + " input", x_given, compute);
  const Sizes n{.rows = x.shape.count() / weight[1], .inner = weight[1], .columns = weight[0]};
  const Value out = fresh(pass, name, compute, with_last(x.shape, n.columns));
  written_out(full(name), weight, compute);  // and let go
  touch_workspace();
  if (pass != Visit::again) multiplied(n.columns, n.rows, n.inner, compute, 1);
  return record(name, out, {x}, [this, n, packed = packed.saved(), shape = x.shape, weight, compute, name = full(name)](const Value&) {
    const Value whole = written_out(name, weight, compute);
    touch_workspace();
    multiplied(n.inner, n.rows, n.columns, compute, 0);
    return Node::Gradients{view_of(make("d(" + name + " input)", compute, shape), shape, Layout::view)};
  });
}

Value Eager::written_out(const std::string& name, Shape weight, DType compute) {
  const Value scales = make(name + " scales, written out", DType::f32, {(weight.count() + 63) / 64});
  Value whole = make(name + " weight, written out", compute, weight);
  ran(Kernel::other, scales, scales);
  ran(Kernel::other, whole, scales);  // and half a byte a number
  return whole;
}

// A product adds the bias where it writes; what is left is the bias's own gradient.
Value Eager::biased(const std::string& name, const Value& x, const Parameter& bias) {
  return record(name, view_of(x, x.shape, x.layout), {x, bias.value},
                [this, type = bias.value.dtype, shape = bias.value.shape, name = full(name)](const Value& g) {
                  const Value d = make("d(" + name + " bias)", type, shape);
                  const Value parts = parts_of_sums(g.shape.count() / shape.count(), shape.count());
                  return Node::Gradients{g, reduced(g, d)};
                });
}

}  // namespace headroom::pytorch
