// What every block of flash_decode does whatever its rows: who it is, its way along the line, and what it saw on its way out.
#pragma once
#include <numbers>

#include "gpu/dependent_launch.cuh"
#include "ops/attention/decode/line.cuh"
#include "ops/attention/decode/sums.cuh"
#include "ops/attention/softmax.cuh"

namespace headroom::attention::decode {

template <class T, class S>
struct Block {
  static constexpr int whole = -1;  // a unit that no other cluster shares
  static constexpr int dim = S::dim, warps = S::warps, tiles = S::tiles, teams = warps / tiles, team_keys = 16 * tiles, pitch = dim * 2;
  static constexpr int tile_bytes = team_keys * pitch, chunks = dim / 8;  // chunks: 16 bytes each
  static constexpr int slots = S::slots;                                  // a team's, each a tile of keys or of values
  // Sums of a tile are added up `rows_at_once` rows at a time, a lane two columns of a row.
  static constexpr int rows_at_once = S::rows_at_once, lanes_a_row = 32 / rows_at_once, steps_a_row = dim / (2 * lanes_a_row);

  const Args& a;
  char* const ring;                                        // this team's ring; in a ring of all, its first tile
  float2* const sums;                                      // [warps][steps_a_row][32]: of some rows of each warp's tile
  float2* const stats;                                     // [warps][rows_at_once]: their maxima, and sums of weights
  float2* const block_stats;                               // [tiles][rows_at_once]: of all teams
  const int warp, lane, tile, team, units, rank, cluster;  // rank: of this block in its cluster

  __device__ __forceinline__ Block(const Args& args, char* shared)
      : a(args),
        ring(shared + threadIdx.x / 32 / tiles * (S::one_ring ? tile_bytes : slots * tile_bytes)),
        sums(reinterpret_cast<float2*>(shared + teams * slots * tile_bytes)),
        stats(sums + warps * steps_a_row * 32),
        block_stats(stats + warps * rows_at_once),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        tile(warp % tiles),
        team(warp / tiles),
        units(args.kv_heads * args.row_blocks),
        rank(rank_in_cluster()),
        cluster(number_of_cluster()) {}

  static __device__ __forceinline__ int swizzled(int row, int chunk) { return row * pitch + ((chunk ^ (row & 7)) << 4); }

  __device__ __forceinline__ int first_key(const Place& at) const {  // the first key of this team's share of a step
    return at.keys.first + at.step * a.span + rank * S::step_keys + team * team_keys;
  }

  struct Row {
    int position, head;
    bool exists;
  };
  __device__ __forceinline__ Row row_of(const Place& at, int row_in_block) const {
    const int kv_head = int(a.by_row_blocks.of_number(unsigned(at.unit))),
              row = (at.unit - kv_head * a.row_blocks) * S::rows + row_in_block, kept = min(row, a.rows - 1),
              position = int(a.by_group.of_number(unsigned(kept)));
    return {position, kv_head * a.group + kept - position * a.group, row < a.rows};
  }

  // ---- out -----------------------------------------------------------------------------------------------------------
  __device__ __forceinline__ Rows::Result result_of(float maximum, float sum) const {  // one row's, in [0]
    Rows::Result result{};
    const bool empty = maximum == -INFINITY && sum == 0;
    result.inverse[0] = empty ? 0 : __fdividef(1, sum);  // a NaN stays one
    result.lse[0] = empty ? -INFINITY : (maximum * a.scale_log2 + __log2f(sum)) * std::numbers::ln2_v<float>;
    return result;
  }
  __device__ __forceinline__ float finish_row(const Place& at, const Row& row, float maximum, float sum, bool writes) const {
    Rows::Result result = result_of(maximum, sum);
    if (a.sink) result.join(a.sink[row.head], 0);
    if (writes && row.exists) a.lse[((long long)at.batch * a.heads + row.head) * a.band.len_q + row.position] = result.lse[0];
    return result.inverse[0];
  }
  __device__ __forceinline__ T* o_of(const Place& at, const Row& row) const {
    return static_cast<T*>(a.o.data) + at.batch * a.o.batch + row.position * a.o.row + row.head * a.o.head;
  }
  __device__ __forceinline__ void store_two(T* to, int column, float x, float y) const {
    if (column < a.dim_v) *reinterpret_cast<std::uint32_t*>(to + column) = warp::pair<T>(x, y);
  }

