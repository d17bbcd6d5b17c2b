// Blocks of 8 rows: keys are the rows of their products, queries the columns, so no row of a product is empty, and a lane's sums are half as many.
//
// A warp has 16 keys of each step and a ring of its own, in which tiles of keys and of values take turns. What was seen of a row is compared with what
// its maximum allows, a vote of the warp: lanes exchange maxima only where a score is past that.
#pragma once
#include "gpu/tma.cuh"
#include "gpu/transpose.cuh"
#include "ops/attention/decode/block.cuh"

namespace headroom::attention::decode {

constexpr int panel_bytes = 16 * 128;  // a box has 64 columns of 16 keys, swizzled
__device__ __forceinline__ int place_in_box(int row, int chunk) {
  return chunk / 8 * panel_bytes + row * 128 + ((chunk % 8 ^ row % 8) << 4);
}

// In place of a box that would reach into the next page, by a warp: sequences that begin elsewhere than at a box.
template <class T, int dim>
__device__ __noinline__ void fetch_by_hand(const Args& a, const Strided& source, int columns, char* tile, int first_key, int last,
                                           int batch, int kv_head, Barrier& landed) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int i = lane; i < box_keys * dim / 8; i += 32) {
    const int row = i / (dim / 8), chunk = i % (dim / 8), key = first_key + row, in_sequence = int(a.by_page.of_number(unsigned(key)));
    uint4 found{};
    if (key < last && chunk * 8 < columns) {
      const int page = a.paged.table[(long long)batch * a.paged.of_sequence + in_sequence];
      if (unsigned(page) < unsigned(a.paged.count))
        found = *reinterpret_cast<const uint4*>(static_cast<const T*>(source.data) + page * source.batch +
                                                (key - in_sequence * a.paged.size) * source.row + kv_head * source.head + chunk * 8);
    }
    *reinterpret_cast<uint4*>(tile + place_in_box(row, chunk)) = found;
  }
  proxy_fence();  // boxes come there again
  __syncwarp();
  if (lane == 0) landed.arrive();
}

template <class T, class S, bool boxes>  // boxes: the copy engine fetches, in panels of 64 columns
struct KeysBlock : Block<T, S> {
  using Base = Block<T, S>;
  using Base::a, Base::dim, Base::pitch, Base::tile_bytes, Base::chunks, Base::slots, Base::ring, Base::lane, Base::units;
  static constexpr int lead = slots / 2;  // steps that copies run ahead

  // Addresses in shared memory that a lane comes back to, in the ring's first slot: where it copies to, and what it loads of keys and of values. Slots lie on
  // 1024 bytes, so that a chunk's number may be put into their bits.
  const std::uint32_t copies_at, keys_at, values_at;
  const Map *const k_map, *const v_map;
  Barrier* const landed;  // [slots] of this warp's: where boxes come

  __device__ __forceinline__ KeysBlock(const Args& args, char* shared, const Map* of_k = nullptr, const Map* of_v = nullptr)
      : Base(args, shared),
        copies_at(kept(warp::shared_address(ring) + place_in_tile(copied_row(), lane % chunks))),
        keys_at(kept(warp::shared_address(ring) + place_in_tile(lane % 16, lane / 16))),
        values_at(kept(warp::shared_address(ring) + place_in_tile(lane % 8 + lane / 16 * 8, lane / 8 % 2))),
        k_map(of_k),
        v_map(of_v),
        landed(reinterpret_cast<Barrier*>(Base::block_stats + S::warps * S::rows_at_once) + Base::warp * slots) {}
  static __device__ __forceinline__ int place_in_tile(int row, int chunk) {
    return boxes ? place_in_box(row, chunk) : Base::swizzled(row, chunk);
  }
  static __device__ __forceinline__ std::uint32_t sixteen_on(std::uint32_t place, int sixteen) {  // so many times 16 columns on
    return boxes ? (place ^ sixteen % 4 << 5) + sixteen / 4 * panel_bytes : place ^ sixteen << 5;
  }
  static __device__ __forceinline__ std::uint32_t kept(std::uint32_t x) {  // in a register, not formed anew at each step
    asm volatile("mov.b32 %0, %0;" : "+r"(x));
    return x;
  }

  // ---- in ------------------------------------------------------------------------------------------------------------
  struct Ahead : Place {
    const T *k, *v;   // this lane's first row and columns; paged: of page 0
    int page, inner;  // paged: of row lane % 16
  };
  static constexpr int rows_a_copy = 32 / chunks;
  __device__ __forceinline__ int copied_row() const { return lane / chunks; }
  __device__ __forceinline__ int copied_column() const { return lane % chunks * 8; }

