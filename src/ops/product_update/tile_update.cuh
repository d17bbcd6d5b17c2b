// What products that update their weights share, of either width of operands: tiles are numbered over all weights of a launch; one warp fetches
// operands into a ring of stages, eight multiply, and leave a tile's gradient in shared memory as bf16; the others update the weights under it. Cut:
// some weight's sides are no multiples of a tile, and what lies past them is left alone. deal.h says which cluster has which tiles.
#pragma once
#include <algorithm>

#include "base/divide.h"
#include "gpu/launch.cuh"
#include "gpu/product_ring.cuh"
#include "ops/adamw/codes.cuh"
#include "ops/product_update/deal.h"
#include "ops/product_update/eight_weights.cuh"
#include "ops/product_update/impl.h"

namespace headroom::product_update {

constexpr int cluster = pair_blocks;  // of the weight's rows; what both read is X

struct Weight {
  Map dy, x;
  void *m, *v;               // as a launch's Moments have them
  float *m_scale, *v_scale;  // of 8-bit ones
  std::uint32_t parameter;
  bf16* upper;
  std::uint16_t* rest;
  int rows, columns, tokens, first;  // first: number of its first tile (of a whole cluster)
};
template <class W>
struct ArgsOf {
  const adamw::Numbers* numbers;
  W weight[most_items];
  int count, tiles;
  Deal deal;
};

// How the moments of a launch are stored: what a lane has of four neighbours.
struct WholeMoments {
  using Number = float;
  using Four = float4;
  static constexpr Four usual{1, 1, 1, 1};
};
struct HalfMoments {
  using Number = bf16;
  using Four = uint2;
  static constexpr Four usual{0x3f803f80u, 0x3f803f80u};
};
struct EightBitMoments {  // a warp has a whole block of 256, which shares a scale
  using Number = std::uint8_t;
  using Four = std::uint32_t;
  static constexpr Four usual = 0x70707070u;
};

template <int columns>
using Gradient = LeftTile<columns>;

template <class W>
struct TileOf {
  const W* w;
  int row, column;
};
template <int tile_rows, int tile_columns, class W>
__device__ __forceinline__ TileOf<W> tile_of(const ArgsOf<W>& a, int number,
                                             int rank) {  // the shorter side first: concurrent tiles form a square
  int i = 0;
  while (i + 1 < a.count && number >= a.weight[i + 1].first) ++i;
  const W& w = a.weight[i];
  const int n = number - w.first, high = ceil_div(w.rows, tile_rows * cluster), wide = ceil_div(w.columns, tile_columns);
  const int y = high < wide ? n % high : n / wide, x = high < wide ? n / high : n % wide;
  return {&w, (y * cluster + rank) * tile_rows, x * tile_columns};
}

template <int tile_rows, int tile_columns, class W>
void add_weight(ArgsOf<W>& a, W weight, const Item& i) {
  const adamw::Update& u = i.weight;
  for (const Tensor* t : {&u.m, &u.v, &u.copy, &u.rest})
    check(reinterpret_cast<std::uintptr_t>(t->data) % 16 == 0, Code::bad_argument,
          "product_update: weights and moments must begin on 16 bytes; one is at {}", t->data);
  weight.m = u.m.data, weight.v = u.v.data, weight.upper = u.copy.as<bf16>(), weight.rest = u.rest.as<std::uint16_t>();
  weight.m_scale = u.m_scale.as<float>(), weight.v_scale = u.v_scale.as<float>(), weight.parameter = u.parameter;
  weight.rows = int(u.copy.shape[0]), weight.columns = int(u.copy.shape[1]), weight.tokens = int(i.tokens()), weight.first = a.tiles;
  a.weight[a.count++] = weight;
  a.tiles += ceil_div(weight.rows, tile_rows * cluster) * ceil_div(weight.columns, tile_columns);
}

template <int columns, int n, bool Cut, class Moments>
struct Rows {  // rows of a tile that a warp updates together; a lane has n times two runs of four weights
  static constexpr int runs_of_row = columns / 128, count = 2 * n / runs_of_row;
  static constexpr bool whole = std::is_same_v<Moments, WholeMoments>, codes = std::is_same_v<Moments, EightBitMoments>;
  static_assert(!codes || columns == adamw::moments_block);
  using Number = typename Moments::Number;
  using Four = typename Moments::Four;
  Four m[n][2], v[n][2];
  float m_scale[codes ? n : 1], v_scale[codes ? n : 1];
  uint2 upper[n][2], rest[n][2];

