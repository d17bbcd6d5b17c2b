// Operators that make each number of their result of one number of each operand.
#include <utility>

#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

// ---- of two operands

Value Eager::add(const std::string& name, const Value& a, const Value& b, Visit pass) {
  const DType wide = size_of(a.dtype) >= size_of(b.dtype) ? a.dtype : b.dtype;
  const Value out = fresh(pass, name, wide, a.shape);
  if (pass != Visit::again) ran(between(a.dtype, b.dtype), out, a, b);
  return record(name, out, {a, b}, [this, ta = a.dtype, tb = b.dtype, name = full(name)](const Value& g) {
    return Node::Gradients{cast_back(name, g, ta), cast_back(name, g, tb)};
  });
}

Value Eager::subtract(const std::string& name, const Value& a, const Value& b) {
  const Value out = by(a.shape == b.shape ? between(a.dtype, b.dtype) : Kernel::strided, fresh(name, a), a, b);
  return record(name, out, {a, b}, [this, column = b.shape, name = full(name)](const Value& g) {
    const Value negated = by(g.layout == Layout::view ? Kernel::strided : Kernel::pointwise, make("-d(" + name + ")", g), g);
    return Node::Gradients{g, column == g.shape ? negated : reduced(negated, make(d_of(name) + " summed", g.dtype, column))};
  });
}

Value Eager::multiply(const std::string& name, const Value& a, const Value& b, Visit pass) {
  const bool column = b.shape.rank == a.shape.rank && last(b.shape) == 1;
  const bool promotes = a.shape == b.shape || column;  // a row of weights has x's type here
  const DType wide = promotes && size_of(b.dtype) > size_of(a.dtype) ? b.dtype : a.dtype;
  const Value out = fresh(pass, name, wide, a.shape);
  if (pass != Visit::again) ran(a.shape == b.shape ? between(a.dtype, b.dtype) : Kernel::strided, out, a, b);
  const bool wants_a = bool(a.node), wants_b = bool(b.node);  // each factor is kept for the other's gradient
  const Value no_a{nullptr, a.dtype, a.shape, {}, nullptr}, no_b{nullptr, b.dtype, b.shape, {}, nullptr};
  return record(name, out, {a, b},
                [this, a = wants_b ? a.saved() : no_a, b = wants_a ? b.saved() : no_b, wants_a, wants_b, again = again_,
                 name = full(name)](const Value& g) mutable {
                  Value da, db;
                  if (wants_b) db = of_factor(d_of(name) + " × left", g, a);
                  if (wants_a) da = of_factor(d_of(name) + " × right", g, b);
                  if (wants_b && b.shape != g.shape) db = of_factor_summed(name, std::move(db), b.dtype, b.shape);
                  if (again) a.storage = b.storage = nullptr;
                  if (da) da = cast_back(name, da, a.dtype);
                  if (db) db = cast_back(name, db, b.dtype);
                  return Node::Gradients{da, db};
                });
}

Value Eager::of_factor(const std::string& name, const Value& g, const Value& other) {
  return by(other.shape == g.shape ? Kernel::pointwise : Kernel::strided, make(name, g), g, other);
}

Value Eager::of_factor_summed(const std::string& name, Value products, DType type, Shape shape) {
  const bool row = shape.rank == 1;
  const std::int64_t columns = last(shape);
  const Value parts = row ? parts_of_sums(products.shape.count() / columns, columns) : Value{};
  return reduced(products, make(row ? "d(" + name + " weight)" : d_of(name) + " summed", type, shape));
}

// d(a/b) by b is −g · ((a/b)/b): three temporaries and the result, all as large as a, before a's own gradient is made.
Value Eager::divide(const std::string& name, const Value& a, const Value& b) {
  return record(name, by(Kernel::strided, fresh(name, a), a), {a, b},
                [this, a = a.saved(), b = b.saved(), name = full(name)](const Value& g) {
                  Value by_divisor;
                  {
                    const Value quotient = by(Kernel::strided, make("left/right", a), a);
                    const Value twice = by(Kernel::strided, make("left/right/right", a), quotient);
                    const Value negated = by(Kernel::pointwise, make("-d(" + name + ")", g), g);
                    by_divisor = by(Kernel::pointwise, make("d(" + name + " right), not yet summed", g), negated, twice);
                  }
                  const Value da = by(Kernel::strided, make("d(" + name + " left)", g), g);
                  return Node::Gradients{da, reduced(by_divisor, make("d(" + name + " right)", b))};
                });
}

