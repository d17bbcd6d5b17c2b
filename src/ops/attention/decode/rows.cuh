// Blocks of 16, 32 or 64 rows: a warp has 16 rows of Q and, with the rest of its team, 16, 32 or 64 keys of each step.
#pragma once
#include "ops/attention/decode/block.cuh"

namespace headroom::attention::decode {

template <class T, class S>
struct RowsBlock : Block<T, S> {
  using Base = Block<T, S>;
  using Base::a, Base::dim, Base::tiles, Base::team_keys, Base::pitch, Base::tile_bytes, Base::chunks;
  using Base::ring, Base::tile, Base::lane, Base::team, Base::units;
  using Row = typename Base::Row;
  static constexpr int stage_bytes = 2 * tile_bytes, depth = S::slots / 2, chunk_keys = tiles == 1 ? 16 : 32;

  using Base::Base;

  __device__ __forceinline__ void together() const {  // the warps of a team
    if constexpr (tiles == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(32 * tiles) : "memory");
  }

  // ---- in ------------------------------------------------------------------------------------------------------------
  // The rows of this warp's share of the team's keys and values; what lies past the last key, or in no page, becomes zeros.
  __device__ __forceinline__ void fetch(char* to, const Place& at) const {
    constexpr int rows_a_copy = 32 / chunks;
    const int kv_head = int(a.by_row_blocks.of_number(unsigned(at.unit)));
    const int first = Base::first_key(at) + tile * 16, valid = at.keys.last - first;
    const int chunk = lane % chunks, column = chunk * 8, my_row = lane / chunks;
    const bool in_k = column < a.head_dim, in_v = column < a.dim_v;
    const T* const k_head = static_cast<const T*>(a.k.data) + kv_head * a.k.head + column;
    const T* const v_head = static_cast<const T*>(a.v.data) + kv_head * a.v.head + column;
    if (!a.paged.table) {
      const T* k = k_head + at.batch * a.k.batch + (long long)(first + my_row) * a.k.row;
      const T* v = v_head + at.batch * a.v.batch + (long long)(first + my_row) * a.v.row;
#pragma unroll
      for (int i = 0; i < 16 / rows_a_copy; ++i) {
        const int row = i * rows_a_copy + my_row;
        char* const place = to + Base::swizzled(tile * 16 + row, chunk);
        warp::copy_16(place, k, in_k && row < valid);
        warp::copy_16(place + tile_bytes, v, in_v && row < valid);
        k += rows_a_copy * a.k.row, v += rows_a_copy * a.v.row;
      }
      return;
    }
    int page = -1, inner = 0;  // where row lane % 16 is
    if (lane % 16 < valid) {
      const int key = first + lane % 16, slot = int(a.by_page.of_number(unsigned(key)));
      page = __ldg(a.paged.table + (long long)at.batch * a.paged.of_sequence + slot);
      inner = key - slot * a.paged.size;
      if (page >= a.paged.count) page = -1;
    }
#pragma unroll
    for (int i = 0; i < 16 / rows_a_copy; ++i) {
      const int row = i * rows_a_copy + my_row, row_page = __shfl_sync(~0u, page, row), row_inner = __shfl_sync(~0u, inner, row);
      const long long outer = max(row_page, 0);
      char* const place = to + Base::swizzled(tile * 16 + row, chunk);
      warp::copy_16(place, k_head + outer * a.k.batch + row_inner * a.k.row, in_k && row_page >= 0);
      warp::copy_16(place + tile_bytes, v_head + outer * a.v.batch + row_inner * a.v.row, in_v && row_page >= 0);
    }
  }

  __device__ __forceinline__ int row_of_thread(int r) const { return tile * 16 + lane / 4 + 8 * r; }