  static constexpr __device__ __forceinline__ int row_of(int i, int j) { return (2 * i + j) / runs_of_row; }
  static constexpr __device__ __forceinline__ int run_of(int i, int j) { return (2 * i + j) % runs_of_row; }
  template <class W>
  static __device__ __forceinline__ std::int64_t at(const TileOf<W>& t, int row, int run) {
    return std::int64_t(t.row + row) * t.w->columns + t.column + run * 128 + threadIdx.x % 32 * 4;
  }
  template <class W>
  static __device__ __forceinline__ bool within(const TileOf<W>& t, int row, int run) {
    return !Cut || (t.row + row < t.w->rows && t.column + run * 128 + int(threadIdx.x) % 32 * 4 < t.w->columns);
  }
  static __device__ __forceinline__ Four* four(void* of, std::int64_t o) { return reinterpret_cast<Four*>(static_cast<Number*>(of) + o); }
  template <class W>
  static __device__ __forceinline__ std::int64_t block_of(const TileOf<W>& t, int row) {  // of 256 columns
    return (std::int64_t(t.row + row) * t.w->columns + t.column) / adamw::moments_block;
  }
  template <class W>
  __device__ __forceinline__ void fetch(const TileOf<W>& t, int first) {  // evict-first in L2
    const W& w = *t.w;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if constexpr (codes) {
        m_scale[i] = v_scale[i] = 1;
        if (within(t, first + row_of(i, 0), 0)) {
          m_scale[i] = __ldcs(w.m_scale + block_of(t, first + row_of(i, 0)));
          v_scale[i] = __ldcs(w.v_scale + block_of(t, first + row_of(i, 0)));
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!within(t, first + row_of(i, j), run_of(i, j))) {
          m[i][j] = v[i][j] = Moments::usual, upper[i][j] = rest[i][j] = {0, 0};  // placeholder values; never stored
          continue;
        }
        const std::int64_t o = at(t, first + row_of(i, j), run_of(i, j));
        m[i][j] = __ldcs(four(w.m, o));
        v[i][j] = __ldcs(four(w.v, o));
        upper[i][j] = __ldcs(reinterpret_cast<const uint2*>(w.upper + o));
        rest[i][j] = __ldcs(reinterpret_cast<const uint2*>(w.rest + o));
      }
    }
  }
  template <class W>
  __device__ __forceinline__ void finish(const adamw::Numbers& k, const TileOf<W>& t, const Gradient<columns>& gradient, int first) {
    const W& w = *t.w;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      uint2 g[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = first + row_of(i, j);
        g[j] = *reinterpret_cast<const uint2*>(gradient[row / 64][run_of(i, j) * 2 + lane / 16] + swizzled(row % 64, lane % 16 / 2) +
                                               lane % 2 * 8);
      }
      if constexpr (whole)
        advance_eight(k, g, upper[i], rest[i], m[i], v[i]);
      else
        advance_narrow(k, t, g, i, first);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!within(t, first + row_of(i, j), run_of(i, j))) continue;
        const std::int64_t o = at(t, first + row_of(i, j), run_of(i, j));
        __stcs(four(w.m, o), m[i][j]);
        __stcs(four(w.v, o), v[i][j]);
        __stcs(reinterpret_cast<uint2*>(w.upper + o), upper[i][j]);
        __stcs(reinterpret_cast<uint2*>(w.rest + o), rest[i][j]);
      }
    }
  }

 private:
  // The same eight where moments are not FP32: made FP32, used, and rounded again as ops/adamw does it.
  template <class W>
  __device__ __forceinline__ void advance_narrow(const adamw::Numbers& k, const TileOf<W>& t, const uint2 (&g)[2], int i, int first) {
    using adamw::FirstMoment, adamw::SecondMoment, adamw::Noise;
    float4 m_wide[2], v_wide[2];
    const auto part = [](float4(&x)[2], int e) -> float& { return (&x[e / 4].x)[e % 4]; };
    if constexpr (codes) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        m_wide[j] = adamw::first_moments(m[i][j], m_scale[i]);
        v_wide[j] = adamw::second_moments(v[i][j], v_scale[i]);
      }
    } else {
      const auto wide = [](const uint2& x) {
        return make_float4(__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u), __uint_as_float(x.y << 16),
                           __uint_as_float(x.y & 0xffff0000u));
      };
