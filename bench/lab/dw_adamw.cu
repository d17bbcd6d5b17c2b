// dw_adamw.cu — a weight's gradient dW[m, n] = dY[k, m]ᵀ X[k, n] and its AdamW update in one kernel, so that the gradient never leaves the chip
// and the update's traffic runs under the next tile's products. Against cuBLASLt and the engine's update, in turns, each for 0.2 s.
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -gencode arch=compute_90a,code=sm_90a -I src bench/lab/dw_adamw.cu src/gpu/map.cpp src/gpu/check.cpp -lcublasLt -lfmt
//   ./dw_adamw check | ./dw_adamw time m n k … | ./dw_adamw once m n k …     (several weights: one launch of ours for all)
//
// One block of 12 warps per multiprocessor; two blocks are a cluster: 128 x 256 of dW each, one below the other, so that both read the same X and
// each fetches half of it for both. Warp 0 fetches, warps 4–11 multiply (64 x 256 each four), the other three update: the products leave the
// tile in shared memory as bf16, as the engine's gradient is, and go on with the next one.
#include <cublasLt.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gpu/launch.cuh"
#include "gpu/mma.cuh"
#include "gpu/tma.cuh"
#include "ops/copy/split.h"

using namespace headroom;
using T = __nv_bfloat16;

constexpr int tile_m = 128, tile_n = 256, threads = 384, updaters = 3, multipliers = 8, most_problems = 4, multiprocessors = 132;

struct Numbers {  // as in src/ops/adamw
  float factor, beta1, beta2, rest1, rest2, step, root2, eps, keep;
};
struct State {
  float *m, *v;
  bf16* upper;
  std::uint16_t* rest;
};
struct Problem {
  Map a, b, c;
  State state;
  int rows, columns, depth, first;  // first: number of its first tile (of a whole cluster)
};
struct Args {
  Problem problem[most_problems];
  Numbers numbers;
  int count, tiles;
};

enum class End { gradient, update };
template <int depth_, int stages_, int cluster_, End end_, int at_once_ = 2, bool stream_ = true, Keep keep_ = Keep::normal,
          bool paced_ = false>
struct Config {
  static constexpr int depth = depth_, stages = stages_, cluster = cluster_, at_once = at_once_;
  static constexpr End end = end_;
  static constexpr bool stream = stream_;  // the state passes through L2 without staying
  static constexpr Keep keep = keep_;      // of what is multiplied
  static constexpr bool paced = paced_;    // the update of a tile lasts as long as the next one's products
};

template <class C>
struct Shared {
  static constexpr int panel = C::depth * 128;
  struct Stage {
    char a[tile_m / 64 * panel], b[tile_n / 64 * panel];
  } stage[C::stages];
  char out[2][tile_n / 64][64 * 128];  // of each group of multipliers: bf16 panels of 64 rows
  Barrier full[C::stages], empty[C::stages], out_full, out_empty;
  volatile int steps_done;  // of all tiles; where all are as deep
};

struct Tile {
  const Problem* p;
  int row, column;
};
template <class C>
__device__ Tile tile_of(const Args& a, int number, int rank) {  // the shorter side first: what runs at once is about square
  int i = 0;
  while (i + 1 < a.count && number >= a.problem[i + 1].first) ++i;
  const Problem& p = a.problem[i];
  const int n = number - p.first, high = p.rows / (tile_m * C::cluster), wide = p.columns / tile_n;
  const int y = high < wide ? n % high : n / wide, x = high < wide ? n / high : n % wide;
  return {&p, (y * C::cluster + rank) * tile_m, x * tile_n};
}

