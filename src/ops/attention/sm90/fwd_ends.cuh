// fwd_ends.cuh — the end of a tile: parts of one row tile are added up, O and LSE leave the registers.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/mend/mend.cuh"
#include "ops/attention/sm90/capping.cuh"
#include "ops/attention/sm90/fwd_tiles.cuh"

namespace headroom::attention::sm90 {

// Sixteen rows × 32 columns of a warp to global memory: the four threads of a row trade 8-column blocks, so that each stores 16 bytes.
// value(j, i): element i of the accumulator's block j.   to: this thread's upper row; the lower one is 8 rows on, at `lower`.
template <class T, class Value>
__device__ __forceinline__ void store_columns(T* upper, T* lower, bool upper_there, bool lower_there, int column, int columns,
                                              Value&& value) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = pack<T>(value(i, 2 * r), value(i, 2 * r + 1));
    transpose_in_quad(word, quad);  // from columns 2·quad of four blocks to all columns of block `quad`
    const int at = column + quad * 8;
    if ((r ? lower_there : upper_there) && at < columns)
      *reinterpret_cast<uint4*>((r ? lower : upper) + at) = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

template <class C>
__device__ void store_from_registers(const ForwardArgs& a, const Tile& t, const float (&o)[C::dim / 2], const float (&inverse)[2], int row,
                                     int rows) {
  using T = typename C::T;
  T* to = static_cast<T*>(a.o_data) + t.batch * a.o_batch + t.head * a.o_head + row * a.o_row;
#pragma unroll
  for (int j = 0; j < C::dim / 8; j += 4)
    store_columns(to, to + 8 * a.o_row, row < rows, row + 8 < rows, j * 8, a.dim_v,
                  [&](int i, int e) { return j + i < C::dim / 8 ? o[4 * (j + i) + e] * inverse[e / 2] : 0.f; });
}

// Through shared memory, in the layout that TMA reads; TMA clips what lies outside the tensor.
template <class C>
__device__ void store_through_shared(const ForwardArgs& a, const Tile& t, const float (&o)[C::dim / 2], const float (&inverse)[2],
                                     Shared<C>& s, int group, int group_barrier) {
  using T = typename C::T;
  const int thread = threadIdx.x % 128, lane = thread % 32;
  char* staged = reinterpret_cast<char*>(s.o + group * 64 * columns_of<C>);
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
    for (int panel = 0; panel < columns_of<C> / 64; ++panel)
      if (panel * 64 < a.dim_v) store(a.o, staged + panel * panel_bytes(64), panel * 64, t.row + group * 64, t.head, t.batch);
    store_commit();
  }
}

// What parts of a row's keys weigh in their sum, from their log-sum-exps; the same in every thread that asks.
struct Weights {
  float reference, total = 0;
  bool empty;
  __device__ explicit Weights(float highest) : reference(highest == -INFINITY ? 0 : highest), empty(highest == -INFINITY) {}
  __device__ float operator()(float lse) {
    const float weight = __expf(lse - reference);
    total += weight;
    return weight;
  }
  __device__ float inverse() const { return empty ? 0 : __fdividef(1, total); }
  __device__ float lse() const { return empty ? -INFINITY : reference + __logf(total); }
};

// Way::parts. This part goes to the workspace; the last part to arrive adds them all up, in their order. True: o and result are the whole now.
template <class C>
__device__ bool add_parts(const ForwardArgs& a, const Tile& t, float (&o)[C::dim / 2], Rows::Result& result, Shared<C>& s, int group,
                          int group_barrier, int row_here) {
  const int thread = threadIdx.x % 128;
  const auto slot = [&](int part) {  // a block's last tile may be a first part; all its other parts are of its first tile
    return std::size_t((t.first_block + part) * 2 + (part == 0)) * C::consumers + group;
  };
  const auto partial_o = [&](int part) { return a.partial_o + slot(part) * (C::dim / 8 * 128) + thread; };
  const auto partial_lse = [&](int part) { return a.partial_lse + slot(part) * 64 + row_here; };
#pragma unroll
  for (int j = 0; j < C::dim / 8; ++j)
    __stcg(partial_o(t.part) + j * 128, make_float4(o[4 * j] * result.inverse[0], o[4 * j + 1] * result.inverse[0],
                                                    o[4 * j + 2] * result.inverse[1], o[4 * j + 3] * result.inverse[1]));
  if (thread % 4 == 0) __stcg(partial_lse(t.part), result.lse[0]), __stcg(partial_lse(t.part) + 8, result.lse[1]);
  __threadfence();
  meet(group_barrier, 128);
  if (thread == 0) s.arrived[group] = atomicAdd(&a.arrivals[t.index * C::consumers + group], 1) + 1;
  meet(group_barrier, 128);
  if (s.arrived[group] != t.parts) return false;  // read before the next write, which is behind the next meeting
  __threadfence();

  float high[2] = {-INFINITY, -INFINITY};
  for (int part = 0; part < t.parts; ++part)
    for (int r = 0; r < 2; ++r) high[r] = fmaxf(high[r], __ldcg(partial_lse(part) + 8 * r));
  Weights upper(high[0]), lower(high[1]);
#pragma unroll
  for (float& x : o) x = 0;
  for (int part = 0; part < t.parts; ++part) {
    const float w0 = upper(__ldcg(partial_lse(part))), w1 = lower(__ldcg(partial_lse(part) + 8));
#pragma unroll
    for (int j = 0; j < C::dim / 8; ++j) {
      const float4 x = __ldcg(partial_o(part) + j * 128);
      o[4 * j] += w0 * x.x, o[4 * j + 1] += w0 * x.y, o[4 * j + 2] += w1 * x.z, o[4 * j + 3] += w1 * x.w;
    }
  }
  result = {{upper.inverse(), lower.inverse()}, {upper.lse(), lower.lse()}};
  return true;
}