#pragma unroll
      for (int j = 0; j < 2; ++j) m_wide[j] = wide(m[i][j]), v_wide[j] = wide(v[i][j]);
    }
    advance_eight<true>(k, g, upper[i], rest[i], m_wide, v_wide);
    float of_m = 0, of_v = 0;
    if constexpr (codes) {
      std::uint32_t m_most = 0, v_most = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        m_most = max(m_most, bits_of(part(m_wide, e)) & 0x7fffffff);
        v_most = max(v_most, bits_of(part(v_wide, e)) & 0x7fffffff);
      }
      const float m_next = FirstMoment::Of::scale(float_of(__reduce_max_sync(~0u, m_most))),
                  v_next = SecondMoment::Of::scale(float_of(__reduce_max_sync(~0u, v_most)));
      of_m = 1 / m_next, of_v = 1 / v_next;
      if (threadIdx.x % 32 == 0 && within(t, first + row_of(i, 0), 0)) {
        t.w->m_scale[block_of(t, first + row_of(i, 0))] = m_next;
        t.w->v_scale[block_of(t, first + row_of(i, 0))] = v_next;
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::int64_t o = at(t, first + row_of(i, j), run_of(i, j));
      const Noise noise(k, t.w->parameter, o);
      const std::uint32_t bits[4] = {noise.of(o), noise.of(o + 1), noise.of(o + 2), noise.of(o + 3)};
      if constexpr (codes) {
        m[i][j] = adamw::first_codes(m_wide[j], of_m, bits);
        v[i][j] = adamw::second_codes(v_wide[j], of_v, bits);
      } else {
        m[i][j] = v[i][j] = Four{};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const auto put = [&](uint2& to, bf16 x) { (e / 2 ? to.y : to.x) |= std::uint32_t(x.bits) << (e % 2 * 16); };
          put(m[i][j], adamw::half_of(part(m_wide, 4 * j + e), Noise::first(bits[e])));
          put(v[i][j], adamw::half_of(part(v_wide, 4 * j + e), Noise::second(bits[e])));
        }
      }
    }
  }
};

// Every workers-th of the tile's groups of rows, the next one fetched before the last one is finished.
template <int columns, int n, bool Cut, class Moments, class W>
__device__ __forceinline__ void update(const adamw::Numbers* numbers, const TileOf<W>& t, const Gradient<columns>& gradient, Barrier& full,
                                       int worker, int workers, int parity) {
  using These = Rows<columns, n, Cut, Moments>;
  const adamw::Numbers k = *numbers;
  These now, next;
  now.fetch(t, worker * These::count);
  full.wait(parity);
#pragma unroll 1
  for (int first = worker * These::count; first < 128;) {
    const int then = first + workers * These::count;
    if (then < 128) next.fetch(t, then);
    now.finish(k, t, gradient, first);
    now = next;
    first = then;
  }
}

// A warp that does nothing else: of every tile that its cluster completes its share. Under the last one the multipliers, which have no products left,
// take theirs.
template <int tile_rows, int tile_columns, int n, bool Cut, class Moments, class W, int stages>
__device__ __forceinline__ void update_tiles(const ArgsOf<W>& a, Rings<stages>& s, const Gradient<tile_columns>& gradient,
                                             const Walker& walk, int worker, int updaters) {
  const Deal& d = a.deal;
  const auto completing = [&](int turn) {  // the first from there on
    while (turn < d.turns() && d.completed(turn) < 0) turn += walk.stride;
    return turn;
  };
  int parity = 0;
  for (int turn = completing(walk.first); turn < d.turns(); parity ^= 1) {
    const int then = completing(turn + walk.stride);
    update<tile_columns, n, Cut, Moments>(a.numbers, tile_of<tile_rows, tile_columns>(a, d.completed(turn), walk.rank), gradient,
                                          s.out_full, worker, then < d.turns() ? updaters : updaters + multipliers, parity);
    s.out_empty.arrive();  // every lane, for what it has read
    turn = then;
  }
}

// ---- host ------------------------------------------------------------------------------------------------------------
template <class A>
void launch_clusters(void (*kernel)(A), const A& a, int threads, std::size_t shared_bytes, Context& ctx) {
  const int clusters = std::min(ctx.device.units / cluster, a.deal.turns());
  launch(cuda_stream(ctx.stream), kernel,
         {.blocks = unsigned(clusters * cluster), .threads = unsigned(threads), .shared_bytes = shared_bytes, .cluster = cluster}, a);
}

}  // namespace headroom::product_update
