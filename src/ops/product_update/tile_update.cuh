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
#include "ops/product_update/impl.h"
#include "ops/product_update/runs_of_weights.cuh"

namespace headroom::product_update {

constexpr int cluster = pair_blocks;  // blocks share rows of the weight; both read X

struct Weight {
  Map dy, x;
  void *m, *v;               // as a launch's Moments have them
  float *m_scale, *v_scale;  // scales of 8-bit moments
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

// What a tile's update is told beside the tile.
struct By {
  adamw::Numbers k;
  adamw::Noise noise;
  bool ordinary;
  __device__ __forceinline__ By(const adamw::Numbers& k, std::uint32_t parameter)
      : k(k), noise(k, parameter), ordinary(adamw::ordinary(k)) {}
};

template <int columns, int n, bool Cut, class Moments>
struct Rows {  // rows of a tile that a warp updates together; a lane has n times two runs of four weights
  static constexpr int runs_of_row = columns / 128, runs = 2 * n, count = runs / runs_of_row;
  static constexpr bool whole = std::is_same_v<Moments, WholeMoments>, codes = std::is_same_v<Moments, EightBitMoments>;
  static_assert(!codes || columns == adamw::moments_block);
  using Number = typename Moments::Number;
  using Four = typename Moments::Four;
  Four m[runs], v[runs];
  float m_scale[codes ? count : 1], v_scale[codes ? count : 1];
  uint2 upper[runs], rest[runs];

