// flash_sm90_fwd.cuh — exact attention forward on Hopper: TMA, wgmma, warp-specialised, persistent.
//
// One long pipeline per block: the step that finishes a tile of query rows already computes the first scores of the
// next, so the tensor cores idle only at the very start and the very end.
#pragma once
#include <algorithm>

#include "gpu/launch.cuh"
#include "gpu/mma.cuh"
#include "gpu/tma.cuh"
#include "ops/attention/flash_sm90_fwd.h"
#include "ops/attention/softmax.cuh"
#include "ops/attention/tiles.h"

namespace headroom::attention::sm90 {

// ---- which rows, which keys -----------------------------------------------------------------------------------------
struct Tile {
  int row, head, kv_head, batch;  // first query row
  int first, last;                // key tiles [first, last), at least one: a tile that sees nothing walks one, wholly masked
  int key_end;                    // keys at or past this one are not seen
  int split, index;               // index: which tile of query rows, without splits
  __device__ bool none() const { return last == 0; }
};

template <class C>
struct Shared {
  using T = typename C::T;
  static constexpr bool stages_o = C::dim <= 128;  // O passes through shared memory
  T q[C::q_stages][C::consumers * 64 * C::dim];
  T o[stages_o ? C::consumers * 64 * C::dim : 512];
  T k[C::stages][C::keys * C::dim];
  T v[C::stages][C::keys * C::dim];
  Barrier q_full[C::q_stages], q_empty[C::q_stages], k_full[C::stages], k_empty[C::stages], v_full[C::stages], v_empty[C::stages],
      tile_full[2], tile_empty[2];
  Tile tile[2];  // the next ones
  int arrived[C::consumers];
};

template <class C, Reach reach>
__device__ int pairs_of_tiles(const ForwardArgs& a) {
  return reach == Reach::all || C::split ? 0 : a.row_tiles / 2 * a.batch * a.heads;
}

template <class C, Reach reach>
__device__ Tile find_tile(const ForwardArgs& a, int unit, int part) {  // part: the first or the second of a pair
  constexpr int rows = C::consumers * 64;
  const int half = a.row_tiles / 2, paired = pairs_of_tiles<C, reach>(a);
  Tile t;
  t.split = C::split ? unit % a.splits : 0;
  t.index = C::split ? unit / a.splits : unit;
  int row_tile = t.index % a.row_tiles, pair = t.index / a.row_tiles;
  if constexpr (reach != Reach::all && !C::split) {
    if (unit < paired)
      pair = unit / half, row_tile = part ? unit % half : a.row_tiles - 1 - unit % half;
    else
      pair = unit - paired, row_tile = half;
  }
  t.row = row_tile * rows, t.head = pair % a.heads, t.batch = pair / a.heads, t.kv_head = t.head / (a.heads / a.kv_heads);
  const int seen_first = reach == Reach::window ? min(max(t.row + a.low, 0), a.len_k) : 0;
  const int seen_end = reach == Reach::all ? a.len_k : min(max(min(t.row + rows, a.len_q) + a.high, 0), a.len_k);
  t.first = seen_first / C::keys, t.last = max(t.first + 1, (seen_end + C::keys - 1) / C::keys), t.key_end = a.len_k;
  if constexpr (C::split) {
    const int count = t.last - t.first, first = t.first;
    t.first = first + count * t.split / a.splits, t.last = first + count * (t.split + 1) / a.splits;
    if (t.first == t.last) ++t.last, t.key_end = 0;  // more splits than key tiles: this one sees nothing
  }
  return t;
}

// ---- the scheduler: one thread ------------------------------------------------------------------------------------------
// Keeps the divisions of find_tile away from everybody whose time matters.
template <class C, Reach reach>
__device__ void schedule(const ForwardArgs& a, Shared<C>& s) {
  Turn<2> next;
  const auto publish = [&](const Tile& t) {
    s.tile_empty[next.stage].wait(next.parity ^ 1);
    s.tile[next.stage] = t;
    s.tile_full[next.stage].arrive();
    next.next();
  };
  const int paired = pairs_of_tiles<C, reach>(a);
  for (int unit = blockIdx.x; unit < a.units; unit += gridDim.x)
    for (int part = 0; part < (unit < paired ? 2 : 1); ++part) publish(find_tile<C, reach>(a, unit, part));
  publish(Tile{});
}

// ---- the producer: one thread -----------------------------------------------------------------------------------------
template <class C>
__device__ void produce(const ForwardArgs& a, Shared<C>& s) {
  constexpr int q_bytes = sizeof s.q[0], kv_bytes = sizeof s.k[0];
  Turn<C::q_stages> q;
  Turn<C::stages> k, v;
  const auto fetch = [](void* to, const Map& m, Barrier& full, int rows, Keep keep, int row, int head, int batch) {
    for (int p = 0; p < C::dim / 64; ++p) load(static_cast<char*>(to) + p * panel_bytes(rows), m, full, keep, p * 64, row, head, batch);
  };
  const auto load_k = [&](const Tile& t, int tile) {
    s.k_empty[k.stage].wait(k.parity ^ 1);
    s.k_full[k.stage].arrive_and_expect(kv_bytes);
    fetch(s.k[k.stage], a.k, s.k_full[k.stage], C::keys, Keep::long_time, tile * C::keys, t.kv_head, t.batch);
    k.next();
  };
  const auto load_v = [&](const Tile& t, int tile) {
    s.v_empty[v.stage].wait(v.parity ^ 1);
    s.v_full[v.stage].arrive_and_expect(kv_bytes);
    fetch(s.v[v.stage], a.v, s.v_full[v.stage], C::keys, Keep::long_time, tile * C::keys, t.kv_head, t.batch);
    v.next();
  };
  const auto load_q = [&](const Tile& t) {
    s.q_empty[q.stage].wait(q.parity ^ 1);
    s.q_full[q.stage].arrive_and_expect(q_bytes);
    for (int w = 0; w < C::consumers; ++w)
      fetch(s.q[q.stage] + w * 64 * C::dim, a.q, s.q_full[q.stage], 64, Keep::once, t.row + w * 64, t.head, t.batch);
    q.next();
  };

  Turn<2> next;
  const auto next_tile = [&] {
    s.tile_full[next.stage].wait(next.parity);
    const Tile t = s.tile[next.stage];
    s.tile_empty[next.stage].arrive();
    next.next();
    return t;
  };

  Tile t = next_tile();
  load_k(t, t.last - 1);  // from the last tile down, K one tile ahead of V: the order in which they are used
  load_q(t);
  for (;;) {
    for (int tile = t.last - 2; tile >= t.first; --tile) load_k(t, tile), load_v(t, tile + 1);
    const Tile after = next_tile();
    if (after.none()) break;
    load_k(after, after.last - 1);
    if constexpr (C::q_stages > 1) load_q(after);
    load_v(t, t.first);
    if constexpr (C::q_stages == 1) load_q(after);  // Q is free only when the tile's last scores are there
    t = after;
  }
  load_v(t, t.first);
}

// ---- the end of a tile: O and LSE leave the registers -------------------------------------------------------------------
// Straight to global memory: the four threads of a row trade 8-column blocks, so that each stores 16 bytes.
template <class C>
__device__ void store_from_registers(const ForwardArgs& a, const Tile& t, const float (&o)[C::dim / 2], const float (&inverse)[2],
                                     int row) {
  using T = typename C::T;
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    T* to = static_cast<T*>(a.o_data) + t.batch * a.o_batch + t.head * a.o_head + (row + 8 * r) * a.o_row;
#pragma unroll
    for (int j = 0; j < C::dim / 8; j += 4) {
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = pack<T>(o[4 * (j + i) + 2 * r] * inverse[r], o[4 * (j + i) + 2 * r + 1] * inverse[r]);
      transpose_in_quad(word, quad);  // from columns 2·quad of four blocks to all columns of block `quad`
      if (row + 8 * r < a.len_q && (j + quad) * 8 < a.head_dim)
        *reinterpret_cast<uint4*>(to + (j + quad) * 8) = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

// Through shared memory, in the layout that TMA reads; TMA clips what lies outside the tensor.
template <class C>
__device__ void store_through_shared(const ForwardArgs& a, const Tile& t, const float (&o)[C::dim / 2], const float (&inverse)[2],
                                     Shared<C>& s, int group, int group_barrier) {
  using T = typename C::T;
  const int thread = threadIdx.x % 128, lane = thread % 32;
  char* staged = reinterpret_cast<char*>(s.o + group * 64 * C::dim);
  if (thread == 0) store_wait_read<0>();  // the store of the tile before has left this buffer
  meet(group_barrier, 128);
#pragma unroll
  for (int j = 0; j < C::dim / 8; j += 2) {
    const auto word = [&](int i, int r) { return pack<T>(o[i] * inverse[r], o[i + 1] * inverse[r]); };
    store_blocks(staged + j / 8 * panel_bytes(64) + swizzled(thread / 32 * 16 + lane % 16, j % 8 + lane / 16), word(4 * j, 0),
                 word(4 * j + 2, 1), word(4 * j + 4, 0), word(4 * j + 6, 1));
  }
  proxy_fence();
  meet(group_barrier, 128);
  if (thread == 0) {
    for (int panel = 0; panel < C::dim / 64; ++panel)
      if (panel * 64 < a.head_dim) store(a.o, staged + panel * panel_bytes(64), panel * 64, t.row + group * 64, t.head, t.batch);
    store_commit();
  }
}

// Keys are split: this part's O and LSE go to the workspace; the last part to arrive adds them all up, in their order.
template <class C>
__device__ void store_part(const ForwardArgs& a, const Tile& t, const float (&o)[C::dim / 2], const Rows::Result& result, Shared<C>& s,
                           int group, int group_barrier, int row_here) {
  using T = typename C::T;
  constexpr int rows = C::consumers * 64;
  const int thread = threadIdx.x % 128, quad = thread % 4;
  const int row_count = a.units / a.splits * rows, first_row = t.index * rows + group * 64;
  const auto row_at = [&](int split, int row) { return std::size_t(split) * row_count + first_row + row; };
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float* to = a.partial_o + row_at(t.split, row_here + 8 * r) * C::dim + 2 * quad;
#pragma unroll
    for (int j = 0; j < C::dim / 8; ++j)
      __stcg(reinterpret_cast<float2*>(to + 8 * j),
             make_float2(o[4 * j + 2 * r] * result.inverse[r], o[4 * j + 2 * r + 1] * result.inverse[r]));
    if (quad == 0) __stcg(a.partial_lse + row_at(t.split, row_here + 8 * r), result.lse[r]);
  }
  __threadfence();
  meet(group_barrier, 128);
  if (thread == 0) s.arrived[group] = atomicAdd(&a.arrivals[t.index * C::consumers + group], 1) + 1;
  meet(group_barrier, 128);
  if (s.arrived[group] != a.splits) return;  // read before the next write, which is behind the next meeting
  __threadfence();
  if (thread == 0) a.arrivals[t.index * C::consumers + group] = 0;

  for (int i = thread; i < 64 * C::dim / 4; i += 128) {
    const int row = i / (C::dim / 4), column = i % (C::dim / 4) * 4, row_q = t.row + group * 64 + row;
    if (row_q >= a.len_q) continue;
    float high = -INFINITY, total = 0;
    for (int part = 0; part < a.splits; ++part) high = fmaxf(high, __ldcg(a.partial_lse + row_at(part, row)));
    const float reference = high == -INFINITY ? 0.f : high;
    float4 sum = {0, 0, 0, 0};
    for (int part = 0; part < a.splits; ++part) {
      const float weight = __expf(__ldcg(a.partial_lse + row_at(part, row)) - reference);
      const float4 x = __ldcg(reinterpret_cast<const float4*>(a.partial_o + row_at(part, row) * C::dim + column));
      total += weight;
      sum.x += weight * x.x, sum.y += weight * x.y, sum.z += weight * x.z, sum.w += weight * x.w;
    }
    const float inverse = high == -INFINITY ? 0 : __fdividef(1, total);
    if (column < a.head_dim) {
      T* to = static_cast<T*>(a.o_data) + t.batch * a.o_batch + t.head * a.o_head + row_q * a.o_row + column;
      *reinterpret_cast<uint2*>(to) = make_uint2(pack<T>(sum.x * inverse, sum.y * inverse), pack<T>(sum.z * inverse, sum.w * inverse));
    }
    if (column == 0) a.lse[(std::size_t(t.batch) * a.heads + t.head) * a.len_q + row_q] = high == -INFINITY ? high : high + __logf(total);
  }
}

// ---- a consumer: one warpgroup, 64 query rows ---------------------------------------------------------------------------
template <class C, Reach reach>
__device__ void consume(const ForwardArgs& a, Shared<C>& s, int group) {
  using T = typename C::T;
  constexpr int dim = C::dim, keys = C::keys, stage_bytes = sizeof s.k[0];
  constexpr int first_group_barrier = 1, first_turn_barrier = 1 + C::consumers;  // numbered barriers 1 … 2·consumers
  constexpr std::true_type masked;
  constexpr std::false_type plain;
  group = __shfl_sync(~0u, group, 0);  // tells the compiler that it is the same for the whole warp
  const int thread = threadIdx.x % 128, lane = thread % 32, group_barrier = first_group_barrier + group;
  const int row_here = thread / 32 * 16 + lane / 4, column_here = lane % 4 * 2;
  const auto q_at = describe(s.q[0] + group * 64 * dim), k_at = describe(s.k[0]), v_at = describe(s.v[0], panel_bytes(keys));
  const auto release = [&](Barrier& b) {
    if (lane == 0) b.arrive();
  };  // one arrival per warp: each knows only of its own wgmma
  const auto my_turn = [&] { meet(first_turn_barrier + group, 256); };
  const auto pass_turn = [&] { arrive(first_turn_barrier + (group + 1) % C::consumers, 256); };
  if (group == 0) arrive(first_turn_barrier, 256);

  Turn<C::q_stages> q;
  Turn<C::stages> k, v;
  float o[dim / 2] = {}, scores[keys / 2];
  std::uint32_t p[keys / 16][4];
  Rows rows;

  const auto scores_start = [&] {  // scores = Q Kᵀ
    s.k_full[k.stage].wait(k.parity);
    mma_fence();
#pragma unroll
    for (int i = 0; i < dim / 16; ++i)
      mma<T>(scores, k_major(step(q_at, q.stage * int(sizeof s.q[0])), 64, i), k_major(step(k_at, k.stage * stage_bytes), keys, i), i > 0);
    mma_commit();
  };
  const auto output_start = [&] {  // O += P V; the caller has fenced
    s.v_full[v.stage].wait(v.parity);
#pragma unroll
    for (int i = 0; i < keys / 16; ++i) mma<T, Major::mn>(o, p[i], mn_major(step(v_at, v.stage * stage_bytes), i));
    mma_commit();
  };
  const auto scores_done = [&] { pin(scores), release(s.k_empty[k.stage]), k.next(); };
  const auto output_done = [&] { pin(o), release(s.v_empty[v.stage]), v.next(); };
  const auto settle = [&] {  // all registers of the coming products have their values here
    pin(scores), pin(o);
#pragma unroll
    for (auto& fragment : p) pin(fragment);
  };
  const auto softmax = [&](const Tile& t, int tile, auto mask) {
    if constexpr (decltype(mask)::value) {
      const int top = t.row + group * 64, row = top + row_here;
      const int nearest = reach == Reach::all ? t.key_end : min(t.key_end, top + a.high + 1);  // where the group's first row ends
      if ((tile + 1) * keys > nearest || (reach == Reach::window && tile * keys < top + 63 + a.low)) {
        const int first[2] = {row + a.low, row + 8 + a.low};
        const int end[2] = {reach == Reach::all ? t.key_end : min(t.key_end, row + a.high + 1),
                            reach == Reach::all ? t.key_end : min(t.key_end, row + a.high + 9)};
        apply_mask<reach == Reach::window>(scores, tile * keys + column_here, first, end);
      }
    }
    return rows.update<C::maxima_first>(scores, a.scale_log2);
  };
  const auto pack_scores = [&] {
#pragma unroll
    for (int i = 0; i < keys / 16; ++i)
#pragma unroll
      for (int f = 0; f < 4; ++f) p[i][f] = pack<T>(scores[8 * i + 2 * f], scores[8 * i + 2 * f + 1]);
  };
  const auto both_products = [&] {  // the next scores and the output of the tile before; they run while other groups are in their softmax
    my_turn();
    settle();
    scores_start();
    output_start();
    mma_wait<1>();
    pass_turn();
    scores_done();
  };
  const auto advance = [&](const Tile& t, int tile, auto mask) {
    both_products();
    const float2 factor = softmax(t, tile, mask);
    mma_wait<0>();
    output_done();
    pack_scores();
    if (__any_sync(~0u, factor.x != 1 || factor.y != 1))
#pragma unroll
      for (int i = 0; i < dim / 2; ++i) o[i] *= i & 2 ? factor.y : factor.x;
  };
  const auto finish = [&](const Tile& t, const Rows& seen) {
    const Rows::Result result = seen.finish(a.scale_log2);
    if constexpr (C::split) {
      store_part<C>(a, t, o, result, s, group, group_barrier, row_here);
    } else {
      const int row = t.row + group * 64 + row_here;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (column_here == 0 && row + 8 * r < a.len_q)
          a.lse[(std::size_t(t.batch) * a.heads + t.head) * a.len_q + row + 8 * r] = result.lse[r];
      if constexpr (Shared<C>::stages_o)
        store_through_shared<C>(a, t, o, result.inverse, s, group, group_barrier);
      else
        store_from_registers<C>(a, t, o, result.inverse, row);
    }
  };
  Turn<2> next;
  const auto next_tile = [&] {
    s.tile_full[next.stage].wait(next.parity);
    const Tile t = s.tile[next.stage];
    s.tile_empty[next.stage].arrive();  // every lane for itself: each has read
    next.next();
    return t;
  };

  Tile t = next_tile();
  s.q_full[q.stage].wait(q.parity);
  my_turn();
  pin(scores);
  scores_start();
  mma_wait<0>();
  pass_turn();
  scores_done();
  softmax(t, t.last - 1, masked);
  pack_scores();
  for (;;) {
    int tile = t.last - 2;
    if constexpr (reach == Reach::window) {
      for (; tile >= t.first; --tile) advance(t, tile, masked);
    } else if constexpr (reach == Reach::causal) {
      const int nearest = t.row + group * 64 + a.high + 1;
      for (; tile >= t.first && (tile + 1) * keys > nearest; --tile) advance(t, tile, masked);
    }
    for (; tile >= t.first; --tile) advance(t, tile, plain);
    release(s.q_empty[q.stage]), q.next();

    const Tile after = next_tile();
    if (after.none()) break;
    const Rows seen = rows;
    rows = Rows{};
    s.q_full[q.stage].wait(q.parity);
    both_products();  // the first scores of the tile after, the last output of this one
    softmax(after, after.last - 1, masked);
    mma_wait<0>();
    output_done();
    finish(t, seen);
    pack_scores();
#pragma unroll
    for (float& x : o) x = 0;
    t = after;
  }
  settle();
  mma_fence();
  output_start();
  mma_wait<0>();
  output_done();
  finish(t, rows);
  if (thread == 0) store_wait_read<0>();
}

// attention_fwd_sm90 — O = softmax(scale · Q Kᵀ + mask) V
//   reads   Q, K, V through TMA, K and V once per 64·consumers query rows     writes  O, LSE
//   needs   sm_90a, strides of 16 bytes, len_q, len_k ≥ 1, scale > 0
//   numerics  FP32 scores and sums, P rounded to T; same bits every run
//   limit   dim 64: MUFU, issue and tensor cores alike; dim 128 and 256: tensor cores
template <class C, Reach reach>
__global__ void __launch_bounds__((C::consumers + 1) * 128, 1) attention_fwd_sm90(const __grid_constant__ ForwardArgs a) {
  // setmaxnreg deals only with what the block was launched with, and an increase beyond that waits for ever.
  constexpr int threads = (C::consumers + 1) * 128, launched = 65536 / threads / 8 * 8;
  static_assert(C::producer_registers + C::consumers * C::consumer_registers <= (C::consumers + 1) * launched);
  static_assert(sizeof(Shared<C>) <= 227 * 1024);
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<C>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::q_stages; ++i) s.q_full[i].init(1), s.q_empty[i].init(4 * C::consumers);
    for (int i = 0; i < C::stages; ++i) {
      s.k_full[i].init(1), s.v_full[i].init(1);
      s.k_empty[i].init(4 * C::consumers), s.v_empty[i].init(4 * C::consumers);
    }
    for (int i = 0; i < 2; ++i) s.tile_full[i].init(1), s.tile_empty[i].init(128 * C::consumers + 1);
    barriers_ready();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    registers_down<C::producer_registers>();
    if (threadIdx.x == 0) produce<C>(a, s);
    if (threadIdx.x == 32) schedule<C, reach>(a, s);
  } else {
    registers_up<C::consumer_registers>();
    consume<C, reach>(a, s, threadIdx.x / 128 - 1);
  }
}

template <class C, Reach reach>
void start_forward(const ForwardArgs& a, int multiprocessors, cudaStream_t stream) {
  launch(stream, attention_fwd_sm90<C, reach>, {std::min(multiprocessors, a.units), (C::consumers + 1) * 128, sizeof(Shared<C>)}, a);
}

}  // namespace headroom::attention::sm90
