// Shapes and views, as operators take them from one tensor to the next.
#pragma once
#include <utility>

#include "pytorch/autograd.h"

namespace headroom::pytorch {

inline Shape swapped(Shape s) {
  std::swap(s.dim[std::size_t(s.rank - 1)], s.dim[std::size_t(s.rank - 2)]);
  return s;
}
inline Shape with_last(Shape s, std::int64_t n) {
  s.dim[std::size_t(s.rank - 1)] = n;
  return s;
}
inline std::int64_t last(const Shape& s) { return s[s.rank - 1]; }
inline Value view_of(Value v, Shape s, Layout layout) {
  v.shape = s;
  v.layout = layout;
  v.node = nullptr;
  return v;
}

}  // namespace headroom::pytorch
