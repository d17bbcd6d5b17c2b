// A tensor is a view: address, dtype, shape, strides. It owns nothing and is cheap to copy.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/dtype.h"

namespace headroom {

constexpr int max_rank = 4;

struct Shape {
  std::array<std::int64_t, max_rank> dim{1, 1, 1, 1};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    for (auto d : dims) dim[std::size_t(rank++)] = d;
  }
  std::int64_t operator[](int i) const { return dim[std::size_t(i)]; }
  std::int64_t count() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  std::array<std::int64_t, max_rank> stride{0, 0, 0, 0};  // in elements

  Tensor() = default;
  Tensor(void* at, DType type, Shape dims) : data(at), dtype(type), shape(dims) {  // contiguous, last dimension fastest
    std::int64_t step = 1;
    for (int i = dims.rank; i-- > 0; step *= dims[i]) stride[std::size_t(i)] = step;
  }
  explicit operator bool() const { return shape.rank > 0; }
  std::int64_t count() const { return shape.count(); }
  std::size_t bytes() const { return std::size_t(count()) * size_of(dtype); }
  bool contiguous() const { return stride == Tensor(data, dtype, shape).stride; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace headroom