  __device__ __forceinline__ void look_up(Ahead& x) const {  // a step before it is used
    const int key = Base::first_key(x) + (boxes ? 0 : lane % 16);
    x.page = -1, x.inner = 0;
    if (key >= x.keys.last) return;
    const int slot = int(a.by_page.of_number(unsigned(key)));
    x.page = __ldg(a.paged.table + (long long)x.batch * a.paged.of_sequence + slot);
    x.inner = key - slot * a.paged.size;
  }
  __device__ __forceinline__ void reach(Ahead& x) const {  // the first step that it walks of a unit
    if constexpr (boxes) {
      if (a.paged.table) look_up(x);
      return;
    }
    const long long row = Base::first_key(x) + copied_row();
    x.k = static_cast<const T*>(a.k.data) + x.unit * a.k.head + copied_column();
    x.v = static_cast<const T*>(a.v.data) + x.unit * a.v.head + copied_column();
    if (a.paged.table)
      look_up(x);
    else
      x.k += x.batch * a.k.batch + row * a.k.row, x.v += x.batch * a.v.batch + row * a.v.row;
  }
  __device__ __forceinline__ void advance_ahead(Ahead& x) const {
    advance(a, units, x);
    if (x.step == 0)
      reach(x);
    else if (a.paged.table)
      look_up(x);
    else if (!boxes)
      x.k += a.span * a.k.row, x.v += a.span * a.v.row;
  }
  // This warp's 16 keys or values of a step, to a slot; what lies past the last key, or in no page, becomes zeros.
  template <bool values>
  __device__ __forceinline__ void fetch(int slot, Ahead& x) const {
    if constexpr (boxes) {
      const int row = a.paged.table ? x.inner : Base::first_key(x), outer = a.paged.table ? x.page : x.batch;
      if (a.paged.table && row % 16 != 0)
        return fetch_by_hand<T, dim>(a, values ? a.v : a.k, values ? a.dim_v : a.head_dim, ring + slot, Base::first_key(x), x.keys.last,
                                     x.batch, x.unit, landed[slot / tile_bytes]);
      if (lane) return;
      Barrier& full = landed[slot / tile_bytes];
      full.arrive_and_expect(tile_bytes);
#pragma unroll
      for (int panel = 0; panel < dim / 64; ++panel)
        load(ring + slot + panel * panel_bytes, values ? *v_map : *k_map, full, CachePolicy::normal, 64 * panel, row, x.unit, outer);
      return;
    }
    const Strided& source = values ? a.v : a.k;
    const bool in = copied_column() < (values ? a.dim_v : a.head_dim);
    const std::uint32_t to = copies_at + slot;
    const auto place_of = [&](int i) {
      return (to ^ i * rows_a_copy % 8 << 4) + i * rows_a_copy * pitch;
    };  // from row copied_row() + rows_a_copy · i
    if (!a.paged.table) {
      const int valid = in ? x.keys.last - Base::first_key(x) - copied_row() : 0;
      const T* const from = values ? x.v : x.k;
#pragma unroll
      for (int i = 0; i < 16 / rows_a_copy; ++i) warp::copy_16(place_of(i), from + i * rows_a_copy * source.row, i * rows_a_copy < valid);
    } else {
      const T* const pages = values ? x.v : x.k;
#pragma unroll
      for (int i = 0; i < 16 / rows_a_copy; ++i) {
        const int row = i * rows_a_copy + copied_row(), page = __shfl_sync(~0u, x.page, row), inner = __shfl_sync(~0u, x.inner, row);
        warp::copy_16(place_of(i), pages + page * source.batch + inner * source.row, in && unsigned(page) < unsigned(a.paged.count));
      }
    }
  }

  // Boxes bring what lies past the last key too, which may be anything: a weight of 0 would not be enough.
  __device__ __forceinline__ void clear_from(int row, int slot) const {
    for (int i = row * 8 + lane; i < 16 * 8; i += 32)
#pragma unroll
      for (int panel = 0; panel < dim / 64; ++panel) *reinterpret_cast<uint4*>(ring + slot + panel * panel_bytes + i * 16) = uint4{};
    proxy_fence();  // boxes come there again
    __syncwarp();
  }
  __device__ __forceinline__ void wait(int slot, unsigned round) const {  // until this slot is filled for the round-th time
    if constexpr (boxes)
      landed[slot / tile_bytes].wait_awake(int(round & 1));
    else
      warp::copies_wait<2 * lead>();
    __syncwarp();
  }

