// flash_decode — a few new positions against many keys: bandwidth is all that counts.
//
// The query heads of a key head and their positions are the rows of a tile of 16 (`tiles` of them, a warp each). A team of `tiles` warps has a ring of
// stages of its own and fills it by asynchronous copies that run ahead across the borders of units, so that memory never waits for a sum.
#include "gpu/launch_early.cuh"
#include "gpu/mma_sm80.cuh"
#include "ops/attention/decode.h"
#include "ops/attention/softmax.cuh"

namespace headroom::attention::decode {

namespace {

struct Sequence {
  int first, last, steps;  // keys that any of its rows sees
};

struct Place {  // on the line
  int batch, unit, step;
  Sequence keys;
};

__device__ __forceinline__ Run keys_of_row(const Args& a, int batch, int position) {
  if (a.documents.count) return a.documents.keys_of_row(batch, position);
  return {a.band.first(position), a.band.last(position)};
}
__device__ __forceinline__ Sequence sequence(const Args& a, int batch) {  // both ends of a row's keys never move left from row to row
  const Run top = keys_of_row(a, batch, 0);
  const int first = top.first, last = max(first, a.band.len_q == 1 ? top.last : keys_of_row(a, batch, a.band.len_q - 1).last);
  return {first, last, max(1, int(a.by_span.of_number(unsigned(last - first + a.span - 1))))};  // rows that see nothing are written too
}

__device__ __forceinline__ void advance(const Args& a, int units, Place& at) {
  if (++at.step < at.keys.steps) return;
  at.step = 0;
  if (++at.unit < units) return;
  at.unit = 0;
  if (++at.batch < a.batch && a.documents.count) at.keys = sequence(a, at.batch);
}

// The steps of all sequences, one behind another; by a whole warp.
struct Line {
  const Args& a;
  const int units, lane;
  Sequence mine;  // of the first 32, this lane's; without documents all are alike
  int end, all;   // of the first 32: where this lane's ends; of all

  __device__ __forceinline__ Line(const Args& args, int units_of_sequence) : a(args), units(units_of_sequence), lane(threadIdx.x % 32) {
    if (!a.documents.count) {
      mine = sequence(a, 0);
      all = mine.steps * units * a.batch;
      return;
    }
    fetch(0);
    all = __shfl_sync(~0u, end, 31);
    int more = 0;
    for (int b = 32 + lane; b < a.batch; b += 32) more += sequence(a, b).steps * units;
    for (int step = 16; step; step /= 2) more += __shfl_xor_sync(~0u, more, step);
    all += more;
  }
  __device__ __forceinline__ void fetch(int base) {
    mine = base + lane < a.batch ? sequence(a, base + lane) : Sequence{0, 0, 0};
    end = mine.steps * units;
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += before;
    }
  }
  __device__ __forceinline__ Place place(int at) {
    if (!a.documents.count) {
      const int unit = int(a.by_steps.of_number(unsigned(at))), batch = int(a.by_units.of_number(unsigned(unit)));
      return {batch, unit - batch * units, at - unit * mine.steps, mine};
    }
    for (int base = 0;; base += 32) {
      if (base) fetch(base);
      const unsigned past = __ballot_sync(~0u, end > at);
      if (!past) {
        at -= __shfl_sync(~0u, end, 31);
        continue;
      }
      const int owner = __ffs(past) - 1;
      const Sequence keys = {__shfl_sync(~0u, mine.first, owner), __shfl_sync(~0u, mine.last, owner), __shfl_sync(~0u, mine.steps, owner)};
      at -= __shfl_sync(~0u, end, owner) - keys.steps * units;
      const int unit = at / keys.steps;
      return {base + owner, unit, at - unit * keys.steps, keys};
    }
  }
};

// The runs of a line that clusters walk: the first `longer` of them have a step more than `each`.
struct Runs {
  int blocks, each, longer;
  __device__ __forceinline__ Runs(const Args& a, int all)
      : blocks(min(all, a.clusters)), each(all < a.clusters ? 1 : int(a.by_clusters.of_number(unsigned(all)))), longer(all - each * blocks) {}
  __device__ __forceinline__ int begin(int block) const { return block * each + min(block, longer); }
  __device__ __forceinline__ int block_of(int step) const {
    const int in_longer = longer * (each + 1);
    return step < in_longer ? step / (each + 1) : longer + (step - in_longer) / each;
  }
};

__device__ __forceinline__ void put(Word* at, const Word& w) {
  asm volatile("{.reg .b64 two; .reg .b128 all; mov.b64 two, {%1, %2}; mov.b128 all, {two, %3}; st.relaxed.gpu.global.b128 [%0], all;}" ::"l"(at), "f"(w.x),
               "f"(w.y), "l"(w.number)
               : "memory");
}
__device__ __forceinline__ Word get(const Word* at) {
  Word w;
  asm volatile("{.reg .b64 two; .reg .b128 all; ld.relaxed.gpu.global.b128 all, [%3]; mov.b128 {two, %2}, all; mov.b64 {%0, %1}, two;}"
               : "=f"(w.x), "=f"(w.y), "=l"(w.number)
               : "l"(at)
               : "memory");
  return w;
}

// This block's place in its cluster, and the cluster's in the grid; the float2 at a place in another block's shared memory; and a barrier of all threads of
// a cluster, each of which then sees the others' earlier writes to shared memory. Cards before sm_90 have no clusters.
__device__ __forceinline__ void cluster_barrier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
__device__ __forceinline__ int rank_in_cluster() {
  int rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}
__device__ __forceinline__ int number_of_cluster() {
  int number = int(blockIdx.x);
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(number));
#endif
  return number;
}
__device__ __forceinline__ float2 read_there(const float2* here, int rank) {
  float2 x{};
#if __CUDA_ARCH__ >= 900
  asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %2, %3; ld.shared::cluster.v2.f32 {%0, %1}, [there];}"
               : "=f"(x.x), "=f"(x.y)
               : "r"(warp::shared_address(here)), "r"(rank)
               : "memory");