// Way::cluster. Each block leaves its part where K and V were; then each of them adds up and stores its share of the tile.
template <class C>
__device__ void store_from_cluster(const ForwardArgs& a, const Tile& t, const float (&o)[C::dim / 2], const Rows::Result& mine,
                                   Shared<C>& s, int group, int everybody, int row_here) {
  using T = typename C::T;
  constexpr int threads = C::consumers * 128, quads = C::dim / 32;  // a warp's share: 16 rows × 32 columns
  static_assert(sizeof(float) * C::consumers * 64 * C::dim <= sizeof s.k + sizeof s.v);
  float4* const parts = reinterpret_cast<float4*>(s.k);
  const int thread = group * 128 + int(threadIdx.x) % 128, lane = thread % 32;
  meet(everybody, threads);  // all reads of K and V are done
#pragma unroll
  for (int j = 0; j < C::dim / 8; ++j)
    parts[j * threads + thread] = make_float4(o[4 * j] * mine.inverse[0], o[4 * j + 1] * mine.inverse[0], o[4 * j + 2] * mine.inverse[1],
                                              o[4 * j + 3] * mine.inverse[1]);
  if (lane % 4 == 0) s.lse[group * 64 + row_here] = mine.lse[0], s.lse[group * 64 + row_here + 8] = mine.lse[1];
  cluster_meet();
  for (int share = t.part + t.parts * (thread / 32); share < C::consumers * 4 * quads; share += t.parts * C::consumers * 4) {
    const int warp = share / quads, j = share % quads * 4, row = warp * 16 + lane / 4;
    float high[2] = {-INFINITY, -INFINITY};
    for (int part = 0; part < t.parts; ++part)
      for (int r = 0; r < 2; ++r) high[r] = fmaxf(high[r], read_from(&s.lse[row + 8 * r], part));
    Weights upper(high[0]), lower(high[1]);
    float sum[16] = {};
    for (int part = 0; part < t.parts; ++part) {
      const float w0 = upper(read_from(&s.lse[row], part)), w1 = lower(read_from(&s.lse[row + 8], part));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 x = read_from(&parts[(j + i) * threads + warp * 32 + lane], part);
        sum[4 * i] += w0 * x.x, sum[4 * i + 1] += w0 * x.y, sum[4 * i + 2] += w1 * x.z, sum[4 * i + 3] += w1 * x.w;
      }
    }
    Rows::Result result{{upper.inverse(), lower.inverse()}, {upper.lse(), lower.lse()}};
    const int at = t.row + row, shift = a.packed_log2, member = (1 << shift) - 1;  // row → position and query head
    const int position[2] = {at >> shift, (at + 8) >> shift};
    const int head[2] = {(t.head << shift) + (at & member), (t.head << shift) + (at + 8 & member)};
    if (a.sink)
      for (int r = 0; r < 2; ++r) result.join(a.sink[head[r]], r);
    const auto address = [&](int r) {
      return static_cast<T*>(a.o_data) + t.batch * a.o_batch + head[r] * a.o_head + position[r] * a.o_row;
    };
    store_columns(address(0), address(1), at < a.rows, at + 8 < a.rows, j * 8, a.dim_v,
                  [&](int i, int e) { return sum[4 * i + e] * result.inverse[e / 2]; });
    if (j == 0 && lane % 4 == 0) {
      const auto lse_at = [&](int r) { return a.lse + ((std::size_t(t.batch) * a.heads << shift) + head[r]) * a.band.len_q + position[r]; };
      if (at < a.rows) *lse_at(0) = result.lse[0];
      if (at + 8 < a.rows) *lse_at(1) = result.lse[1];
    }
  }
  cluster_meet_reading();  // all reads from here are done
}

}  // namespace headroom::attention::sm90
