// flash_decode — a few new positions against many keys: bandwidth is all that counts.
//
// The query heads of a key head and their positions are the rows of a tile of 16 (`tiles` of them, a warp each). A team of `tiles` warps has a ring of
// stages of its own and fills it by asynchronous copies that run ahead across the borders of units, so that memory never waits for a sum.
#include "gpu/launch.cuh"
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
  return {first, last, max(1, (last - first + step_keys - 1) / step_keys)};  // rows that see nothing are written too
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
      const int unit = at / mine.steps, batch = unit / units;
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

// The runs of a line that blocks walk: the first `longer` of them have a step more than `each`.
struct Runs {
  int blocks, each, longer;
  __device__ __forceinline__ Runs(int all, int most) : blocks(min(all, most)), each(all / blocks), longer(all - each * blocks) {}
  __device__ __forceinline__ int begin(int block) const { return block * each + min(block, longer); }
  __device__ __forceinline__ int block_of(int step) const {
    const int in_longer = longer * (each + 1);
    return step < in_longer ? step / (each + 1) : longer + (step - in_longer) / each;
  }
};

template <class T, int dim, int tiles>
struct Block {
  static constexpr int teams = warps / tiles, team_keys = 16 * tiles, pitch = dim * 2, tile_bytes = team_keys * pitch;
  static constexpr int stage_bytes = 2 * tile_bytes, chunk_keys = tiles == 1 ? 16 : 32, chunks = dim / 8;  // chunks: 16 bytes each
  static constexpr int depth = stages<dim>;

  const Args& a;
  char* const ring;     // of this team
  float* const sums;    // [2][dim / 2][32]
  float2* const stats;  // [teams][16 · tiles]
  int* const flag;
  const int warp, lane, tile, team, units;

  __device__ __forceinline__ Block(const Args& args, char* shared)
      : a(args),
        ring(shared + threadIdx.x / 32 / tiles * (depth * stage_bytes)),
        sums(reinterpret_cast<float*>(shared + teams * depth * stage_bytes)),
        stats(reinterpret_cast<float2*>(sums + 2 * 16 * dim)),
        flag(reinterpret_cast<int*>(stats + warps * 16)),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        tile(warp % tiles),
        team(warp / tiles),
        units(args.kv_heads * args.row_blocks) {}

  __device__ __forceinline__ void together() const {  // the warps of a team
    if constexpr (tiles == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(32 * tiles) : "memory");
  }
  static __device__ __forceinline__ int swizzled(int row, int chunk) { return row * pitch + ((chunk ^ (row & 7)) << 4); }