__device__ __forceinline__ void advance(const Numbers& k, float g, float& w, float& m, float& v) {
  const float x = g * k.factor;
  m = k.beta1 * m + k.rest1 * x;
  v = k.beta2 * v + k.rest2 * x * x;
  w = k.keep * w - k.step * m / (sqrtf(v) * k.root2 + k.eps);
}
__device__ __forceinline__ void advance_pair(const Numbers& k, std::uint32_t g, std::uint32_t& upper, std::uint32_t& rest, float* m,
                                             float* v) {
  float w0 = copy::join({{std::uint16_t(upper)}, std::uint16_t(rest)}),
        w1 = copy::join({{std::uint16_t(upper >> 16)}, std::uint16_t(rest >> 16)});
  advance(k, __uint_as_float(g << 16), w0, m[0], v[0]);
  advance(k, __uint_as_float(g & 0xffff0000u), w1, m[1], v[1]);
  const copy::Halves h0 = copy::split(w0), h1 = copy::split(w1);
  upper = h0.upper.bits | std::uint32_t(h1.upper.bits) << 16, rest = h0.rest | std::uint32_t(h1.rest) << 16;
}
// The bits of √x and a/b as the language has them, without a branch each: right where usual() says so.
__device__ __forceinline__ float root(float x) {
  const float y = reciprocal_root_near(x), s = x * y;
  return fmaf(fmaf(-s, s, x), y * 0.5f, s);
}
__device__ __forceinline__ float quotient(float a, float b) {
  const float near = reciprocal_near(b), r = fmaf(near, fmaf(-b, near, 1), near), q = a * r;
  return fmaf(r, fmaf(-b, q, a), q);
}
__device__ __forceinline__ bool usual(float v, float a, float b) {  // a/b, its remainder and all between are normal numbers
  const auto within = [](std::uint32_t x, std::uint32_t low, std::uint32_t high) { return x - low <= high - low; };
  const auto power = [](int e) { return std::uint32_t(e + 127) << 23; };
  return within(__float_as_uint(v), 0x0d000000u, 0x7f7fffffu) && within(__float_as_uint(a) & 0x7fffffffu, power(-96), power(60)) &&
         within(__float_as_uint(b), power(-30), power(30));
}

// Eight weights at once, so that their arithmetic interleaves.
__device__ __forceinline__ void advance_eight(const Numbers& k, const uint2 (&g)[2], uint2 (&upper)[2], uint2 (&rest)[2], float4 (&m)[2],
                                              float4 (&v)[2]) {
  const auto word = [](auto& pair, int i) -> auto& { return i % 4 / 2 ? pair[i / 4].y : pair[i / 4].x; };
  const auto part = [](float4(&x)[2], int i) -> float& { return (&x[i / 4].x)[i % 4]; };
  float q[8];
  bool all_usual = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float x = __uint_as_float(i % 2 ? word(g, i) & 0xffff0000u : word(g, i) << 16) * k.factor;
    float &first = part(m, i), &second = part(v, i);
    first = k.beta1 * first + k.rest1 * x;
    second = k.beta2 * second + k.rest2 * x * x;
    const float a = k.step * first, b = root(second) * k.root2 + k.eps;
    q[i] = quotient(a, b);
    all_usual &= usual(second, a, b);
  }
  if (!all_usual) {
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = k.step * part(m, i) / (sqrtf(part(v, i)) * k.root2 + k.eps);
  }
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    std::uint32_t &up = word(upper, i), &low = word(rest, i);
    const float w0 = copy::join({{std::uint16_t(up)}, std::uint16_t(low)}),
                w1 = copy::join({{std::uint16_t(up >> 16)}, std::uint16_t(low >> 16)});
    const copy::Halves h0 = copy::split(k.keep * w0 - q[i]), h1 = copy::split(k.keep * w1 - q[i + 1]);
    up = h0.upper.bits | std::uint32_t(h1.upper.bits) << 16, low = h0.rest | std::uint32_t(h1.rest) << 16;
  }
}

template <bool stream, class V>
__device__ __forceinline__ V read(const V* p) {
  if constexpr (stream)
    return __ldcs(p);
  else
    return *p;
}
template <bool stream, class V>
__device__ __forceinline__ void write(V* p, const V& x) {
  if constexpr (stream)
    __stcs(p, x);
  else
    *p = x;
}

template <class C>
struct Rows {  // at_once rows of 256 weights on their way through a warp; a lane has four weights of each half row
  static constexpr int n = C::at_once;
  float4 m[n][2], v[n][2];
  uint2 upper[n][2], rest[n][2];