  template <class W>
  static __device__ __forceinline__ std::int64_t at(const TileOf<W>& t, int first, int run) {
    return std::int64_t(t.row + first + run / runs_of_row) * t.w->columns + t.column + run % runs_of_row * 128 + threadIdx.x % 32 * 4;
  }
  template <class W>
  static __device__ __forceinline__ bool within(const TileOf<W>& t, int first, int run) {
    return !Cut ||
           (t.row + first + run / runs_of_row < t.w->rows && t.column + run % runs_of_row * 128 + int(threadIdx.x) % 32 * 4 < t.w->columns);
  }
  static __device__ __forceinline__ Four* four(void* of, std::int64_t o) { return reinterpret_cast<Four*>(static_cast<Number*>(of) + o); }
  template <class W>
  static __device__ __forceinline__ std::int64_t block_of(const TileOf<W>& t, int row) {  // the number of a row's block of 256 columns
    return (std::int64_t(t.row + row) * t.w->columns + t.column) / adamw::moments_block;
  }
  template <class W>
  __device__ __forceinline__ void fetch(const TileOf<W>& t, int first) {  // evict-first in L2
    const W& w = *t.w;
    if constexpr (codes) {
#pragma unroll
      for (int row = 0; row < count; ++row) {
        m_scale[row] = v_scale[row] = 1;
        if (within(t, first, row * runs_of_row)) {
          m_scale[row] = __ldcs(w.m_scale + block_of(t, first + row));
          v_scale[row] = __ldcs(w.v_scale + block_of(t, first + row));
        }
      }
    }
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      if (!within(t, first, run)) {
        m[run] = v[run] = Moments::usual, upper[run] = rest[run] = {0, 0};  // placeholder values; never stored
        continue;
      }
      const std::int64_t o = at(t, first, run);
      m[run] = __ldcs(four(w.m, o));
      v[run] = __ldcs(four(w.v, o));
      upper[run] = __ldcs(reinterpret_cast<const uint2*>(w.upper + o));
      rest[run] = __ldcs(reinterpret_cast<const uint2*>(w.rest + o));
    }
  }
  template <class W>
  __device__ __forceinline__ void finish(const By& by, const TileOf<W>& t, const Gradient<columns>& gradient, int first) {
    const W& w = *t.w;
    const int lane = threadIdx.x % 32;
    uint2 g[runs];
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      const int row = first + run / runs_of_row;
      g[run] = *reinterpret_cast<const uint2*>(gradient[row / 64][run % runs_of_row * 2 + lane / 16] + swizzled(row % 64, lane % 16 / 2) +
                                               lane % 2 * 8);
    }
    if constexpr (whole)
      advance_whole(by.k, g, upper, rest, m, v);
    else
      advance(by, t, g, first);
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      if (!within(t, first, run)) continue;
      const std::int64_t o = at(t, first, run);
      __stcs(four(w.m, o), m[run]);
      __stcs(four(w.v, o), v[run]);
      __stcs(reinterpret_cast<uint2*>(w.upper + o), upper[run]);
      __stcs(reinterpret_cast<uint2*>(w.rest + o), rest[run]);
    }
  }

 private:
  static __device__ __forceinline__ float& part(float4& x, int e) { return (&x.x)[e]; }

  // The same where moments are not FP32: made FP32, used, and rounded again as ops/adamw does it. The random bits come first: they wait for nothing.
  template <class W>
  __device__ __forceinline__ void advance(const By& by, const TileOf<W>& t, const uint2 (&g)[runs], int first) {
    using adamw::Noise;
    std::uint32_t bits[runs][4];
#pragma unroll
    for (int run = 0; run < runs; ++run) by.noise.of_neighbours(at(t, first, run), bits[run]);
    float4 m_wide[runs], v_wide[runs];
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      if constexpr (codes) {
        m_wide[run] = adamw::first_moments(m[run], m_scale[run / runs_of_row]);
        v_wide[run] = adamw::second_moments(v[run], v_scale[run / runs_of_row]);
      } else {
        m_wide[run] = adamw::four_of_halves(m[run]), v_wide[run] = adamw::four_of_halves(v[run]);
      }
    }
    const adamw::Largest largest = advance_narrow(by.k, by.ordinary, g, upper, rest, m_wide, v_wide);
    if constexpr (codes) {
#pragma unroll
      for (int row = 0; row < count; ++row) encode_row(t, m_wide, v_wide, bits, first, row);
    } else if (max(largest.m, largest.v) <= bits_of(INFINITY)) {
#pragma unroll
      for (int run = 0; run < runs; ++run) {
        m[run] = adamw::halves_of_numbers(m_wide[run], bits[run], Noise::first);
        v[run] = adamw::halves_of_numbers(v_wide[run], bits[run], Noise::second);
      }
    } else {
#pragma unroll
      for (int run = 0; run < runs; ++run) {
        m[run] = adamw::halves_of_any(m_wide[run], bits[run], Noise::first);
        v[run] = adamw::halves_of_any(v_wide[run], bits[run], Noise::second);
      }
    }
  }

  // A row of a tile is a block of moments in 8 bits: its scales, then its codes.
  template <class W>
  __device__ __forceinline__ void encode_row(const TileOf<W>& t, float4 (&m_wide)[runs], float4 (&v_wide)[runs],
                                             std::uint32_t (&bits)[runs][4], int first, int row) {
    using adamw::FirstMoment, adamw::SecondMoment;
    constexpr int fours = runs_of_row;
    const auto of_row = [&](auto& of) -> auto& {
      return reinterpret_cast<std::remove_reference_t<decltype(of[0])>(&)[fours]>(of[row * fours]);
    };
    float m_most = 0;
    std::uint32_t v_most = 0;
#pragma unroll
    for (int i = 0; i < 4 * fours; ++i) {
      m_most = adamw::larger(m_most, part(of_row(m_wide)[i / 4], i % 4));
      v_most = max(v_most, bits_of(part(of_row(v_wide)[i / 4], i % 4)) & 0x7fffffff);
    }
    const float m_next = FirstMoment::Of::scale(float_of(__reduce_max_sync(~0u, bits_of(m_most)))),
                v_next = SecondMoment::Of::scale(float_of(__reduce_max_sync(~0u, v_most)));
    if (threadIdx.x % 32 == 0 && within(t, first, row * runs_of_row)) {
      t.w->m_scale[block_of(t, first + row)] = m_next;
      t.w->v_scale[block_of(t, first + row)] = v_next;
    }
    adamw::encode(of_row(m_wide), of_row(v_wide), of_row(bits), m_next, v_next, of_row(m), of_row(v));
  }
};

// Every workers-th of the tile's groups of rows, the next one fetched before the last one is finished.
template <int columns, int n, bool Cut, class Moments, class W>
__device__ __forceinline__ void update(const adamw::Numbers* numbers, const TileOf<W>& t, const Gradient<columns>& gradient, Barrier& full,
                                       int worker, int workers, int parity) {
  using These = Rows<columns, n, Cut, Moments>;
  const By by(*numbers, t.w->parameter);
  These now, next;
  now.fetch(t, worker * These::count);
  full.wait(parity);
#pragma unroll 1
  for (int first = worker * These::count; first < 128;) {
    const int then = first + workers * These::count;
    if (then < 128) next.fetch(t, then);
    now.finish(by, t, gradient, first);
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
  int parity = 0;
  for (int turn = d.completing(walk.first, walk.stride); turn < d.turns(); parity ^= 1) {
    const int then = d.completing(turn + walk.stride, walk.stride);
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
