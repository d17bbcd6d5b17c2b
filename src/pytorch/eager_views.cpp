// Views, copies and casts.
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

Value Eager::transposed(const Value& x) {
  return record("transpose", view_of(x, swapped(x.shape), Layout::transposed), {x},
                [](const Value& g) { return Node::Gradients{view_of(g, swapped(g.shape), Layout::transposed)}; });
}

Value Eager::copied(const std::string& name, const Value& x) {
  return record(name, by(Kernel::strided, fresh(name, x), x), {x},
                [](const Value& g) { return Node::Gradients{view_of(g, g.shape, Layout::view)}; });
}

Value Eager::cast(const std::string& name, const Value& x, DType to, Visit pass) {
  if (x.dtype == to) return x;
  const Value out = fresh(pass, name, to, x.shape);
  if (pass != Visit::again) ran(copy(x.dtype, to), out, x);
  return record(name, out, {x}, [this, from = x.dtype, name = full(name)](const Value& g) {
    return Node::Gradients{by(copy(g.dtype, from), make(d_of(name), from, g.shape), g)};
  });
}

Value Eager::operand(const std::string& name, const Value& v, DType to) {
  const auto as_this_type = [&] { return cast(name + " as " + std::string(name_of(to)), v, to); };
  if (v.dtype == to) return v;
  if (!v.node || !v.node->leaf) return as_this_type();
  Value& kept = cast_parameters_[v.node.get()];
  if (!kept) kept = as_this_type();
  return kept;
}

Value Eager::heads_apart(const Value& x, Shape apart) {
  return record("heads apart", view_of(x, apart, Layout::transposed), {x}, [this, back = x.shape](const Value& g) {
    return Node::Gradients{by(Kernel::strided, make("gradient, heads joined", g.dtype, back), g)};
  });
}

Value Eager::heads_joined(const std::string& name, const Value& x, Shape joined) {
  return record(name, by(Kernel::strided, fresh(name, x.dtype, joined), x), {x},
                [back = x.shape](const Value& g) { return Node::Gradients{view_of(g, back, Layout::transposed)}; });
}

Value Eager::heads_in_place(const Value& x, Shape joined) {
  return record("heads joined", view_of(x, joined, Layout::view), {x},
                [back = x.shape](const Value& g) { return Node::Gradients{view_of(g, back, Layout::transposed)}; });
}

Value Eager::repeated(const std::string& name, const Value& x, std::int64_t times) {
  if (times == 1) return x;
  Shape s = x.shape;
  s.dim[1] *= times;
  return record(name, by(Kernel::strided, fresh(name, x.dtype, s), x), {x}, [this, name = full(name), back = x.shape](const Value& g) {
    return Node::Gradients{reduced(g, make(d_of(name), g.dtype, back))};
  });
}

}  // namespace headroom::pytorch