  static __device__ __forceinline__ std::int64_t at(const Tile& t, int row, int half) {
    return std::int64_t(t.row + row) * t.p->columns + t.column + half * 128 + threadIdx.x % 32 * 4;
  }
  __device__ __forceinline__ void fetch(const Tile& t, int first) {
    const State& s = t.p->state;
#pragma unroll
    for (int i = 0; i < n; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::int64_t o = at(t, first + i, j);
        m[i][j] = read<C::stream>(reinterpret_cast<const float4*>(s.m + o)),
        v[i][j] = read<C::stream>(reinterpret_cast<const float4*>(s.v + o));
        upper[i][j] = read<C::stream>(reinterpret_cast<const uint2*>(s.upper + o));
        rest[i][j] = read<C::stream>(reinterpret_cast<const uint2*>(s.rest + o));
      }
  }
  __device__ __forceinline__ void finish(const Numbers& k, const Tile& t, const Shared<C>& shared, int first) {
    const State& s = t.p->state;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const int row = first + i;
      uint2 g[2];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        g[j] = *reinterpret_cast<const uint2*>(shared.out[row / 64][j * 2 + lane / 16] + swizzled(row % 64, lane % 16 / 2) + lane % 2 * 8);
      advance_eight(k, g, upper[i], rest[i], m[i], v[i]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::int64_t o = at(t, row, j);
        write<C::stream>(reinterpret_cast<float4*>(s.m + o), m[i][j]), write<C::stream>(reinterpret_cast<float4*>(s.v + o), v[i][j]);
        write<C::stream>(reinterpret_cast<uint2*>(s.upper + o), upper[i][j]);
        write<C::stream>(reinterpret_cast<uint2*>(s.rest + o), rest[i][j]);
      }
    }
  }
};

// Every workers-th piece of at_once rows of the tile, the next one fetched before the last one is finished.
template <class C>
__device__ __forceinline__ void update(const Numbers& k, const Tile& t, Shared<C>& s, int worker, int workers, int parity, int round) {
  Rows<C> now, next;
  const int steps = t.p->depth / C::depth;
  now.fetch(t, worker * C::at_once);
  s.out_full.wait(parity);
#pragma unroll 1
  for (int first = worker * C::at_once; first < tile_m;) {
    const int then = first + workers * C::at_once;
    if (C::paced && workers == updaters)
      while (s.steps_done < (round + 1) * steps + min(then, tile_m) * steps / tile_m * 15 / 16) __nanosleep(200);
    if (then < tile_m) next.fetch(t, then);
    now.finish(k, t, s, first);
    now = next, first = then;
  }
}

