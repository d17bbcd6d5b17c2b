#include "ops/attention/sampled/sampled_rows.h"

#include <cmath>

#include "base/convert.h"
#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"

namespace headroom::attention {

namespace {

constexpr int rows = 16, lanes = 16, keys = 32;  // a block's: 16 lanes share a row; a tile of keys is 2 per lane
constexpr int dims_per_lane = 256 / lanes;

template <class T>
struct RowArgs {
  const T *q, *k, *v, *d_o;  // one head's
  std::int64_t q_row, k_row, v_row, do_row;
  int dim;
  double scale;
  BandOf<int> band;
  double *lse, *delta, *delta_size;
};

__device__ double over_lanes(double x) {
  for (int step = lanes / 2; step; step /= 2) x += __shfl_xor_sync(~0u, x, step, lanes);
  return x;
}
__device__ double largest_over_lanes(double x) {
  for (int step = lanes / 2; step; step /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step, lanes));
  return x;
}

template <class To, class T>
__device__ void load_rows(To* to, const T* from, std::int64_t stride, std::int64_t first, int count, std::int64_t end, int dim) {
  for (int n = int(threadIdx.x); n < count * dim; n += rows * lanes) {
    const int row = n / dim, d = n % dim;
    to[row * (dim + 1) + d] = first + row < end ? To(widen(from[(first + row) * stride + d])) : To(0);
  }
}

// attention_row_sums — FP64, the softmax online over tiles of keys.
//   reads   Q and dO once, K and V once per 16 rows     writes  LSE, Δ and Δ's magnitude of every row     limit  shared memory's rate
template <class T>
__global__ void __launch_bounds__(rows* lanes) attention_row_sums(const __grid_constant__ RowArgs<T> a) {
  extern __shared__ double shared[];
  const int pitch = a.dim + 1, lane = int(threadIdx.x) % lanes, r = int(threadIdx.x) / lanes;
  double *p = shared, *q = p + rows * keys, *d_o = q + rows * pitch;
  float *k = reinterpret_cast<float*>(d_o + rows * pitch), *v = k + keys * pitch;  // exact: no input has more digits
  const int top = int(blockIdx.x) * rows, row = top + r;
  const int bottom = top + rows < a.band.len_q ? top + rows - 1 : a.band.len_q - 1;
  const bool here = row < a.band.len_q;
  const int first = here ? a.band.first(row) : 0, last = here ? a.band.last(row) : 0;
  load_rows(q, a.q, a.q_row, top, rows, a.band.len_q, a.dim);
  load_rows(d_o, a.d_o, a.do_row, top, rows, a.band.len_q, a.dim);

  double high = -INFINITY, sum = 0, delta = 0, size = 0, o[dims_per_lane] = {};  // sums of this lane's keys; o of its dimensions
  for (int tile = a.band.first(top); tile < a.band.last(bottom); tile += keys) {
    __syncthreads();  // the tile before has been read
    load_rows(k, a.k, a.k_row, tile, keys, a.band.len_k, a.dim);
    load_rows(v, a.v, a.v_row, tile, keys, a.band.len_k, a.dim);
    __syncthreads();
    double s[2] = {}, dp[2] = {};
    for (int d = 0; d < a.dim; ++d) {
      const double qd = q[r * pitch + d], od = d_o[r * pitch + d];
      for (int n = 0; n < 2; ++n) {
        const int at = (lane + n * lanes) * pitch + d;
        s[n] += qd * double(k[at]), dp[n] += od * double(v[at]);
      }
    }
    for (int n = 0; n < 2; ++n) {
      const int key = tile + lane + n * lanes;
      s[n] = key >= first && key < last ? a.scale * s[n] : -INFINITY;
    }
    const double now = fmax(high, largest_over_lanes(fmax(s[0], s[1])));
    const double shrink = now > high ? exp(high - now) : 1.0;
    high = now;
    sum *= shrink, delta *= shrink, size *= shrink;
    for (int n = 0; n < 2; ++n) {
      const double e = s[n] == -INFINITY ? 0.0 : exp(s[n] - high);
      sum += e, delta += e * dp[n], size += e * fabs(dp[n]);
      p[r * keys + lane + n * lanes] = e;
    }
    __syncwarp();  // a row's lanes are of one warp
    for (int m = 0; m * lanes + lane < a.dim; ++m) {
      double x = o[m] * shrink;
      for (int j = 0; j < keys; ++j) x += p[r * keys + j] * double(v[j * pitch + m * lanes + lane]);
      o[m] = x;
    }
    __syncwarp();
  }
  sum = over_lanes(sum), delta = over_lanes(delta), size = over_lanes(size);
  __syncthreads();  // dO is there, also where a block saw no key
  double of_o = 0;  // kernels form Δ from O as it is stored, so O's roundings are in it
  for (int m = 0; m * lanes + lane < a.dim; ++m) of_o += fabs(o[m] * d_o[r * pitch + m * lanes + lane]);
  of_o = over_lanes(of_o);
  if (!here || lane != 0) return;
  a.lse[row] = first < last ? high + log(sum) : -INFINITY;
  a.delta[row] = first < last ? delta / sum : 0.0;
  a.delta_size[row] = first < last ? (size + of_o) / sum : 0.0;
}

}  // namespace

RowSums row_sums_on_gpu(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& d_o, std::int64_t batch,
                        std::int64_t head, const Place& place) {
  const auto count = std::size_t(p.len_q), bytes = count * sizeof(double);
  RowSums sums{std::vector<double>(count), std::vector<double>(count), std::vector<double>(count)};
  const PlaceMemory memory = place.take(3 * bytes);
  double* at = static_cast<double*>(memory.data());
  const std::int64_t kv_head = head / p.group();
  with_float(p.precision.dtype, [&]<class T>() {
    const auto of = [batch](const Tensor& t, std::int64_t h) { return t.as<T>() + batch * t.stride[0] + h * t.stride[2]; };
    const RowArgs<T> args{.q = of(q, head),
                          .k = of(k, kv_head),
                          .v = of(v, kv_head),
                          .d_o = of(d_o, head),
                          .q_row = q.stride[1],
                          .k_row = k.stride[1],
                          .v_row = v.stride[1],
                          .do_row = d_o.stride[1],
                          .dim = int(p.head_dim),
                          .scale = double(p.scale_or_default()),
                          .band = in_32_bits(p.band()),
                          .lse = at,
                          .delta = at + count,
                          .delta_size = at + 2 * count};
    const std::size_t shared =
        sizeof(double) * std::size_t(2 * rows * (args.dim + 1) + rows * keys) + sizeof(float) * std::size_t(2 * keys * (args.dim + 1));
    launch(cuda_stream(place.stream()), attention_row_sums<T>, {grid_of(ceil_div(p.len_q, rows)), dim3(rows * lanes), shared}, args);
  });
  for (std::vector<double>* to : {&sums.lse, &sums.delta, &sums.delta_size}) place.copy_out(to->data(), at, bytes), at += count;
  return sums;
}

}  // namespace headroom::attention