  // ---- one tile ------------------------------------------------------------------------------------------------------
  struct State {
    std::uint32_t q[dim / 16][2];
    float o[dim / 4];                     // this lane's two rows, 2 · (lane % 4) and the next, alternately
    float maximum[2], sum[2], offset[2];  // offset: the exponent of a score at its maximum
    int plain_first, plain_end;           // keys that every row sees
  };
  __device__ __forceinline__ void begin(State& s, const Place& at) const {
    const typename Base::Row row = Base::row_of(at, lane / 4);
    const T* const from = static_cast<const T*>(a.q.data) + at.batch * a.q.batch + row.position * a.q.row + row.head * a.q.head;
#pragma unroll
    for (int k = 0; k < dim / 8; ++k) {
      const int column = 8 * k + lane % 4 * 2;
      s.q[k / 2][k % 2] = row.exists && column < a.head_dim ? *reinterpret_cast<const std::uint32_t*>(from + column) : 0;
    }
#pragma unroll
    for (float& x : s.o) x = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) s.maximum[r] = -INFINITY, s.sum[r] = s.offset[r] = 0;
    s.plain_first = at.keys.first, s.plain_end = at.keys.last;
    if (a.band.len_q == 1) return;
    const Run keys[2] = {keys_of_lane(at, 0), keys_of_lane(at, 1)};
    s.plain_first = __reduce_max_sync(~0u, max(keys[0].first, keys[1].first));
    s.plain_end = __reduce_min_sync(~0u, min(keys[0].last, keys[1].last));
  }
  __device__ __forceinline__ Run keys_of_lane(const Place& at, int r) const {  // the keys that one of its two rows sees
    return keys_of_row(a, at.batch, Base::row_of(at, lane % 4 * 2 + r).position);
  }

  // The scores of this lane's two rows for key lane / 4 (x[0], x[1]) and for key lane / 4 + 8 (x[2], x[3]).
  __device__ __forceinline__ void scores(float (&x)[4], const State& s, int slot) const {
    const std::uint32_t place = keys_at + slot;
    float sums[8] = {};  // two chains of products
#pragma unroll
    for (int k16 = 0; k16 < dim / 16; ++k16) {
      std::uint32_t k[4];
      warp::load_blocks(k, sixteen_on(place, k16));
      warp::multiply<T>(sums + k16 % 2 * 4, k, s.q[k16][0], s.q[k16][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = sums[i] + sums[i + 4];
  }

  __device__ __forceinline__ void raise(State& s, const float (&x)[4]) const {  // the rows' maxima
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float high = fmaxf(fmaxf(x[r], x[r + 2]), s.maximum[r]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, step));
      if (!(high > s.maximum[r] + a.slack)) high = s.maximum[r];  // also when both are -inf
      const float reference = high == -INFINITY ? 0.f : high;
      factor[r] = exp2_fast((s.maximum[r] - reference) * a.scale_log2);  // 0 for the first
      s.maximum[r] = high, s.offset[r] = reference * a.scale_log2;
      s.sum[r] *= factor[r];
    }
#pragma unroll
    for (int i = 0; i < dim / 4; ++i) s.o[i] *= factor[i % 2];
  }

  // limit(x) caps scores and takes out those that a row does not see.
  template <class Limit>
  __device__ __forceinline__ void weigh(State& s, float (&x)[4], int slot, Limit&& limit) const {
    const std::uint32_t place = values_at + slot;
    constexpr int early = 4;  // so many loads are on their way while weights are computed
    std::uint32_t v[early][4];
    const auto load = [&](int d16) { warp::load_blocks_transposed(v[d16 % early], sixteen_on(place, d16)); };
#pragma unroll
    for (int d16 = 0; d16 < early; ++d16) load(d16);
    limit(x);
    if (__any_sync(~0u, fmaxf(x[0], x[2]) > s.maximum[0] + a.slack || fmaxf(x[1], x[3]) > s.maximum[1] + a.slack)) raise(s, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = exp2_fast(fmaf(x[i], a.scale_log2, -s.offset[i % 2]));
#pragma unroll
    for (int r = 0; r < 2; ++r) s.sum[r] += x[r] + x[r + 2];
    const std::uint32_t p[2] = {transposed(warp::pair<T>(x[0], x[1])), transposed(warp::pair<T>(x[2], x[3]))};
#pragma unroll
    for (int d16 = 0; d16 < dim / 16; ++d16) {
      warp::multiply<T>(s.o + 4 * d16, v[d16 % early], p[0], p[1]);
      if (d16 + early < dim / 16) load(d16 + early);
    }
  }

  __device__ __forceinline__ void limit(const State& s, float (&x)[4], const Place& at) const {
    if (a.to_cap != 0)
#pragma unroll
      for (float& score : x) score = tanh_of(score * a.to_cap);
    const int first_key = Base::first_key(at);
    if (first_key >= s.plain_first && first_key + 16 <= s.plain_end) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Run seen = keys_of_lane(at, r);
#pragma unroll
      for (int i = r; i < 4; i += 2)
        if (const int key = first_key + lane / 4 + i / 2 * 8; key < seen.first || key >= seen.last) x[i] = -INFINITY;
    }
  }

  // ---- out -----------------------------------------------------------------------------------------------------------
  __device__ __forceinline__ void finish(State& s) const {  // its sums of weights become those of all lanes
#pragma unroll
    for (int r = 0; r < 2; ++r)
      for (int step = 4; step < 32; step *= 2) s.sum[r] += __shfl_xor_sync(~0u, s.sum[r], step);
  }
  // The half-th four of this warp's rows: their sums [dim / 16][4][16], their maxima and sums of weights [4].
  __device__ __forceinline__ void leave(const State& s, int half) const {
    if (lane / 2 % 2 != half) return;  // rows 0 … 3 are those of lanes 0 and 1 of each four
    const int row = lane % 2 * 2;
    float* const to = reinterpret_cast<float*>(Base::sums + Base::warp * (dim / 16) * 32);
#pragma unroll
    for (int i = 0; i < dim / 4; ++i) to[i / 4 * 64 + (row + i % 2) * 16 + i / 2 % 2 * 8 + lane / 4] = s.o[i];
    if (lane / 4 == 0)
#pragma unroll
      for (int r = 0; r < 2; ++r) Base::stats[Base::warp * 4 + row + r] = {s.maximum[r], s.sum[r]};
  }
  __device__ __forceinline__ void give_all(State& s, const Place& at, int part) const {
    finish(s);
    Base::give_all(at, part, [&](int half) { leave(s, half); });
  }

  // Whether parts of its first unit have to be collected.
  __device__ __forceinline__ bool run() const {
    if constexpr (boxes) {
      if (lane == 0) {
        prefetch(*k_map), prefetch(*v_map);
        for (int i = 0; i < slots; ++i) landed[i].init(1);
        barriers_ready();
      }
      __syncwarp();
    }
    typename Base::Course c = Base::course();
    if (c.begin == c.end) return false;
    Ahead ahead;
    static_cast<Place&>(ahead) = c.here;
    reach(ahead);
    const auto next = [](int slot) { return slot == (slots - 1) * tile_bytes ? 0 : slot + tile_bytes; };
    int free = 0, read = 0;  // slots, in bytes: filled next; read next, after which they are the same
    unsigned round = 0;      // the reader's round of the ring
    const auto next_read = [&] {
      read = next(read);
      if (boxes && read == 0) ++round;
    };
    State s;
#pragma unroll 1
    for (int at = c.begin - lead; at < c.end; ++at) {
      const bool leads = at < c.begin, more = at + lead < c.end;
      bool seen = false;
      float x[4];
      if (!leads && (at == c.begin || c.here.step == 0)) begin(s, c.here);
      __syncwarp();  // the values of the step before have been read
      if (more) fetch<false>(free, ahead);
      free = next(free);
      if (!boxes) warp::copies_commit();
      if (!leads) {
        wait(read, round);
        seen = Base::first_key(c.here) < c.here.keys.last;
        if (seen) scores(x, s, read);
        next_read();
        __syncwarp();  // the keys have been read
      }
      if (more) {
        fetch<true>(free, ahead);
        if (at + lead + 1 < c.end) advance_ahead(ahead);
      }
      free = next(free);
      if (!boxes) warp::copies_commit();
      if (leads) continue;
      wait(read, round);
      if (seen) {
        if (const int valid = c.here.keys.last - Base::first_key(c.here); boxes && valid < 16) clear_from(valid, read);
        weigh(s, x, read, [&](float(&scores)[4]) { limit(s, scores, c.here); });
      }
      next_read();
      if (Base::gives_after(c, at)) give_all(s, c.here, Base::part_given(c, at));
      if (at + 1 < c.end) advance(a, units, c.here);
    }
    return c.late;
  }
};

}  // namespace headroom::attention::decode
