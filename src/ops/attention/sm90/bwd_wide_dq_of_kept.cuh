// bwd_wide_dq_of_kept.cuh — dQ = dS K of head dims up to 256, from the dS that dK and dV's kernel kept: a block owns 128 rows and streams keys past them.
#pragma once
#include "gpu/launch.cuh"
#include "gpu/transpose.cuh"
#include "ops/attention/sm90/bwd_wide.cuh"

namespace headroom::attention::sm90::backward {

template <class C>
struct ProductShared {
  using T = typename C::T;
  T k[C::product_stages][C::keys * C::dim];
  uint4 ds[C::product_stages][2][kept_vectors];  // 64 rows each
  Barrier full[C::product_stages], empty[C::product_stages];
  Handover next;
};

struct ProductTile {
  int row, pair, head, batch;  // first row; (pair, query head) of the range; query head and batch of the problem
  const uint4* ds;             // the head's
  TileSpan seen[2];            // key tiles that each half of the rows sees
  int begin, end;              // and both
};
template <class C>
__device__ __forceinline__ ProductTile find_product_tile(const WideArgs& a, int index) {
  const Kept& kept = a.kept;
  if constexpr (C::reach == Reach::listed) {  // tiles of rows of all query heads of the range, the last rows first
    const KeptDocuments& d = a.kept_of_documents;
    const QueryHeads in = heads_in_range(a);
    const int heads = in.end - in.first, unit = in.first + index % heads, batch = unit / a.heads, head = unit % a.heads;
    ProductTile t{(a.tiles_per_head - 1 - index / heads) * C::dq_rows,
                  index % heads,
                  head,
                  batch,
                  static_cast<const uint4*>(kept.ds) + (d.place(batch, head) - d.ranges[d.range].place) * kept_vectors,
                  {},
                  INT_MAX,
                  0};
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const int m = t.row / kept_side + g;
      if (m < d.row_tiles) {
        const Run tiles = d.tiles_of_rows[std::size_t(batch) * d.row_tiles + m];
        t.seen[g] = {tiles.first, tiles.first, tiles.last, tiles.last};
        if (tiles.last > tiles.first) t.begin = min(t.begin, tiles.first), t.end = max(t.end, tiles.last);
      }
    }
    return t;
  }
  const Place at = place(a, index, kept.pairs * kept.heads, true);
  const int pair = kept.first_pair + at.pair / kept.heads;
  ProductTile t{at.tile * C::dq_rows,
                at.pair,
                pair % a.kv_heads * (a.heads / a.kv_heads) + kept.first_head + at.pair % kept.heads,
                pair / a.kv_heads,
                static_cast<const uint4*>(kept.ds) + std::size_t(at.pair) * kept.blocks_of_head * kept_vectors,
                {},
                INT_MAX,
                0};
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    if (t.row + g * kept_side < a.band.len_q) t.seen[g] = a.band.template key_tiles<C::reach>(t.row + g * kept_side, kept_side, C::keys);
    if (t.seen[g].end > t.seen[g].begin) t.begin = min(t.begin, t.seen[g].begin), t.end = max(t.end, t.seen[g].end);
  }
  return t;
}
template <class C>
__device__ __forceinline__ int product_tiles(const WideArgs& a) {
  if constexpr (C::reach != Reach::listed) return a.tiles;
  const QueryHeads in = heads_in_range(a);
  return (in.end - in.first) * a.tiles_per_head;
}
__device__ __forceinline__ bool holds(const TileSpan& s, int tile) { return tile >= s.begin && tile < s.end; }

template <class C>
__device__ __forceinline__ void produce_product(const WideArgs& a, ProductShared<C>& s) {
  using T = typename C::T;
  Turn<C::product_stages> ring;
  Turn<2> next;
  const int tiles = product_tiles<C>(a);
  for (int index = blockIdx.x; index < tiles;) {
    const ProductTile t = find_product_tile<C>(a, index);
    const int kv_head = t.head / (a.heads / a.kv_heads), m = t.row / kept_side;
    const KeptTile* keys = nullptr;
    KeptTile here{}, behind{};
    int last_block = 0;
    if constexpr (C::reach == Reach::listed) {
      keys = a.kept_of_documents.tiles + std::size_t(t.batch) * a.kept_of_documents.most;
      last_block = a.kept_of_documents.blocks[t.batch] - 1;
      if (t.begin < t.end) behind = keys[t.begin];
    }
    for (int n = t.begin; n < t.end; ++n, ring.next()) {
      if constexpr (C::reach == Reach::listed) {
        here = behind;
        if (n + 1 < t.end) behind = keys[n + 1];  // read while a stage becomes free
      }
      // Borders in no order may name a place that does not exist.
      const auto place_of = [&](int g) {
        if constexpr (C::reach == Reach::listed) return min(max(here.offset + m + g - here.from, 0), last_block);
        return a.kept.place(m + g, n, a.band.reach == Reach::run ? t.seen[g].begin : 0);
      };
      s.empty[ring.stage].wait(ring.parity ^ 1);
      const bool seen[2] = {holds(t.seen[0], n), holds(t.seen[1], n)};
      s.full[ring.stage].arrive_and_expect(int(sizeof s.k[0]) + (seen[0] + seen[1]) * int(sizeof s.ds[0][0]));
#pragma unroll
      for (int g = 0; g < 2; ++g)
        if (seen[g]) load_run(s.ds[ring.stage][g], t.ds + std::size_t(place_of(g)) * kept_vectors, sizeof s.ds[0][0], s.full[ring.stage]);
      load_panels<T, C::dim>(s.k[ring.stage], a.k, s.full[ring.stage], C::keys, C::reach == Reach::listed ? here.first : n * C::keys,
                             kv_head, t.batch);
    }
    index = atomicAdd(a.next_tile, 1) + gridDim.x;
    s.next.give(next, index, nullptr);
  }
}