#endif
  return x;
}

// Two columns of a row, added up from parts that took different maxima as their reference.
struct Sum {
  float maximum = -INFINITY, total = 0, x = 0, y = 0;
  template <int n>
  __device__ __forceinline__ void add(const float2 (&stat)[n], const float2 (&two)[n], float scale_log2) {
    float high = maximum;
#pragma unroll
    for (int i = 0; i < n; ++i) high = fmaxf(high, stat[i].x);
    const float reference = high == -INFINITY ? 0 : high, before = exp2_fast((maximum - reference) * scale_log2);
    total *= before, x *= before, y *= before;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float weight = exp2_fast((stat[i].x - reference) * scale_log2);
      total += weight * stat[i].y, x += weight * two[i].x, y += weight * two[i].y;
    }
    maximum = high;
  }
};

template <class T, int dim, int tiles>  // a function of its own: its registers would be missed in the loop
__device__ __noinline__ void collect(const Args& a, const Place& at, int first, int parts);

template <class T, int dim, int tiles>
struct Block {
  static constexpr int whole = -1;  // the part of a unit that nobody else saw anything of
  static constexpr int teams = warps / tiles, team_keys = 16 * tiles, pitch = dim * 2, tile_bytes = team_keys * pitch;
  static constexpr int stage_bytes = 2 * tile_bytes, chunk_keys = tiles == 1 ? 16 : 32, chunks = dim / 8;  // chunks: 16 bytes each
  static constexpr int depth = stages<dim>;

  const Args& a;
  char* const ring;     // of this team
  float2* const sums;         // [warps][dim / 8][32]: of 8 rows of each warp's tile
  float2* const stats;        // [warps][8]: their maxima, and sums of weights
  float2* const block_stats;  // [tiles][8]: of all teams
  const int warp, lane, tile, team, units, rank, cluster;  // rank: of this block in its cluster

  __device__ __forceinline__ Block(const Args& args, char* shared)
      : a(args),
        ring(shared + threadIdx.x / 32 / tiles * (depth * stage_bytes)),
        sums(reinterpret_cast<float2*>(shared + teams * depth * stage_bytes)),
        stats(sums + warps * dim / 8 * 32),
        block_stats(stats + warps * 8),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        tile(warp % tiles),
        team(warp / tiles),
        units(args.kv_heads * args.row_blocks),
        rank(rank_in_cluster()),
        cluster(number_of_cluster()) {}