  // ---- in ------------------------------------------------------------------------------------------------------------
  // The rows of this warp's share of the team's keys and values; what lies past the last key, or in no page, becomes zeros.
  __device__ __forceinline__ void fetch(char* to, const Place& at) const {
    constexpr int rows_at_once = 32 / chunks;
    const int kv_head = a.row_blocks == 1 ? at.unit : at.unit / a.row_blocks;
    const int first = at.keys.first + at.step * step_keys + team * team_keys + tile * 16, valid = at.keys.last - first;
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
    const int row = at.unit % a.row_blocks * 16 * tiles + row_in_block, kept = min(row, a.rows - 1);
    return {kept / a.group, at.unit / a.row_blocks * a.group + kept % a.group, row < a.rows};
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
    const int tile_first = at.keys.first + at.step * step_keys + team * team_keys;
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
  // What all teams saw of a unit, in the first team's registers. Pairs of teams first, so that the order is always the same.
  __device__ __forceinline__ void merge_teams(State& s) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      for (int step = 1; step < 4; step *= 2) s.rows.sum[r] += __shfl_xor_sync(~0u, s.rows.sum[r], step);
    if constexpr (teams == 1) return;
    if (lane % 4 == 0)
      for (int r = 0; r < 2; ++r) stats[team * 16 * tiles + row_of_thread(r)] = {s.rows.maximum[r], s.rows.sum[r]};
    __syncthreads();
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float maximum = -INFINITY, sum = 0;
      for (int t = 0; t < teams; ++t) maximum = fmaxf(maximum, stats[t * 16 * tiles + row_of_thread(r)].x);
      const float reference = maximum == -INFINITY ? 0 : maximum;
      for (int t = 0; t < teams; ++t) {
        const float2 one = stats[t * 16 * tiles + row_of_thread(r)];
        sum += one.y * exp2_fast((one.x - reference) * a.scale_log2);
      }
      factor[r] = exp2_fast((s.rows.maximum[r] - reference) * a.scale_log2);
      s.rows.maximum[r] = maximum, s.rows.sum[r] = sum;
    }
#pragma unroll
    for (int i = 0; i < dim / 2; ++i) s.o[i] *= i % 4 < 2 ? factor[0] : factor[1];
#pragma unroll
    for (int half = teams / 2; half; half /= 2) {
      float* const mine = sums + ((team % half) * tiles + tile) * 16 * dim + lane;
      if (team >= half && team < 2 * half)
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) mine[i * 32] = s.o[i];
      __syncthreads();
      if (team < half)
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) s.o[i] += mine[i * 32];
      if (half > 1) __syncthreads();
    }
  }

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

  __device__ __forceinline__ void write_result(State& s, const Place& at) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Row row = row_of(at, row_of_thread(r));
      const float inverse = finish_row(at, row, s.rows.maximum[r], s.rows.sum[r], lane % 4 == 0);
      if (!row.exists) continue;
      T* const to = o_of(at, row);
#pragma unroll
      for (int j = 0; j < dim / 8; ++j) store_two(to, 8 * j + lane % 4 * 2, s.o[4 * j + 2 * r] * inverse, s.o[4 * j + 2 * r + 1] * inverse);
    }
  }
  __device__ __forceinline__ void write_part(const State& s, const Place& at, int slot) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!row_of(at, row_of_thread(r)).exists) continue;
      const long long row = (long long)slot * 16 * tiles + row_of_thread(r);
      if (lane % 4 == 0) a.partial_stats[row] = {s.rows.maximum[r], s.rows.sum[r]};
      float2* const to = reinterpret_cast<float2*>(a.partial_o + row * dim);
