// What an update's kernels are given: a model's tensors, in a table that is a kernel's argument.
#pragma once
#include <cstdint>

#include "base/divide.h"

namespace headroom::adamw {

constexpr int threads = 256;

// As many tensors as fit, each split into pieces, which are numbered across tensors.
template <class Item, int piece_, int most_>
struct Table {
  static constexpr int piece = piece_, most = most_;
  int count = 0;
  unsigned pieces = 0;
  Item item[most];

  bool add(Item x) {  // false: full
    if (count == most) return false;
    x.first = pieces;
    pieces += unsigned(ceil_div(x.count, piece));
    item[count++] = x;
    return true;
  }
  __device__ const Item& of(unsigned p) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (item[middle].first <= p ? low : high) = middle;
    }
    return item[low];
  }
};

}  // namespace headroom::adamw
