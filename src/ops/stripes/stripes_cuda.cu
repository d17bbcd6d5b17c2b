#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/stripes/impl.h"

namespace headroom::stripes {

namespace {

constexpr int threads = 256;

struct Rows {  // a matrix whose rows begin `apart` elements from each other
  void* data;
  std::int64_t apart;
};
Rows rows_of(const Tensor& t) { return {t.data, t.stride[0]}; }

template <class T>
__device__ T* at(const Rows& r, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(r.data) + row * r.apart + column;
}

struct Args {
  Rows from, to;
  std::int64_t count, pieces;  // pieces: count in all rows together, pieces in one row
  std::int64_t tokens;         // add_by_rank: of each sequence, the first
  Stripes stripes;
  int parts;
};

// One piece of `vec` elements a thread; its row and the first of its columns. False past the last.
template <int vec>
__device__ bool my_piece(const Args& a, std::int64_t& row, std::int64_t& column) {
  const std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  row = i / a.pieces, column = i % a.pieces * vec;
  return i < a.count;
}

// stripes_pack — rows with gaps.     limit  bandwidth
template <int vec, class T>
__global__ void __launch_bounds__(threads) stripes_pack(const __grid_constant__ Args a) {
  std::int64_t row, column;
  if (!my_piece<vec>(a, row, column)) return;
  store(at<T>(a.to, row, column), load<vec>(at<const T>(a.from, row, column)));
}

// stripes_in_order — reads where each row of the sequence lies.     limit  bandwidth
template <int vec, class T>
__global__ void __launch_bounds__(threads) stripes_in_order(const __grid_constant__ Args a) {
  std::int64_t row, column;
  if (!my_piece<vec>(a, row, column)) return;
  const std::int64_t len = 2 * a.stripes.ranks * a.stripes.rows;
  store(at<T>(a.to, row, column), load<vec>(at<const T>(a.from, a.stripes.by_rank(row / len, row % len), column)));
}

// stripes_add_by_rank — writes each row of the sums where its rank's lie.     numerics  FP32     limit  bandwidth
template <int vec, class T, bool add>
__global__ void __launch_bounds__(threads) stripes_add_by_rank(const __grid_constant__ Args a) {
  std::int64_t row, column;
  if (!my_piece<vec>(a, row, column)) return;
  const std::int64_t len = 2 * a.stripes.ranks * a.stripes.rows, sequence = row / len, token = row % len;
  float* const to = at<float>(a.to, a.stripes.by_rank(sequence, token), column);
  if (add && token >= a.tokens) return;
  Pack<float, vec> sum{};
  if (token < a.tokens) sum = widened(load<vec>(at<const T>(a.from, sequence * a.tokens + token, column)));
  if constexpr (add) {
    const auto before = load<vec>(to);
#pragma unroll
    for (int e = 0; e < vec; ++e) sum.at[e] = before.at[e] + sum.at[e];
  }
  store(to, sum);
}

// stripes_add_up — the parts of all ranks, in order.     numerics  FP32, rounded once     limit  bandwidth
template <int vec, class T>
__global__ void __launch_bounds__(threads) stripes_add_up(const __grid_constant__ Args a) {
  std::int64_t row, column;
  if (!my_piece<vec>(a, row, column)) return;
  const std::int64_t rows = a.count / a.pieces;
  auto sum = load<vec>(at<const float>(a.from, row, column));
  for (int part = 1; part < a.parts; ++part) {
    const auto more = load<vec>(at<const float>(a.from, part * rows + row, column));
#pragma unroll
    for (int e = 0; e < vec; ++e) sum.at[e] += more.at[e];
  }
  store(at<T>(a.to, row, column), rounded<T>(sum));
}

// Elements that a thread may move at once: 16 bytes of the smaller type, if every row of both begins at a multiple of its piece.
template <class A, class B>
bool wide(std::int64_t width, const Tensor& a, const Tensor& b) {
  return pieces_of<A>(width, a.as<char>(), b.as<char>()) > 1 && pieces_of<B>(width, a.as<char>()) > 1 &&
         a.stride[0] * std::int64_t(sizeof(A)) % 16 == 0 && b.stride[0] * std::int64_t(sizeof(B)) % 16 == 0;
}

// Kernels come in two widths: pieces, and single elements.
void start(Context& ctx, void (*pieces)(Args), void (*single)(Args), bool by_pieces, int vec, std::int64_t rows, std::int64_t width,
           Args a) {
  a.pieces = by_pieces ? width / vec : width;
  a.count = rows * a.pieces;
  launch(cuda_stream(ctx.stream), by_pieces ? pieces : single, {grid_of(ceil_div(a.count, threads)), threads}, a);
}

template <class F>
void with_bytes(std::size_t size, F&& f) {
  size == 2 ? f.template operator()<std::uint16_t>() : f.template operator()<std::uint32_t>();
}

}  // namespace

void pack_cuda(const Tensor& from, const Tensor& to, Context& ctx) {
  with_bytes(size_of(to.dtype), [&]<class T>() {
    constexpr int vec = 16 / sizeof(T);
    start(ctx, stripes_pack<vec, T>, stripes_pack<1, T>, wide<T, T>(to.shape[1], from, to), vec, to.shape[0], to.shape[1],
          {rows_of(from), rows_of(to), 0, 0, 0, {}, 0});
  });
}

void in_order_cuda(const Stripes& s, const Tensor& by_rank, const Tensor& to, Context& ctx) {
  with_bytes(size_of(to.dtype), [&]<class T>() {
    constexpr int vec = 16 / sizeof(T);
    start(ctx, stripes_in_order<vec, T>, stripes_in_order<1, T>, wide<T, T>(to.shape[1], by_rank, to), vec, to.shape[0], to.shape[1],
          {rows_of(by_rank), rows_of(to), 0, 0, 0, s, 0});
  });
}

void add_by_rank_cuda(const Stripes& s, const Tensor& first, const Tensor& by_rank, Gradient how, Context& ctx) {
  with_float(first.dtype, [&]<class T>() {
    constexpr int vec = 16 / sizeof(T);
    const bool by_pieces = wide<T, float>(first.shape[1], first, by_rank);
    const Args a{rows_of(first), rows_of(by_rank), 0, 0, first.shape[0] / s.batch, s, 0};
    if (how == Gradient::accumulate)
      start(ctx, stripes_add_by_rank<vec, T, true>, stripes_add_by_rank<1, T, true>, by_pieces, vec, by_rank.shape[0], by_rank.shape[1], a);
    else
      start(ctx, stripes_add_by_rank<vec, T, false>, stripes_add_by_rank<1, T, false>, by_pieces, vec, by_rank.shape[0], by_rank.shape[1],
            a);
  });
}

void add_up_cuda(const Tensor& parts, int count, const Tensor& to, Context& ctx) {
  with_float(to.dtype, [&]<class T>() {
    constexpr int vec = 16 / sizeof(T);
    start(ctx, stripes_add_up<vec, T>, stripes_add_up<1, T>, wide<T, float>(to.shape[1], to, parts), vec, to.shape[0], to.shape[1],
          {rows_of(parts), rows_of(to), 0, 0, 0, {}, count});
  });
}

}  // namespace headroom::stripes
