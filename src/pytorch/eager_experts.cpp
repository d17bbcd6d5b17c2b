// Operators of experts: a router's best, rows gathered by index, grouped products. Read off traces of transformers 5.24 with PyTorch 2.15.
#include <array>
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

Value Eager::best(const std::string& name, const Value& x, std::int64_t of_row) {
  Value out = fresh(name, x.dtype, with_last(x.shape, of_row));
  const Value indices = fresh(name + " indices", DType::i64, out.shape);
  ran(Kernel::reducing, x, out, indices);
  return record(name, out, {x}, [this, indices, type = x.dtype, shape = x.shape, name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ") scattered", type, shape);
    ran(Kernel::pointwise, d);
    ran(Kernel::other, g, indices);
    return Node::Gradients{d};
  });
}

Value Eager::shares_of_best(const std::string& name, const Value& x) {
  const Value sum = fresh(name + " sum", x.dtype, with_last(x.shape, 1)),
              before = fresh(name + " before they are divided", x.dtype, x.shape);
  ran(Kernel::reducing, x, sum);
  ran(Kernel::strided, x, x);
  return record(name, view_of(x, x.shape, Layout::view), {x}, [this, sum, before, name = full(name)](const Value& g) {
    const Value quotient = make("left/right", g.dtype, g.shape), negated = make("-d(" + name + ")", g.dtype, g.shape);
    const Value by_sum = make("d(" + name + " sum)", g.dtype, sum.shape);
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::strided, quotient, before);
    ran(Kernel::reducing, negated, by_sum);
    ran(Kernel::strided, d, g);
    return Node::Gradients{d};
  });
}

Value Eager::gathered(const std::string& name, const Value& x, Shape to, Value index) {
  if (!index) index = fresh(name + " index", DType::i64, {to[0]});
  const Value out = fresh(name, x.dtype, to);
  ran(Kernel::other, out, out, index);
  return record(name, out, {x}, [this, index = index.saved(), type = x.dtype, shape = x.shape, name = full(name)](const Value& g) {
    const Value given = g.layout == Layout::broadcast ? make("d(" + name + ") written out", g.dtype, g.shape) : Value{};
    const Value d = make("d(" + name + ") put back", type, shape);
    std::array<Value, 4> indices;  // rows, in one dimension; sorted; where each was; what sorting takes
    for (Value& one : indices) one = make("indices, being sorted", DType::i64, index.shape);
    ran(Kernel::pointwise, d);
    ran(Kernel::other, given ? given : g, d, index);
    return Node::Gradients{d};
  });
}

Value Eager::grouped_product(const std::string& name, const Value& x_given, const Parameter& weights, const Value& ends) {
  const Value& w = weights.value;
  const Value x = cast(name + " input", x_given, w.dtype);
  const std::int64_t rows = x.shape[0], in = last(x.shape),
                     to = w.shape.count() / (w.shape[0] * in);  // [experts, to, in] or [experts, in, to]
  const Value out = fresh(name, x.dtype, {rows, to});
  multiplied(to, rows, in, x.dtype, 1);
  const bool dx = bool(x.node), dw = bool(w.node);
  return record(name, out, {x, w},
                [this, rows, to, in, ends = ends.saved(), kept_x = dw ? x.saved() : Value{}, w = w.saved(), dx, dw,
                 name = full(name)](const Value& g) {
                  Node::Gradients d(2);
                  if (dw) d[1] = make("d(" + name + " weights)", w.dtype, w.shape), multiplied(in, to, rows, w.dtype, 2);
                  if (dx) d[0] = make("d(" + name + " input)", g.dtype, {rows, in}), multiplied(in, rows, to, w.dtype, 0);
                  return d;
                });
}

Value Eager::summed_experts(const std::string& name, const Value& x, Shape to, Visit pass) {
  const Value out = pass == Visit::again ? unmade(x.dtype, to) : fresh(name, x.dtype, to);
  if (pass != Visit::again) ran(Kernel::reducing, x, out);
  return record(name, out, {x}, [shape = x.shape](const Value& g) { return Node::Gradients{view_of(g, shape, Layout::broadcast)}; });
}

}  // namespace headroom::pytorch