  // The fragments of this warp's 16 rows of Q.
  __device__ __forceinline__ void load_q(std::uint32_t (&q)[dim / 16][4], const Place& at) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Row row = Base::row_of(at, row_of_thread(r));
      const T* const from = static_cast<const T*>(a.q.data) + at.batch * a.q.batch + row.position * a.q.row + row.head * a.q.head;
#pragma unroll
      for (int k = 0; k < dim / 8; ++k) {
        const int column = 8 * k + lane % 4 * 2;
        q[k / 2][r + 2 * (k % 2)] = row.exists && column < a.head_dim ? *reinterpret_cast<const std::uint32_t*>(from + column) : 0;
      }
    }
  }

  // ---- one tile ------------------------------------------------------------------------------------------------------
  struct State {
    std::uint32_t q[dim / 16][4];
    float o[dim / 2];
    Rows rows;
    int first[2], end[2];        // keys of this thread's two rows
    int plain_first, plain_end;  // keys that every row sees
  };

  __device__ __forceinline__ void begin(State& s, const Place& at) const {
    load_q(s.q, at);
#pragma unroll
    for (float& x : s.o) x = 0;
    s.rows = {};
    s.plain_first = at.keys.first, s.plain_end = at.keys.last;
#pragma unroll
    for (int r = 0; r < 2; ++r) s.first[r] = s.plain_first, s.end[r] = s.plain_end;
    if (a.band.len_q == 1) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Run keys = keys_of_row(a, at.batch, Base::row_of(at, row_of_thread(r)).position);
      s.first[r] = keys.first, s.end[r] = keys.last;
    }
    s.plain_first = __reduce_max_sync(~0u, max(s.first[0], s.first[1]));
    s.plain_end = __reduce_min_sync(~0u, min(s.end[0], s.end[1]));
  }

  __device__ __forceinline__ void multiply_tile(State& s, const char* stage, const Place& at) const {
    const int tile_first = Base::first_key(at);
#pragma unroll
    for (int chunk = 0; chunk < team_keys / chunk_keys; ++chunk) {
      const int first_key = tile_first + chunk * chunk_keys;
      if (first_key >= at.keys.last) break;
      float x[chunk_keys / 2] = {};
#pragma unroll
      for (int k16 = 0; k16 < dim / 16; ++k16)
#pragma unroll
        for (int n = 0; n < chunk_keys / 16; ++n) {
          std::uint32_t b[4];
          const int row = chunk * chunk_keys + n * 16 + (lane & 7) + (lane >> 4) * 8;
          warp::load_blocks(b, stage + Base::swizzled(row, 2 * k16 + (lane >> 3 & 1)));
          warp::multiply<T>(x + 8 * n, s.q[k16], b[0], b[1]);
          warp::multiply<T>(x + 8 * n + 4, s.q[k16], b[2], b[3]);
        }
      if (a.to_cap != 0)
#pragma unroll
        for (float& score : x) score = tanh_of(score * a.to_cap);
      if (first_key < s.plain_first || first_key + chunk_keys > s.plain_end) apply_mask<true>(x, first_key + lane % 4 * 2, s.first, s.end);
      const float2 factor = s.rows.template update<false>(x, a.scale_log2);
      if (__any_sync(~0u, factor.x != 1 || factor.y != 1))
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) s.o[i] *= i % 4 < 2 ? factor.x : factor.y;
#pragma unroll
      for (int n = 0; n < chunk_keys / 16; ++n) {
        const std::uint32_t p[4] = {warp::pair<T>(x[8 * n], x[8 * n + 1]), warp::pair<T>(x[8 * n + 2], x[8 * n + 3]),
                                    warp::pair<T>(x[8 * n + 4], x[8 * n + 5]), warp::pair<T>(x[8 * n + 6], x[8 * n + 7])};
#pragma unroll
        for (int d16 = 0; d16 < dim / 16; ++d16) {
          std::uint32_t b[4];
          const int row = chunk * chunk_keys + n * 16 + (lane & 15);
          warp::load_blocks_transposed(b, stage + tile_bytes + Base::swizzled(row, 2 * d16 + (lane >> 4)));
          warp::multiply<T>(s.o + 8 * d16, p, b[0], b[1]);
          warp::multiply<T>(s.o + 8 * d16 + 4, p, b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void give_all(State& s, const Place& at, int part) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      for (int step = 1; step < 4; step *= 2) s.rows.sum[r] += __shfl_xor_sync(~0u, s.rows.sum[r], step);
    Base::give_all(at, part, [&](int half) {
#pragma unroll
      for (int j = 0; j < dim / 8; ++j)
        Base::sums[(Base::warp * (dim / 8) + j) * 32 + lane] = {s.o[4 * j + 2 * half], s.o[4 * j + 2 * half + 1]};
      if (lane % 4 == 0) Base::stats[Base::warp * 8 + lane / 4] = {s.rows.maximum[half], s.rows.sum[half]};
    });
  }

  // Whether parts of its first unit have to be collected.
  __device__ __forceinline__ bool run() const {
    typename Base::Course c = Base::course();
    if (c.begin == c.end) return false;
    Place ahead = c.here;
    int ahead_at = c.begin, stage = 0;  // the one that is worked on; the one before it is filled meanwhile
    State s;
#pragma unroll 1
    for (int at = c.begin - (depth - 1); at < c.end; ++at) {
      if (at >= c.begin) {
        if (at == c.begin || c.here.step == 0) begin(s, c.here);
        warp::copies_wait<depth - 2>();
        together();
      }
      if (ahead_at < c.end) {
        const int filled = at - c.begin + depth - 1;
        fetch(ring + (filled < depth ? filled : stage == 0 ? depth - 1 : stage - 1) * stage_bytes, ahead);
        if (++ahead_at < c.end) advance(a, units, ahead);
      }
      warp::copies_commit();
      if (at < c.begin) continue;
      multiply_tile(s, ring + stage * stage_bytes, c.here);
      if (++stage == depth) stage = 0;
      if (Base::gives_after(c, at)) give_all(s, c.here, Base::part_given(c, at));
      if (at + 1 < c.end) advance(a, units, c.here);
    }
    return c.late;
  }
};

}  // namespace headroom::attention::decode