template <class C>
__device__ __forceinline__ void fetch(const Args& a, Shared<C>& s, int first, int stride, int rank) {
  Turn<C::stages> turn;
  for (int number = first; number < a.tiles; number += stride) {
    const Tile t = tile_of<C>(a, number, rank);
    for (int k = 0; k < t.p->depth; k += C::depth, turn.next()) {
      auto& stage = s.stage[turn.stage];
      Barrier& full = s.full[turn.stage];
      s.empty[turn.stage].wait(turn.parity ^ 1);
      full.arrive_and_expect(sizeof stage);
      load(stage.a, t.p->a, full, C::keep, 0, k, t.row / 64);
      if constexpr (C::cluster == 1) {
        load(stage.b, t.p->b, full, C::keep, 0, k, t.column / 64);
        load(stage.b + 2 * s.panel, t.p->b, full, C::keep, 0, k, t.column / 64 + 2);
      } else {
        load_in_all(stage.b + rank * 2 * s.panel, t.p->b, full, C::keep, 3, 0, k, t.column / 64 + rank * 2);
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void multiply(const Args& a, Shared<C>& s, int first, int stride, int rank, int group) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const auto release = [&](int stage) {
    if (C::cluster == 1) {
      if (lane == 0) s.empty[stage].arrive();
    } else {
      if (lane < C::cluster) s.empty[stage].arrive_in(lane);
    }
  };
  Turn<C::stages> turn;
  int parity = 1, done = 0;
  Tile t{};
  for (int number = first; number < a.tiles; number += stride, parity ^= 1) {
    t = tile_of<C>(a, number, rank);
    float d[tile_n / 2];
    const int steps = t.p->depth / C::depth;
    int before = 0;
    for (int step = 0; step < steps; ++step, turn.next()) {
      s.full[turn.stage].wait_awake(turn.parity);
      const int at = offset(s.stage) + turn.stage * int(sizeof s.stage[0]);
      mma_fence();
#pragma unroll
      for (int i = 0; i < C::depth / 16; ++i)
        mma<T, Major::mn, Major::mn>(d, words.at(at + group * s.panel + mn_offset(i), s.panel),
                                     words.at(at + int(sizeof s.stage[0].a) + mn_offset(i), s.panel), step > 0 || i > 0);
      mma_commit();
      mma_wait<1>();
      if (step > 0) release(before);
      if (C::paced && threadIdx.x == 128) s.steps_done = ++done;
      before = turn.stage;
    }
    mma_wait<0>();
    pin(d);
    release(before);

    if constexpr (C::end == End::update) {
      s.out_empty.wait(parity);
    } else {
      if (threadIdx.x % 128 == 0) store_wait_read<0>();
      meet(1 + group, 128);
    }
    const int row = warp * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < tile_n / 8; j += 2)
      store_blocks(s.out[group][j / 8] + swizzled(row, j % 8 + lane / 16), pack<T>(d[4 * j], d[4 * j + 1]),
                   pack<T>(d[4 * j + 2], d[4 * j + 3]), pack<T>(d[4 * j + 4], d[4 * j + 5]), pack<T>(d[4 * j + 6], d[4 * j + 7]));
    if constexpr (C::end == End::update) {
      __syncwarp();
      if (lane == 0) s.out_full.arrive();
    } else {
      proxy_fence();
      meet(1 + group, 128);
      if (threadIdx.x % 128 == 0) {
        for (int p = 0; p < tile_n / 64; ++p) store(t.p->c, s.out[group][p], t.column + p * 64, t.row + group * 64);
        store_commit();
      }
    }
  }
  if constexpr (C::end == End::update) {
    if (t.p) update<C>(a.numbers, t, s, updaters + group * 4 + warp, updaters + multipliers, parity, 0);  // nothing left to multiply: help
  } else {
    if (threadIdx.x % 128 == 0) store_wait<0>();
  }
}

template <class C>
__global__ void __launch_bounds__(threads, 1) dw(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<C>*>(memory);
  const int warp = threadIdx.x / 32, rank = blockIdx.x % C::cluster, first = blockIdx.x / C::cluster, stride = gridDim.x / C::cluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::stages; ++i) s.full[i].init(1), s.empty[i].init(multipliers * C::cluster);
    s.out_full.init(multipliers), s.out_empty.init(updaters);
    s.steps_done = 0;
    barriers_ready();
  }
  C::cluster == 1 ? __syncthreads() : cluster_meet();

  if (warp >= 4) {
    multiply<C>(a, s, first, stride, rank, (warp - 4) / 4);
  } else {
    if (warp == 0) {
      if (threadIdx.x == 0) fetch<C>(a, s, first, stride, rank);
      __syncwarp();
    } else if constexpr (C::end == End::update) {
      int round = 0;
      for (int number = first; number < a.tiles; number += stride, ++round) {
        const Tile t = tile_of<C>(a, number, rank);
        update<C>(a.numbers, t, s, warp - 1, number + stride >= a.tiles ? updaters + multipliers : updaters, round % 2, round);
        __syncwarp();
        if (threadIdx.x % 32 == 0) s.out_empty.arrive();
      }
    }
  }
  if constexpr (C::cluster > 1) cluster_meet();  // nobody leaves while the other block still sends
}

// ---- the engine's update, of one matrix: a block per 4096 weights --------------------------------------------------
struct StepArgs {
  const T* grad;
  State at;
  Numbers k;
};
__global__ void __launch_bounds__(256) adamw(const __grid_constant__ StepArgs a) {
  const std::int64_t begin = std::int64_t(blockIdx.x) * 4096;
#pragma unroll 2
  for (int i = int(threadIdx.x) * 4; i < 4096; i += 1024) {
    const std::int64_t o = begin + i;
    const uint2 g = *reinterpret_cast<const uint2*>(a.grad + o);
    float4 m = *reinterpret_cast<const float4*>(a.at.m + o), v = *reinterpret_cast<const float4*>(a.at.v + o);
    uint2 upper = *reinterpret_cast<const uint2*>(a.at.upper + o), rest = *reinterpret_cast<const uint2*>(a.at.rest + o);
    advance_pair(a.k, g.x, upper.x, rest.x, &m.x, &v.x), advance_pair(a.k, g.y, upper.y, rest.y, &m.z, &v.z);
    *reinterpret_cast<float4*>(a.at.m + o) = m, *reinterpret_cast<float4*>(a.at.v + o) = v;
    *reinterpret_cast<uint2*>(a.at.upper + o) = upper, *reinterpret_cast<uint2*>(a.at.rest + o) = rest;
  }
}

// ---- the laboratory ------------------------------------------------------------------------------------------------
void ok(int error, const char* what, int line) {
  if (error == 0) return;
  std::printf("%s: error %d, line %d\n", what, error, line);
  std::exit(1);
}
#define OK(x) ok(int(x), #x, __LINE__)