  __device__ __forceinline__ Word* words_of(int part, int row_in_block) const {
    return a.words + ((long long)part * a.kept_rows + row_in_block) * (dim / 2 + 1);
  }

  // Two sums of a row: into O, scaled, or as words of a part.
  __device__ __forceinline__ void give(const Place& at, int row_in_block, int column, const Sum& sum, int part) const {
    const Row row = row_of(at, row_in_block);
    if (part == whole) {
      const float inverse = finish_row(at, row, sum.maximum, sum.total, column == 0);
      store_two(o_of(at, row), column, sum.x * inverse, sum.y * inverse);
    } else {
      Word* const words = words_of(part, row_in_block);
      put(words + column / 2, {sum.x, sum.y, a.number});
      if (column == 0) put(words + dim / 2, {sum.maximum, sum.total, a.number});
    }
  }

  // f(row, column, place): for every two sums of the half-th rows_at_once rows of each tile that exist, dealt to `all` warps of which this one is the n-th.
  template <class F>
  __device__ __forceinline__ void each_two(const Place& at, int half, int n, int all, F&& f) const {
#pragma unroll 1
    for (int i = n; i < tiles * steps_a_row; i += all) {
      const int row = i / steps_a_row * 16 + rows_at_once * half + lane / lanes_a_row,
                column = (i % steps_a_row * lanes_a_row + lane % lanes_a_row) * 2;
      if (row_of(at, row).exists && column < a.dim_v) f(row, column, i * 32 + lane);
    }
  }
  __device__ __forceinline__ int halves() const { return a.kept_rows <= rows_at_once ? 1 : 2; }
  __device__ __forceinline__ bool alone() const { return !S::clusters || a.cluster == 1; }
  __device__ __forceinline__ void meet_cluster() const {
    if (!alone())
      cluster_barrier();
    else
      __syncthreads();
  }

  __device__ __forceinline__ int place_of_stat(int row) const {
    return row / 16 * rows_at_once + row % rows_at_once;
  }  // tiles one behind another