  __device__ __forceinline__ void together() const {  // the warps of a team
    if constexpr (tiles == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(32 * tiles) : "memory");
  }
  static __device__ __forceinline__ int swizzled(int row, int chunk) { return row * pitch + ((chunk ^ (row & 7)) << 4); }

  __device__ __forceinline__ int first_key(const Place& at) const {  // of this team's share of a step
    return at.keys.first + at.step * a.span + rank * step_keys + team * team_keys;
  }

  // ---- in ------------------------------------------------------------------------------------------------------------
  // The rows of this warp's share of the team's keys and values; what lies past the last key, or in no page, becomes zeros.
  __device__ __forceinline__ void fetch(char* to, const Place& at) const {
    constexpr int rows_at_once = 32 / chunks;
    const int kv_head = int(a.by_row_blocks.of_number(unsigned(at.unit)));
    const int first = first_key(at) + tile * 16, valid = at.keys.last - first;
    const int chunk = lane % chunks, column = chunk * 8, my_row = lane / chunks;
    const bool in_k = column < a.head_dim, in_v = column < a.dim_v;
    const T* const k_head = static_cast<const T*>(a.k.data) + kv_head * a.k.head + column;
    const T* const v_head = static_cast<const T*>(a.v.data) + kv_head * a.v.head + column;
    if (!a.paged.table) {
      const T* k = k_head + at.batch * a.k.batch + (long long)(first + my_row) * a.k.row;
      const T* v = v_head + at.batch * a.v.batch + (long long)(first + my_row) * a.v.row;
#pragma unroll
      for (int i = 0; i < 16 / rows_at_once; ++i) {
        const int row = i * rows_at_once + my_row;
        char* const place = to + swizzled(tile * 16 + row, chunk);
        warp::copy_16(place, k, in_k && row < valid);
        warp::copy_16(place + tile_bytes, v, in_v && row < valid);
        k += rows_at_once * a.k.row, v += rows_at_once * a.v.row;
      }
      return;
    }
    int page = -1, inner = 0;  // of row lane % 16
    if (lane % 16 < valid) {
      const int key = first + lane % 16, slot = int(a.by_page.of_number(unsigned(key)));
      page = __ldg(a.paged.table + (long long)at.batch * a.paged.of_sequence + slot);
      inner = key - slot * a.paged.size;
      if (page >= a.paged.count) page = -1;
    }
#pragma unroll
    for (int i = 0; i < 16 / rows_at_once; ++i) {
      const int row = i * rows_at_once + my_row, row_page = __shfl_sync(~0u, page, row), row_inner = __shfl_sync(~0u, inner, row);
      const long long outer = max(row_page, 0);
      char* const place = to + swizzled(tile * 16 + row, chunk);
      warp::copy_16(place, k_head + outer * a.k.batch + row_inner * a.k.row, in_k && row_page >= 0);
      warp::copy_16(place + tile_bytes, v_head + outer * a.v.batch + row_inner * a.v.row, in_v && row_page >= 0);
    }
  }

  struct Row {
    int position, head;
    bool exists;
  };
  __device__ __forceinline__ Row row_of(const Place& at, int row_in_block) const {
    const int kv_head = int(a.by_row_blocks.of_number(unsigned(at.unit))), row = (at.unit - kv_head * a.row_blocks) * 16 * tiles + row_in_block,
              kept = min(row, a.rows - 1), position = int(a.by_group.of_number(unsigned(kept)));
    return {position, kv_head * a.group + kept - position * a.group, row < a.rows};
  }
  __device__ __forceinline__ int row_of_thread(int r) const { return tile * 16 + lane / 4 + 8 * r; }

