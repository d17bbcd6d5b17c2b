// Operators that transformers' models have beside a Llama's: LayerNorm, Conv1D, dropout, GELU, capped scores, masks of windows.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/divide.h"
#include "pytorch/eager.h"
#include "pytorch/views.h"

namespace headroom::pytorch {

// PyTorch sums rows in parts where they are many: for every number of the result a part of each block, in memory that goes again. The rules are those
// of ReduceConfig (ATen/native/cuda/Reduce.cuh, 2.11), with the multiprocessors of an H100.
Value Eager::parts_of_sums(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t multiprocessors = 132, threads = 2048, most_values = 256, least_values = 16, warp = 32;
  const auto power = [](std::int64_t n) { return std::int64_t(std::bit_floor(std::uint64_t(std::max<std::int64_t>(n, 1)))); };
  const std::int64_t each = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1, most = 512 / each;
  const std::int64_t across = std::min(power(columns / each), most), down = std::min(power(rows), most);
  std::int64_t width = std::min(across, warp);
  const std::int64_t height = std::min(down, most / width);
  width = std::min(across, most / height);
  const auto parts_of = [this](Shape s) {
    return make("sums of rows, in parts", DType::f32, s);
  };  // made even where there are none: probes compare
  if (rows < std::min(height * 16, most_values)) return parts_of({0});
  const std::int64_t values = ceil_div(rows, height), grid = ceil_div(columns / each, width),
                     whole = multiprocessors * (threads / (width * height));
  if (values < most_values || grid > whole) return parts_of({0});
  const std::int64_t parts = std::max(std::min(ceil_div(whole, grid), ceil_div(values, least_values)), ceil_div(values, most_values));
  return parts_of(parts <= 1 ? Shape{0} : Shape{columns, parts, width * each});
}

Value Eager::add_to_each(const std::string& name, const Value& rows, const Value& one) {
  const Value out = fresh(name, rows.dtype, rows.shape);
  ran(Kernel::strided, out, rows, one);
  return record(name, out, {rows, one}, [this, shape = one.shape, batch = rows.shape[0], name = full(name)](const Value& g) {
    const Value d = batch == 1 ? unmade(g.dtype, shape) : make("d(" + name + ") summed", g.dtype, shape);
    if (batch == 1) return Node::Gradients{g, view_of(g, shape, Layout::view)};
    ran(Kernel::reducing, g, d);
    return Node::Gradients{g, d};
  });
}

Value Eager::layer_norm(const std::string& name, const Value& given, const Parameter& weight, const Parameter& bias) {
  const Value x = autocast_ ? cast(name + " input as fp32", given, DType::f32) : given;
  const Value out = fresh(name, x.dtype, x.shape), mean = fresh(name + " mean", DType::f32, with_last(x.shape, 1)),
              root = fresh(name + " 1/deviation", DType::f32, with_last(x.shape, 1));
  ran(Kernel::norm, out, x);
  return record(name, out, {x, weight.value, bias.value},
                [this, x = x.saved(), mean, root, w = weight.value.saved(), name = full(name)](const Value& g) {
                  Node::Gradients d{make("d(" + name + " input)", x.dtype, x.shape), make("d(" + name + " weight)", w.dtype, w.shape),
                                    make("d(" + name + " bias)", w.dtype, w.shape)};
                  ran(Kernel::norm_backward, d[0], x, g);
                  ran(Kernel::norm_weights, x, g);
                  return d;
                });
}

Value Eager::conv1d(const std::string& name, const Value& x_given, const Parameter& weight, const Parameter& bias, Visit pass) {
  const Value w = autocast_ ? operand(name + " weight", weight.value, *autocast_) : weight.value;
  const Value x = autocast_ ? operand(name + " input", x_given, *autocast_) : x_given;
  const Value b = autocast_ ? operand(name + " bias", bias.value, *autocast_) : bias.value;
  const Shape to = with_last(x.shape, w.shape[1]);
  Value out = pass == Visit::again ? unmade(x.dtype, to) : fresh(name, x.dtype, to);
  touch_bias_workspace();
  const std::int64_t in = w.shape[0], columns = w.shape[1], rows = x.shape.count() / in;
  if (pass != Visit::again) multiplied(columns, rows, in, x.dtype, 0);
  return record(name, out, {x, w, b},
                [this, in, columns, rows, x = x.saved(), w = w.saved(), b_shape = b.shape, name = full(name)](const Value&) {
                  Node::Gradients d(3);
                  d[0] = view_of(make("d(" + name + " input)", x.dtype, x.shape), x.shape, Layout::view);
                  touch_workspace();
                  multiplied(in, rows, columns, x.dtype, 1);
                  d[1] = make("d(" + name + " weight)", w.dtype, w.shape);
                  multiplied(columns, in, rows, w.dtype, 2);
                  d[2] = make("d(" + name + " bias)", w.dtype, b_shape);
                  const Value parts = parts_of_sums(rows, columns);
                  ran(Kernel::reducing, d[2]);
                  return d;
                });
}

Value Eager::dropout(const std::string& name, const Value& x) {
  const Value mask = fresh(name + " mask", DType::u8, x.shape), out = fresh(name, x.dtype, x.shape);
  ran(Kernel::pointwise, out, x, mask);
  return record(name, out, {x}, [this, mask, name = full(name)](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, g.shape);
    ran(Kernel::pointwise, d, g, mask);
    return Node::Gradients{d};
  });
}