__device__ std::uint32_t hashed(std::uint64_t i) {
  std::uint32_t h = std::uint32_t(i) * 2654435761u + std::uint32_t(i >> 32) * 97u;
  h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u;
  return h ^ h >> 16;
}
template <class V>
__global__ void fill(V* p, std::int64_t n, float scale, float low,
                     std::uint64_t seed) {  // about normal, or uniform from `low` when that is 0
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n; i += std::int64_t(gridDim.x) * blockDim.x) {
    const std::uint32_t h = hashed(i * 2 + seed), g = hashed(i * 2 + 1 + seed);
    const float u = ((h & 0xffff) + (h >> 16) + (g & 0xffff) + (g >> 16)) / 65536.f - 2;
    const float x = low == 0 ? fabsf(u) * scale : u * scale;
    if constexpr (std::is_same_v<V, std::uint16_t>)
      p[i] = std::uint16_t(h);
    else if constexpr (std::is_same_v<V, bf16>)
      p[i] = {__bfloat16_as_ushort(__float2bfloat16(x))};
    else
      p[i] = V(x);
  }
}
struct Difference {
  unsigned long long count;
  float most, largest;
};
template <class V>
__global__ void compare(const V* a, const V* b, std::int64_t n, Difference* d) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n; i += std::int64_t(gridDim.x) * blockDim.x) {
    float x, y;
    if constexpr (std::is_same_v<V, bf16>)
      x = widen(a[i]), y = widen(b[i]);
    else
      x = float(a[i]), y = float(b[i]);
    if (!(x == y)) atomicAdd(&d->count, 1), atomicMax(reinterpret_cast<int*>(&d->most), __float_as_int(fabsf(x - y)));
    atomicMax(reinterpret_cast<int*>(&d->largest), __float_as_int(fabsf(x)));
  }
}
template <class V>
void report(const char* what, const V* a, const V* b, std::int64_t n) {
  static Difference* d = [] {
    Difference* p;
    OK(cudaMallocManaged(&p, sizeof *p));
    return p;
  }();
  *d = {};
  compare<<<2048, 256>>>(a, b, n, d);
  OK(cudaDeviceSynchronize());
  std::printf("  %-28s %10llu of %lld differ, at most by %.3g (largest value %.3g)\n", what, d->count, (long long)n, d->most, d->largest);
}
template <class V>
V* room(std::int64_t n) {
  V* p;
  OK(cudaMalloc(&p, n * sizeof(V)));
  return p;
}

struct Matrix {  // everything of one weight
  std::int64_t m, n, k;
  bf16 *dy, *x;
  T *c, *c2;
  State s;
  cublasLtMatmulDesc_t d;
  cublasLtMatrixLayout_t la, lb, lc;
  cublasLtMatmulAlgo_t how;

  void renew() {
    fill<<<2048, 256>>>(s.m, m * n, 1e-3f, -1, 5), fill<<<2048, 256>>>(s.v, m * n, 1e-6f, 0, 6);
    fill<<<2048, 256>>>(s.upper, m * n, 2e-2f, -1, 7), fill<<<2048, 256>>>(s.rest, m * n, 0, 0, 8);
  }
  Matrix(std::int64_t m_, std::int64_t n_, std::int64_t k_) : m(m_), n(n_), k(k_) {
    dy = room<bf16>(k * m), x = room<bf16>(k * n), c = room<T>(m * n), c2 = room<T>(m * n);
    s = {room<float>(m * n), room<float>(m * n), room<bf16>(m * n), room<std::uint16_t>(m * n)};
    fill<<<2048, 256>>>(dy, k * m, 1e-2f, -1, 1), fill<<<2048, 256>>>(x, k * n, 1, -1, 2);
    renew();
    choose();
  }
  static cublasLtHandle_t handle() {
    static cublasLtHandle_t h = [] {
      cublasLtHandle_t x;
      OK(cublasLtCreate(&x));
      return x;
    }();
    return h;
  }
  int start(const cublasLtMatmulAlgo_t& a) const {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle(), d, &one, x, lb, dy, la, &zero, c, lc, c, lc, &a, workspace(), workspace_bytes, nullptr);
  }
  static constexpr std::size_t workspace_bytes = 32 << 20;
  static char* workspace() {
    static char* const at = room<char>(workspace_bytes);
    return at;
  }
  void choose() {  // as the engine: the fastest of twelve
    OK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t f = CUBLAS_OP_N, g = CUBLAS_OP_T;  // Cᵀ = Xᵀ dY with columns counted first
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &f, sizeof f));
    OK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &g, sizeof g));
    OK(cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, n, k, n)), OK(cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, m, k, m));
    OK(cublasLtMatrixLayoutCreate(&lc, CUDA_R_16BF, n, m, n));
    cublasLtMatmulPreference_t wish;
    OK(cublasLtMatmulPreferenceCreate(&wish));
    const std::size_t most = workspace_bytes;
    OK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    cublasLtMatmulHeuristicResult_t found[12];
    int count = 0;
    OK(cublasLtMatmulAlgoGetHeuristic(handle(), d, lb, la, lc, lc, wish, 12, found, &count));
    float best = 1e9f;
    cudaEvent_t from, to;
    OK(cudaEventCreate(&from)), OK(cudaEventCreate(&to));
    for (int i = 0; i < count; ++i)
      for (int turn = 0; turn < 4; ++turn) {
        float ms;
        cudaEventRecord(from);
        if (start(found[i].algo)) break;
        cudaEventRecord(to), cudaEventSynchronize(to), cudaEventElapsedTime(&ms, from, to);
        if (turn && ms < best * (i ? .98f : 1.f)) best = ms, how = found[i].algo;
      }
    OK(cublasLtMatmulPreferenceDestroy(wish));
  }
};