  // The fragments of this warp's 16 rows of Q.
  __device__ __forceinline__ void load_q(std::uint32_t (&q)[dim / 16][4], const Place& at) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Row row = row_of(at, row_of_thread(r));
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
      const Run keys = keys_of_row(a, at.batch, row_of(at, row_of_thread(r)).position);
      s.first[r] = keys.first, s.end[r] = keys.last;
    }
    s.plain_first = __reduce_max_sync(~0u, max(s.first[0], s.first[1]));
    s.plain_end = __reduce_min_sync(~0u, min(s.end[0], s.end[1]));
  }

  __device__ __forceinline__ void multiply_tile(State& s, const char* stage, const Place& at) const {
    const int tile_first = first_key(at);
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
          warp::load_blocks(b, stage + swizzled(row, 2 * k16 + (lane >> 3 & 1)));
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
          warp::load_blocks_transposed(b, stage + tile_bytes + swizzled(row, 2 * d16 + (lane >> 4)));
          warp::multiply<T>(s.o + 8 * d16, p, b[0], b[1]);
          warp::multiply<T>(s.o + 8 * d16 + 4, p, b[2], b[3]);
        }
      }
    }
  }

  // ---- out -----------------------------------------------------------------------------------------------------------
  __device__ __forceinline__ Rows::Result result_of(float maximum, float sum) const {  // of one row, in [0]
    Rows::Result result{};
    const bool empty = maximum == -INFINITY && sum == 0;
    result.inverse[0] = empty ? 0 : __fdividef(1, sum);  // a NaN stays one
    result.lse[0] = empty ? -INFINITY : (maximum * a.scale_log2 + __log2f(sum)) * 0.693147181f;
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

  // f(row, column, place): for every two sums of rows 8 · half … of each tile that exist, dealt to `all` warps of which this one is the n-th.
  template <class F>
  __device__ __forceinline__ void each_two(const Place& at, int half, int n, int all, F&& f) const {
#pragma unroll 1
    for (int i = n; i < tiles * dim / 8; i += all) {
      const int row = i / (dim / 8) * 16 + 8 * half + lane / 4, column = i % (dim / 8) * 8 + lane % 4 * 2;
      if (row_of(at, row).exists && column < a.dim_v) f(row, column, i * 32 + lane);
    }
  }
  __device__ __forceinline__ int halves() const { return a.kept_rows <= 8 ? 1 : 2; }
  __device__ __forceinline__ void everybody() const {  // of the cluster
    if (a.cluster > 1)
      cluster_barrier();
    else
      __syncthreads();
  }

  // What a cluster saw of a unit: first the warps of a block are added up, then its blocks, always in this order.
  __device__ __forceinline__ void give_all(State& s, const Place& at, int part) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      for (int step = 1; step < 4; step *= 2) s.rows.sum[r] += __shfl_xor_sync(~0u, s.rows.sum[r], step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == halves()) break;
#pragma unroll
      for (int j = 0; j < dim / 8; ++j) sums[(warp * (dim / 8) + j) * 32 + lane] = {s.o[4 * j + 2 * half], s.o[4 * j + 2 * half + 1]};
      if (lane % 4 == 0) stats[warp * 8 + lane / 4] = {s.rows.maximum[half], s.rows.sum[half]};
      __syncthreads();
      each_two(at, half, warp, warps, [&](int row, int column, int place) {
        float2 stat[teams], two[teams];
#pragma unroll
        for (int t = 0; t < teams; ++t) {
          stat[t] = stats[t * tiles * 8 + row / 16 * 8 + row % 8];
          two[t] = sums[t * tiles * (dim / 8) * 32 + place];
        }
        Sum sum;
        sum.add(stat, two, a.scale_log2);
        if (a.cluster == 1) return give(at, row, column, sum, part);
        sums[place] = {sum.x, sum.y};  // which only this thread has read
        if (column == 0) block_stats[row / 16 * 8 + row % 8] = {sum.maximum, sum.total};
      });
      everybody();
      if (a.cluster == 1) continue;
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
            stat[n] = read_there(&block_stats[row / 16 * 8 + row % 8], begin + n), two[n] = read_there(&sums[place], begin + n);
          }
          sum.add(stat, two, a.scale_log2);
        }
        give(at, row, column, sum, part);
      });
      cluster_barrier();  // nobody reads from here any more
    }
  }

  // The first of a unit's clusters has its beginning in its second part.
  static __device__ __forceinline__ int part_of(int first, int n) { return 2 * (first + n) + (n == 0); }

  // Adds up the parts of clusters first … first + parts − 1, in that order. They were started before this one, and wait for nobody who was started later.
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
    everybody();
    if (rank) return;
    for (int i = threadIdx.x; i < parts * a.kept_rows; i += warps * 32) words_of(part_of(first, i / a.kept_rows), i % a.kept_rows)[dim / 2].number = 0;
  }

  __device__ __forceinline__ void run() const {
    let_later_kernels_come();
    if (a.documents.count) wait_for_earlier_kernels();  // else the card can do the sums below before
    Line line(a, units);
    const Runs runs(a, line.all);
    if (cluster >= runs.blocks) return wait_for_earlier_kernels();
    const int begin_at = runs.begin(cluster), end_at = runs.begin(cluster + 1);
    Place here = line.place(begin_at), ahead = here, late = here;
    int late_begins = -1;  // of the unit that began before this run and ended in it
    if (!a.documents.count) wait_for_earlier_kernels();
    int ahead_at = begin_at, stage = 0;  // the one that is worked on; the one before it is filled meanwhile
    State s;
#pragma unroll 1
    for (int at = begin_at - (depth - 1); at < end_at; ++at) {
      if (at >= begin_at) {
        if (at == begin_at || here.step == 0) begin(s, here);
        warp::copies_wait<depth - 2>();
        together();
      }
      if (ahead_at < end_at) {
        const int filled = at - begin_at + depth - 1;
        fetch(ring + (filled < depth ? filled : stage == 0 ? depth - 1 : stage - 1) * stage_bytes, ahead);
        if (++ahead_at < end_at) advance(a, units, ahead);
      }
      warp::copies_commit();
      if (at < begin_at) continue;
      multiply_tile(s, ring + stage * stage_bytes, here);
      if (++stage == depth) stage = 0;
      if (here.step == here.keys.steps - 1 || at == end_at - 1) {
        const int unit_begins = at - here.step, unit_ends = unit_begins + here.keys.steps;
        const bool begins_here = unit_begins >= begin_at, ends_here = unit_ends <= end_at;
        give_all(s, here, begins_here && ends_here ? whole : 2 * cluster + begins_here);
        if (!begins_here && ends_here) late = here, late_begins = unit_begins;
      }
      if (at + 1 < end_at) advance(a, units, here);
    }
    if (late_begins < 0) return;
    const int first = runs.block_of(late_begins);
    collect<T, dim, tiles>(a, late, first, cluster - first + 1);
  }
};

