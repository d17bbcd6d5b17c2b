// Operators of gpt-oss: clamped gates, biases of experts, plain attention with a sink for each head. Read off traces of transformers 5.24 with PyTorch 2.15.
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

Value Eager::clamped(const std::string& name, const Value& x, std::int64_t limits) {
  const Value out = fresh(name, x.dtype, x.shape);
  ran(Kernel::strided, out, x);
  return record(name, out, {x}, [this, limits, x = x.saved(), name = full(name)](const Value& g) {
    std::vector<Value> within;
    for (std::int64_t i = 0; i < limits; ++i) within.push_back(make("within a limit", DType::u8, x.shape));
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    for (const Value& one : within) ran(Kernel::strided, one, x);
    ran(Kernel::pointwise, d, g);
    return Node::Gradients{d};
  });
}

Value Eager::added_in_place(const std::string& name, const Value& x, const Value& more) {
  ran(Kernel::pointwise, x, x, more);
  return record(name, view_of(x, x.shape, Layout::view), {x, more}, [](const Value& g) { return Node::Gradients{g, g}; });
}

Value Eager::masked(const std::string& name, const Value& x, const Value& mask) {
  const DType wide = size_of(mask.dtype) > size_of(x.dtype) ? mask.dtype : x.dtype;
  const Value out = fresh(name, wide, x.shape);
  ran(between(x.dtype, wide), out, x, mask);
  return record(name, out, {x}, [this, type = x.dtype, name = full(name)](const Value& g) {
    return Node::Gradients{as_type("d(" + name + ") cast", g, type)};
  });
}

Value Eager::with_sinks(const std::string& name, const Value& x, const Parameter& sinks) {
  const Value out = fresh(name, x.dtype, with_last(x.shape, last(x.shape) + 1));
  ran(Kernel::strided, out, x);
  return record(name, out, {x, sinks.value}, [this, shape = x.shape, of = sinks.value.saved(), name = full(name)](const Value& g) {
    const Value d = make("d(" + name + " sinks)", of.dtype, of.shape);
    ran(Kernel::reducing, g, d);
    return Node::Gradients{view_of(g, shape, Layout::transposed), d};  // rows of g are one longer
  });
}

Value Eager::without_sinks(const Value& x) {
  return record("slice", view_of(x, with_last(x.shape, last(x.shape) - 1), Layout::view), {x},
                [this, type = x.dtype, shape = x.shape](const Value& g) {
                  const Value d = make("gradient of a slice, zeros elsewhere", type, shape);
                  ran(Kernel::pointwise, d);
                  ran(Kernel::strided, g, g);
                  return Node::Gradients{d};
                });
}

}  // namespace headroom::pytorch