#pragma unroll
      for (int j = 0; j < dim / 8; ++j) to[4 * j + lane % 4] = {s.o[4 * j + 2 * r], s.o[4 * j + 2 * r + 1]};
    }
  }

  // The first of a unit's blocks has its beginning in its second slot.
  static __device__ __forceinline__ int slot_of(int first, int part) { return 2 * (first + part) + (part == 0); }

  // By a whole warp, behind a barrier: says that a part is there, and whether all are. Whoever finds them all adds them up; of several that come together
  // more than one may, and all write the same. The fence between one's own word and the others' is what lets nobody miss the last one.
  __device__ __forceinline__ bool finds_all(int slot, int first, int parts) const {
    if (lane == 0) {
      __threadfence();
      *static_cast<volatile unsigned long long*>(a.arrivals + slot) = a.number;
      __threadfence();
    }
    __syncwarp();
    bool all = true;
    for (int part = lane; part < parts; part += 32) all &= __ldcg(a.arrivals + slot_of(first, part)) == a.number;
    all = __all_sync(~0u, all);
    __threadfence();
    return all;
  }
  __device__ __forceinline__ void forget_parts(int first, int parts) const {  // for the next run of a recorded launch
    for (int part = threadIdx.x; part < parts; part += warps * 32) a.arrivals[slot_of(first, part)] = 0;
  }

  // Adds up the parts of blocks first … first + parts − 1, in that order: a thread for four columns of a row.
  __device__ __forceinline__ void add_parts(const Place& at, int first, int parts) const {
    constexpr int fours = dim / 4, at_once = 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < 16 * tiles * fours; i += warps * 32) {
      const int r = i / fours, column = i % fours * 4;
      const Row row = row_of(at, r);
      if (!row.exists) break;
      if (column >= a.dim_v) continue;
      float maximum = -INFINITY, total = 0;
      float4 sum = {};
#pragma unroll 1
      for (int begin = 0; begin < parts; begin += at_once) {
        float2 stat[at_once];
        float4 o[at_once];
        float high = maximum;
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
          stat[n] = {-INFINITY, 0};
          o[n] = {};
          if (begin + n < parts) {
            const long long place = slot_of(first, begin + n) * 16ll * tiles + r;
            stat[n] = __ldcg(a.partial_stats + place);
            o[n] = __ldcg(reinterpret_cast<const float4*>(a.partial_o + place * dim + column));
          }
        }
#pragma unroll
        for (int n = 0; n < at_once; ++n) high = fmaxf(high, stat[n].x);
        const float reference = high == -INFINITY ? 0 : high, before = exp2_fast((maximum - reference) * a.scale_log2);
        total *= before, sum.x *= before, sum.y *= before, sum.z *= before, sum.w *= before;
#pragma unroll
        for (int n = 0; n < at_once; ++n) {
          const float weight = exp2_fast((stat[n].x - reference) * a.scale_log2);
          total += weight * stat[n].y;
          sum.x += weight * o[n].x, sum.y += weight * o[n].y, sum.z += weight * o[n].z, sum.w += weight * o[n].w;
        }
        maximum = high;
      }
      const float inverse = finish_row(at, row, maximum, total, column == 0);
      T* const to = o_of(at, row);
      store_two(to, column, sum.x * inverse, sum.y * inverse);
      store_two(to, column + 2, sum.z * inverse, sum.w * inverse);
    }
  }

  __device__ __forceinline__ void run() const {
    Line line(a, units);
    const Runs runs(line.all, gridDim.x);
    if (int(blockIdx.x) >= runs.blocks) return;
    const int begin_at = runs.begin(blockIdx.x), end_at = runs.begin(blockIdx.x + 1);
    Place here = line.place(begin_at), ahead = here;
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
        merge_teams(s);
        if (unit_begins >= begin_at && unit_ends <= end_at) {
          if (team == 0) write_result(s, here);
        } else {
          const int slot = 2 * blockIdx.x + (unit_begins >= begin_at);
          if (team == 0) write_part(s, here, slot);
          const int first = runs.block_of(unit_begins), parts = runs.block_of(unit_ends - 1) - first + 1;
          __syncthreads();
          if (warp == 0) *flag = finds_all(slot, first, parts);
          __syncthreads();
          if (*flag) {
            add_parts(here, first, parts);
            forget_parts(first, parts);
          }
          __syncthreads();
        }
      }
      if (at + 1 < end_at) advance(a, units, here);
    }
  }
};

// attention_fwd_decode — reads Q, K, V (and cu_q, cu_k, pages) once; writes O and LSE; numerics: products of 16-bit values, sums FP32.
// limit: memory.
template <class T, int dim, int tiles>
__global__ void __launch_bounds__(warps * 32, dim == 256 ? 1 : 2) attention_fwd_decode(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char shared[];
  Block<T, dim, tiles>(a, shared).run();
}

}  // namespace

template <class T, int dim, int tiles>
void start(const Args& a, int blocks, cudaStream_t stream) {
  launch(stream, attention_fwd_decode<T, dim, tiles>, {dim3(unsigned(blocks)), warps * 32, shared_bytes<dim>}, a);
}

#define HEADROOM_DECODE(T, dim)                                   \
  template void start<T, dim, 1>(const Args&, int, cudaStream_t); \
  template void start<T, dim, 2>(const Args&, int, cudaStream_t); \
  template void start<T, dim, 4>(const Args&, int, cudaStream_t);
#define HEADROOM_DECODE_DIMS(T) HEADROOM_DECODE(T, 64) HEADROOM_DECODE(T, 128) HEADROOM_DECODE(T, 256)
HEADROOM_DECODE_DIMS(__nv_bfloat16)
HEADROOM_DECODE_DIMS(__half)

}  // namespace headroom::attention::decode