  // What a cluster saw of a unit: first the warps of a block are added up, then its blocks, always in this order. leave(half) writes this warp's `sums` and
  // `stats` of the half-th rows_at_once rows.
  template <class Leave>
  __device__ __forceinline__ void give_all(const Place& at, int part, Leave&& leave) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == halves()) break;
      leave(half);
      __syncthreads();
      each_two(at, half, warp, warps, [&](int row, int column, int place) {
        float2 stat[teams], two[teams];
#pragma unroll
        for (int t = 0; t < teams; ++t) {
          stat[t] = stats[t * tiles * rows_at_once + place_of_stat(row)];
          two[t] = sums[t * tiles * steps_a_row * 32 + place];
        }
        Sum sum;
        sum.add(stat, two, a.scale_log2);
        if (alone()) return give(at, row, column, sum, part);
        sums[place] = {sum.x, sum.y};  // only this thread has read it
        if (column == 0) block_stats[place_of_stat(row)] = {sum.maximum, sum.total};
      });
      meet_cluster();
      if (alone()) continue;
      each_two(at, half, rank * warps + warp, a.cluster * warps, [&](int row, int column, int place) {
        constexpr int at_once = 8;
        Sum sum;
#pragma unroll 1
        for (int begin = 0; begin < a.cluster; begin += at_once) {
          float2 stat[at_once], two[at_once];
#pragma unroll
          for (int n = 0; n < at_once; ++n) {
            stat[n] = {-INFINITY, 0}, two[n] = {};
            if (begin + n >= a.cluster) continue;
            stat[n] = read_there(&block_stats[place_of_stat(row)], begin + n), two[n] = read_there(&sums[place], begin + n);
          }
          sum.add(stat, two, a.scale_log2);
        }
        give(at, row, column, sum, part);
      });
      cluster_barrier();  // all reads from here are done
    }
  }

  // The first of a unit's clusters has its beginning in its second part.
  static __device__ __forceinline__ int part_of(int first, int n) { return 2 * (first + n) + (n == 0); }

  // Adds up the parts of clusters first … first + parts − 1, in that order. They were started before this one, and wait for none that was started later.
  __device__ __forceinline__ void add_parts(const Place& at, int first, int parts) const {
    for (int half = 0; half < halves(); ++half)
      each_two(at, half, rank * warps + warp, a.cluster * warps, [&](int row, int column, int) {
        constexpr int at_once = 8;
        Sum sum;
#pragma unroll 1
        for (int begin = 0; begin < parts; begin += at_once) {
          float2 stat[at_once], two[at_once];
          bool all;
          do {
            all = true;
            Word word[at_once][2];
#pragma unroll
            for (int n = 0; n < at_once; ++n) {
              if (begin + n >= parts) continue;
              const Word* const words = words_of(part_of(first, begin + n), row);
              word[n][0] = get(words + dim / 2), word[n][1] = get(words + column / 2);
            }
#pragma unroll
            for (int n = 0; n < at_once; ++n) {
              stat[n] = {-INFINITY, 0}, two[n] = {};
              if (begin + n >= parts) continue;
              all &= word[n][0].number == a.number && word[n][1].number == a.number;
              stat[n] = {word[n][0].x, word[n][0].y}, two[n] = {word[n][1].x, word[n][1].y};
            }
          } while (!all);
          sum.add(stat, two, a.scale_log2);
#pragma unroll
          for (int n = 0; n < at_once; ++n)
            if (begin + n < parts) words_of(part_of(first, begin + n), row)[column / 2].number = 0;
        }
        give(at, row, column, sum, whole);
      });
    meet_cluster();
    if (rank) return;
    for (int i = threadIdx.x; i < parts * a.kept_rows; i += warps * 32)
      words_of(part_of(first, i / a.kept_rows), i % a.kept_rows)[dim / 2].number = 0;
  }

  // ---- along the line ------------------------------------------------------------------------------------------------
  struct Course {
    int begin, end;  // steps that this cluster walks
    bool late;       // the unit in which it begins began before it, and has ended in it
    Place here;
  };
  __device__ __forceinline__ Course course() const {  // no read may come earlier than that
    allow_dependent_launch();
    if (a.documents.count) wait_for_earlier_kernels();  // else the card can do the sums below before
    Line line(a, units);
    const Runs runs(a, line.all);
    Course c{};
    if (cluster < runs.blocks) {
      c.begin = runs.begin(cluster), c.end = runs.begin(cluster + 1);
      c.here = line.place(c.begin);
    }
    if (!a.documents.count) wait_for_earlier_kernels();
    return c;
  }
  __device__ __forceinline__ static bool gives_after(const Course& c, int at) {
    return c.here.step == c.here.keys.steps - 1 || at == c.end - 1;
  }
  __device__ __forceinline__ int part_given(Course& c, int at) const {  // after that step
    const int unit_begins = at - c.here.step, unit_ends = unit_begins + c.here.keys.steps;
    const bool begins_here = unit_begins >= c.begin, ends_here = unit_ends <= c.end;
    c.late |= !begins_here && ends_here;
    return begins_here && ends_here ? whole : 2 * cluster + begins_here;
  }
  // The unit in which this cluster begins has ended in it: all parts of it make its result.
  __device__ __forceinline__ void collect_late() const {
    Line line(a, units);
    const Runs runs(a, line.all);
    const int begin = runs.begin(cluster);
    const Place at = line.place(begin);
    const int first = runs.block_of(begin - at.step);
    add_parts(at, first, cluster - first + 1);
  }
};

}  // namespace headroom::attention::decode