constexpr Numbers numbers{1.0f, 0.9f, 0.95f, 0.1f, 0.05f, 3e-4f, 1.02f, 1e-8f, 0.99997f};

template <class C>
void ours(std::vector<Matrix*> all, T* Matrix::*to = &Matrix::c2) {
  Args a{};
  a.numbers = numbers, a.count = int(all.size());
  for (int i = 0; i < a.count; ++i) {
    const Matrix& x = *all[i];
    Problem& p = a.problem[i];
    const auto map = [&](const bf16* at, std::int64_t columns) {  // panels of 64 columns side by side
      return make_map(
          reinterpret_cast<const T*>(at),
          MapShape{
              3, {64, std::uint64_t(x.k), std::uint64_t(columns / 64)}, {1, std::uint64_t(columns), 64}, {64, std::uint32_t(C::depth), 2}});
    };
    p.a = map(x.dy, x.m), p.b = map(x.x, x.n);
    p.c = make_map(x.*to, MapShape{2, {std::uint64_t(x.n), std::uint64_t(x.m)}, {1, std::uint64_t(x.n)}, {64, 64}});
    p.state = x.s, p.rows = int(x.m), p.columns = int(x.n), p.depth = int(x.k), p.first = a.tiles;
    a.tiles += int(x.m / (tile_m * C::cluster) * (x.n / tile_n));
  }
  launch<Args>(nullptr, dw<C>, {.blocks = multiprocessors, .threads = threads, .shared_bytes = sizeof(Shared<C>), .cluster = C::cluster},
               a);
}
void cublas(const std::vector<Matrix*>& all) {
  for (const Matrix* x : all) OK(x->start(x->how));
}
void engine(const Matrix& x, const T* grad) { launch<StepArgs>(nullptr, adamw, {unsigned(x.m * x.n / 4096), 256}, {grad, x.s, numbers}); }

struct Way {
  const char* name;
  std::function<void(const std::vector<Matrix*>&)> run;
  bool updates;
};
template <class C>
Way way(const char* name) {
  return {name, [](const std::vector<Matrix*>& all) { ours<C>(all); }, C::end == End::update};
}
std::vector<Way> ways() {
  constexpr End g = End::gradient, u = End::update;
  const std::vector<Way> all = {
      {"cuBLASLt", cublas, false},
      way<Config<32, 6, 2, g>>("ours, 6 x 32, pairs"),
      way<Config<64, 3, 2, g>>("ours, 3 x 64, pairs"),
      way<Config<32, 6, 1, g>>("ours, 6 x 32, alone"),
      {"cuBLASLt + update",
       [](const std::vector<Matrix*>& all) {
         for (Matrix* x : all) OK(x->start(x->how)), engine(*x, x->c);
       },
       true},
      way<Config<32, 6, 2, u>>("fused, 6 x 32, pairs"),
      way<Config<32, 6, 2, u, 1>>("fused, …, one row at once"),
      way<Config<32, 6, 2, u, 2, false>>("fused, …, state stays in L2"),
      way<Config<32, 6, 2, u, 2, true, Keep::long_time>>("fused, …, operands stay"),
      way<Config<64, 3, 2, u>>("fused, 3 x 64, pairs"),
      way<Config<32, 6, 2, u, 2, true, Keep::normal, true>>("fused, …, paced"),
  };
  const char* chosen = std::getenv("WAYS");  // numbers of those that run, with blanks around; else all
  if (!chosen) return all;
  std::vector<Way> some;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (std::strstr(chosen, (" " + std::to_string(i) + " ").c_str())) some.push_back(all[i]);
  return some;
}