// Equal parts of the last dimension, as views. Their gradients wait for each other; the first part was made first, so its gradient comes last.
std::vector<Value> Eager::split(const std::string& name, const Value& x, std::int64_t parts) {
  const auto waiting = std::make_shared<std::vector<Value>>();
  std::vector<Value> all;
  for (std::int64_t i = 0; i < parts; ++i) {
    Value one = view_of(x, with_last(x.shape, last(x.shape) / parts), Layout::view);
    one = record(name, std::move(one), {x}, [this, waiting, i, shape = x.shape, name = full(name)](const Value& g) {
      waiting->push_back(g);
      if (i > 0) return Node::Gradients{};
      const Value d = make("d(" + name + ")", g.dtype, shape);
      ran(Kernel::strided, d, d);
      waiting->clear();
      return Node::Gradients{d};
    });
    if (i > 0 && one.node) one.node->sources.clear();
    all.push_back(std::move(one));
  }
  return all;
}

Value Eager::for_each_head(const std::string& name, const Value& x, std::int64_t times) {
  if (times == 1 || x.shape[1] > 1) return repeated(name + ", repeated", x, times);
  Shape s = x.shape;
  s.dim[1] = times;
  return record(name, view_of(x, s, Layout::view), {x}, [this, name = full(name), back = x.shape](const Value& g) {
    const Value d = make("d(" + name + ")", g.dtype, back);
    ran(Kernel::reducing, g, d);
    return Node::Gradients{d};
  });
}

Value Eager::cubed(const std::string& name, const Value& x) {  // in FP32 under autocast
  return powered(name, autocast_ ? cast(name + " input as fp32", x, DType::f32) : x, "x to the 2", "3 x²");
}

// transformers' NewGELUActivation: x/2 · (1 + tanh(√(2/π) · (x + 0.0447 x³))).
Value Eager::written_out_gelu(const std::string& name, const Value& x) {
  const Value half = scaled(name + " x/2", x);
  Value t;
  {
    Value inner = scaled(name + " 0.04 x³", cubed(name + " x³", x));
    inner = add(name + " x + 0.04 x³", x, inner);
    inner = scaled(name + " √(2/π) …", inner);
    t = sigmoid(name + " tanh", inner);
  }
  t = shifted(name + " 1 + tanh", t);
  return multiply(name, half, t);
}

Value Eager::gelu(const std::string& name, const Value& x) { return silu(name, x); }  // keeps its input, too

}  // namespace headroom::pytorch