template <class T, int dim, int tiles>
__device__ __noinline__ void collect(const Args& a, const Place& at, int first, int parts) {
  extern __shared__ __align__(1024) char shared[];
  Block<T, dim, tiles>(a, shared).add_parts(at, first, parts);
}

// attention_fwd_decode — reads Q, K, V (and cu_q, cu_k, pages) once; writes O and LSE; numerics: products of 16-bit values, sums FP32.
// limit: memory.
template <class T, int dim, int tiles>
__global__ void __launch_bounds__(warps * 32, dim == 256 ? 1 : 2) attention_fwd_decode(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char shared[];
  Block<T, dim, tiles>(a, shared).run();
}

}  // namespace

template <class T, int dim, int tiles>
void start(const Args& a, cudaStream_t stream) {
  const auto kernel = attention_fwd_decode<T, dim, tiles>;
  const Grid grid{dim3(unsigned(a.clusters * a.cluster)), warps * 32, shared_bytes<dim>, a.cluster};
  if (a.cluster > 8) cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  if (a.early)
    launch_early(stream, kernel, grid, a);
  else
    launch(stream, kernel, grid, a);
}

#define HEADROOM_DECODE(T, dim)                                   \
  template void start<T, dim, 1>(const Args&, cudaStream_t); \
  template void start<T, dim, 2>(const Args&, cudaStream_t); \
  template void start<T, dim, 4>(const Args&, cudaStream_t);
#define HEADROOM_DECODE_DIMS(T) HEADROOM_DECODE(T, 64) HEADROOM_DECODE(T, 128) HEADROOM_DECODE(T, 256)
HEADROOM_DECODE_DIMS(__nv_bfloat16)
HEADROOM_DECODE_DIMS(__half)

}  // namespace headroom::attention::decode
