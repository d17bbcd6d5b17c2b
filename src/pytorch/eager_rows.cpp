// Operators of whole rows: norms, sums, softmax.
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

Value Eager::rms_norm(const std::string& name, const Value& x, const Parameter& weight) {
  const Value out = by(Kernel::norm, fresh(name, x), x), root = fresh(name + " 1/rms", DType::f32, with_last(x.shape, 1));
  return record(name, out, {x, weight.value}, [this, x = x.saved(), root, w = weight.value.saved(), name = full(name)](const Value& g) {
    Node::Gradients d{make("d(" + name + " input)", x), make("d(" + name + " weight)", w)};
    ran(Kernel::norm_backward, d[0], x, g);
    ran(Kernel::norm_weights, x, g);
    return d;
  });
}

Value Eager::row_maximum(const std::string& name, const Value& x) { return best(name, x, 1); }

Value Eager::row_sum(const std::string& name, const Value& given) {
  const Value x = autocast_ ? cast(name + " input as fp32", given, DType::f32) : given;
  const Value out = reduced(x, fresh(name, x.dtype, with_last(x.shape, 1)));
  return record(name, out, {x}, [shape = x.shape](const Value& g) { return Node::Gradients{view_of(g, shape, Layout::broadcast)}; });
}

Value Eager::row_mean(const std::string& name, const Value& x) {
  const Value out = reduced(x, fresh(name, x.dtype, with_last(x.shape, 1)));
  return record(name, out, {x}, [this, shape = x.shape, name = full(name)](const Value& g) {
    return Node::Gradients{by(Kernel::strided, make(d_of(name) + " spread", g.dtype, shape), g)};
  });
}

Value Eager::sum(const std::string& name, const Value& x) {
  const Value out = reduced(x, fresh(name, x.dtype, {1}));
  return record(name, out, {x}, [shape = x.shape](const Value& g) { return Node::Gradients{view_of(g, shape, Layout::broadcast)}; });
}

Value Eager::softmax(const std::string& name, Value x, Kept kept) {  // backward: grad · output, then the rows' sums of it
  if (autocast_ && kept == Kept::by_autocast) x = cast(name + " input as fp32", x, DType::f32);
  const Value out = fresh(name, x);
  const std::int64_t columns = last(x.shape), rows = x.shape.count() / columns;
  softmax_ran(rows, columns, x.dtype, false);
  return record(name, out, {x}, [this, rows, columns, out = out.saved(), name = full(name)](const Value& g) {
    const Value product = by(Kernel::pointwise, make(d_of(name) + " · output", g), g, out);
    const Value d = make("d(" + name + " input)", g);
    softmax_ran(rows, columns, g.dtype, true);
    return Node::Gradients{d};
  });
}

}  // namespace headroom::pytorch
