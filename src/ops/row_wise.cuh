// Shared by the norms on a GPU: blocks that take a row at a time, in registers and in pieces of up to 16 bytes.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "base/divide.h"
#include "base/tensor.h"
#include "gpu/rows_ahead.cuh"
#include "gpu/vec.cuh"

namespace headroom::row_wise {

constexpr int most_threads = 512;

// A thread keeps `own` elements of its block's row in registers, in pieces of `vec`, one block's width apart.
template <int vec_, int own_>
struct Row {
  static constexpr int vec = vec_, own = own_, pieces = own / vec;
  static constexpr std::int64_t widest() { return own * most_threads; }

  static unsigned threads(std::int64_t width) {
    const auto pieces_of_row = ceil_div(width, vec);
    return unsigned(std::clamp<std::int64_t>((ceil_div(pieces_of_row, pieces) + 31) / 32 * 32, 32, most_threads));
  }
  template <class F>
  __device__ static void each(int width, F&& f) {  // f(which of the thread's pieces, where it begins)
#pragma unroll
    for (int k = 0; k < pieces; ++k)
      if (const int i = (k * int(blockDim.x) + int(threadIdx.x)) * vec; i < width) f(k, i);
  }
};
constexpr std::int64_t widest = Row<1, 32>::widest();

// Rows to prefetch: three, or as many as fit in 64 bytes of each tensor per thread; more of them would leave fewer blocks resident on a
// multiprocessor. None if rows are not made of 16-byte pieces, or are so wide that not one fits;
// these are read twice.
template <class T, class Row>
constexpr int depth_of() {
  return sizeof(T) * Row::vec == 16 ? std::min(3, 64 / int(sizeof(T) * Row::own)) : 0;
}
template <class T, class Row, int tensors, bool apart = false>
using Rows = RowsAhead<T, Row, tensors, depth_of<T, Row>(), apart>;

using Room = float[2][32];  // for the block's sums, used in turn, so that one barrier a sum is enough

template <class Row>
struct Weights {  // a thread's columns of the weight, the same for every row
  float at[Row::pieces][Row::vec];
  __device__ Weights(const float* from, int width) {
    Row::each(width, [&](int k, int i) {
      const auto piece = load<Row::vec>(from + i);
#pragma unroll
      for (int e = 0; e < Row::vec; ++e) at[k][e] = piece.at[e];
    });
  }
};

// Blocks that are resident at once, for kernels whose blocks take rows in turn.
inline std::int64_t blocks_at_once(const Device& device, unsigned threads) {
  return std::int64_t(device.units) * std::max(1u, 1536 / threads);
}

// Calls f.operator()<T, Row>() for the storage type of the first tensor, with the widest pieces and fewest registers (at least `least`)
// for rows of this width. The tensors are all that is read or written in pieces.
template <int least, class F>
void with_row(std::int64_t width, std::initializer_list<Tensor> all, F&& f) {
  const DType dtype = all.begin()->dtype;
  const auto size = std::int64_t(size_of(dtype));
  bool whole = width * size % 16 == 0;
  for (const Tensor& t : all)
    whole = whole && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && (t.shape.rank < 2 || t.stride[0] * size % 16 == 0);
  with_float(dtype, [&]<class T>() {
    const auto with_own = [&]<int vec>() {
      constexpr int own = least < vec ? vec : least;
      if (width <= Row<vec, own>::widest())
        f.template operator()<T, Row<vec, own>>();
      else if (width <= Row<vec, 16>::widest())
        f.template operator()<T, Row<vec, 16>>();
      else
        f.template operator()<T, Row<vec, 32>>();
    };
    if (whole)
      with_own.template operator()<16 / sizeof(T)>();
    else
      with_own.template operator()<1>();
  });
}

}  // namespace headroom::row_wise