void check_all() {
  for (auto [m, n, k] : {std::array<int, 3>{256, 256, 64}, {2560, 2560, 4096}, {7680, 2560, 1024}, {2560, 10240, 512}}) {
    Matrix x(m, n, k), reference(m, n, k);
    std::printf("%d x %d x %d\n", m, n, k);
    OK(x.start(x.how));
    OK(cudaMemcpy(x.c2, x.c, x.m * x.n * 2, cudaMemcpyDeviceToDevice));
    for (const Way& w : ways()) {
      alarm(8);
      if (w.name == std::string("cuBLASLt") || w.name == std::string("cuBLASLt + update")) continue;
      std::printf(" %s\n", w.name), std::fflush(stdout);
      if (!w.updates) {
        OK(cudaMemset(x.c2, 0x7f, x.m * x.n * 2));
        w.run({&x});
        OK(cudaDeviceSynchronize());
        report("gradient", reinterpret_cast<bf16*>(x.c), reinterpret_cast<bf16*>(x.c2), x.m * x.n);
      } else {
        x.renew(), reference.renew();
        engine(reference, x.c2), w.run({&x});  // c2: the gradient as our own products gave it
        OK(cudaDeviceSynchronize());
        report("first moment", reference.s.m, x.s.m, x.m * x.n), report("second moment", reference.s.v, x.s.v, x.m * x.n);
        report("weight, upper", reference.s.upper, x.s.upper, x.m * x.n), report("weight, rest", reference.s.rest, x.s.rest, x.m * x.n);
      }
      std::fflush(stdout);
    }
    for (Matrix* p : {&x, &reference})
      for (void* q :
           {(void*)p->dy, (void*)p->x, (void*)p->c, (void*)p->c2, (void*)p->s.m, (void*)p->s.v, (void*)p->s.upper, (void*)p->s.rest})
        OK(cudaFree(q));
  }
}

void time_all(std::vector<Matrix*> all) {
  cudaEvent_t from, to;
  OK(cudaEventCreate(&from)), OK(cudaEventCreate(&to));
  double flops = 0, weights = 0;
  for (const Matrix* x : all) flops += 2.0 * x->m * x->n * x->k, weights += double(x->m) * x->n;
  const auto run = [&](const Way& w, int times) {
    float ms;
    OK(cudaEventRecord(from));
    for (int i = 0; i < times; ++i) w.run(all);
    OK(cudaEventRecord(to)), OK(cudaEventSynchronize(to)), OK(cudaEventElapsedTime(&ms, from, to));
    return ms / times;
  };
  const auto list = ways();
  for (const Matrix* x : all) std::printf("%ld x %ld x %ld  ", long(x->m), long(x->n), long(x->k));
  std::printf("\n");
  for (int turn = 0; turn < 2; ++turn)
    for (const Way& w : list) {
      alarm(20);
      const float guess = run(w, 3);
      run(w, std::max(1, int(60 / guess)));
      const float ms = run(w, std::max(1, int(200 / guess)));
      std::printf("  %d %-28s %.4f ms  %.0f TFLOP/s\n", turn, w.name, ms, flops / ms * 1e-9);
      std::fflush(stdout);
    }
}

int main(int n, char** v) {
  alarm(30);
  try {
    if (n > 1 && !std::strcmp(v[1], "check")) check_all();
    std::vector<Matrix*> all;
    for (int i = 2; i + 2 < n; i += 3) all.push_back(new Matrix(std::atol(v[i]), std::atol(v[i + 1]), std::atol(v[i + 2])));
    if (n > 1 && !std::strcmp(v[1], "once"))
      for (const Way& w : ways()) w.run(all);
    if (n > 1 && !std::strcmp(v[1], "time")) time_all(all);
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  OK(cudaDeviceSynchronize());
}