template <class C>
__device__ __forceinline__ void consume_product(const WideArgs& a, ProductShared<C>& s, int group) {
  using T = typename C::T;
  constexpr int dim = C::dim, steps = C::keys / 16, stage_bytes = sizeof s.k[0];
  group = same_in_warp(group);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  Descriptors words(&s);
  const int keys_at = int(reinterpret_cast<const char*>(&s.k) - reinterpret_cast<const char*>(&s));
  Turn<C::product_stages> ring;
  Turn<2> next;
  const int tiles = product_tiles<C>(a);
  for (int index = blockIdx.x; index < tiles;) {
    const ProductTile t = find_product_tile<C>(a, index);
    const TileSpan& seen = t.seen[group];
    float dq[dim / 2] = {};
    const auto release = [&] { s.empty[ring.stage].arrive(), ring.next(); };  // every lane, for the dS that it has read
    const auto pass_over = [&](int tiles) {
      for (; tiles > 0; --tiles) {
        s.full[ring.stage].wait(ring.parity);
        release();
      }
    };
    const auto advance = [&] {
      words.renew();
      s.full[ring.stage].wait(ring.parity);
      std::uint32_t ds[steps][4];  // 16 rows, 16 keys each: dSᵀ turned block by block
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        const uint4 x = s.ds[ring.stage][group][warp * 128 + i * 32 + lane];
        ds[i][0] = transposed(x.x), ds[i][1] = transposed(x.z), ds[i][2] = transposed(x.y), ds[i][3] = transposed(x.w);
      }
#pragma unroll
      for (auto& fragment : ds) pin(fragment);
      mma_fence();
#pragma unroll
      for (int i = 0; i < steps; ++i)
        mma<T, Major::mn>(dq, ds[i], words.at(keys_at + ring.stage * stage_bytes + mn_offset(i), panel_bytes(C::keys)));
      mma_commit();
      mma_wait<0>();
      release();
    };
    const bool any = seen.end > seen.begin;
    pass_over((any ? seen.begin : t.end) - t.begin);
    for (int n = seen.begin; n < seen.end; ++n) advance();
    if (any) pass_over(t.end - seen.end);
    pin(dq);
    if constexpr (C::reach == Reach::listed) report_nan(dq, a.not_numbers);
    store_rows(dq, a.scale, static_cast<T*>(a.dq) + t.batch * a.dq_strides.batch + t.head * a.dq_strides.head, a.dq_strides.row,
               t.row + group * kept_side + warp * 16 + lane / 4, a.band.len_q, 0, a.head_dim);
    index = s.next.take(next, nullptr);
  }
}

// attention_bwd_wide_dq_of_kept_sm90 — dQ = dS K
//   reads   dS once, K once per 128 rows     writes  dQ     needs   sm_90a, strides of 16 bytes, dK and dV's kernel before it
//   numerics  FP32 sums in the order of the keys; same bits every run     limit   memory and L2, then tensor cores
template <class C>
__global__ void __launch_bounds__(384, 1) attention_bwd_wide_dq_of_kept_sm90(const __grid_constant__ WideArgs a) {
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<ProductShared<C>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::product_stages; ++i) s.full[i].init(1), s.empty[i].init(256);
    s.next.init(8);
    barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    registers_down<40>();
    if (threadIdx.x == 0) produce_product<C>(a, s);
  } else {
    registers_up<232>();
    consume_product<C>(a, s, threadIdx.x / 128 - 1);
  }
}

template <class C>
void start_dq_of_kept(const WideArgs& a, int blocks, cudaStream_t stream) {
  launch(stream, attention_bwd_wide_dq_of_kept_sm90<C>, {blocks, 384, sizeof(ProductShared<C>)}, a);
}

}  // namespace headroom::attention::sm90::backward