Value Eager::constant_times(const std::string& name, const Value& x, const Value& constant, DType result) {
  const Kernel kernel = x.dtype == constant.dtype ? Kernel::strided : Kernel::strided_converting;
  const Value out = by(kernel, fresh(name, result, x.shape), x);
  return record(name, out, {x}, [this, constant = constant.saved(), type = x.dtype, name = full(name)](const Value& g) {
    return Node::Gradients{cast_back(name, by(Kernel::strided, make(d_of(name), g), g), type)};
  });
}

Value Eager::where(const std::string& name, const Value& mask, const Value& x) {
  return record(name, by(Kernel::strided, fresh(name, x), x), {x}, [this, mask = mask.saved(), name = full(name)](const Value& g) {
    return Node::Gradients{by(Kernel::strided, make(d_of(name), g), g)};
  });
}

// ---- of one operand

Value Eager::scaled(const std::string& name, const Value& x) {
  return record(name, by(Kernel::pointwise, fresh(name, x), x), {x}, [this, name = full(name)](const Value& g) {
    return Node::Gradients{by(Kernel::pointwise, make(d_of(name) + " scaled", g), g)};
  });
}

Value Eager::shifted(const std::string& name, const Value& x) {
  return record(name, by(Kernel::pointwise, fresh(name, x), x), {x}, [](const Value& g) { return Node::Gradients{g}; });
}

// Autocast runs exp, sum and softmax in FP32.
Value Eager::exp(const std::string& name, const Value& x) {
  return derived_by_result(name, autocast_ ? cast(name + " input as fp32", x, DType::f32) : x);
}
Value Eager::sigmoid(const std::string& name, const Value& x) { return derived_by_result(name, x); }

Value Eager::derived_by_result(const std::string& name, const Value& x) {
  const Value out = by(Kernel::pointwise, fresh(name, x), x);
  return record(name, out, {x}, [this, out = out.saved(), name = full(name)](const Value& g) {
    return Node::Gradients{by(Kernel::pointwise, make(d_of(name), g), g, out)};
  });
}

Value Eager::silu(const std::string& name, const Value& x) {
  return record(name, by(Kernel::pointwise, fresh(name, x), x), {x}, [this, x = x.saved(), name = full(name)](const Value& g) {
    return Node::Gradients{by(Kernel::pointwise, make(d_of(name), g), g, x)};
  });
}

Value Eager::square(const std::string& name, const Value& x) { return powered(name, x, "x to the 1", "2 x"); }

// Backward of xⁿ: g · (n · xⁿ⁻¹).
Value Eager::powered(const std::string& name, const Value& x, const char* lower, const char* times_lower) {
  const Value out = by(Kernel::pointwise, fresh(name, x), x);
  return record(name, out, {x}, [this, x = x.saved(), name = full(name), lower, times_lower](const Value& g) {
    const Value power = by(Kernel::pointwise, make(lower, x), x);
    const Value times = by(Kernel::pointwise, make(times_lower, x), power);
    return Node::Gradients{by(Kernel::pointwise, make(d_of(name), g), g, times)};
  });
}

Value Eager::reciprocal_root(const std::string& name, const Value& x) {  // backward: −½ · g · y³
  const Value out = by(Kernel::pointwise, fresh(name, x), x);
  return record(name, out, {x}, [this, out = out.saved(), name = full(name)](const Value& g) {
    const Value half = by(Kernel::pointwise, make("-g/2", g), g);
    const Value cube = by(Kernel::pointwise, make("y cubed", g), out);
    return Node::Gradients{by(Kernel::pointwise, make(d_of(name), g), half, cube)};
  });
}

}  // namespace headroom::pytorch
