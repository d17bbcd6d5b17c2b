// fp8_product.cuh — a plain product in two-level sums, C[m, n] = A[m, k] · B[n, k]ᵀ in E4M3, in as many shapes as bench/lab/fp8_product.cu asks for.
// A has a scale for each 1 x 128 of its numbers, B one for each 128 x 128 or 1 x 128. Blocks are persistent: one thread fetches, `groups` of four
// warps multiply 64 rows (or twice 64) by all columns, and store through shared memory while the other groups' products run.
#pragma once
#include "gpu/mma_fp8.cuh"
#include "gpu/tma.cuh"

namespace lab {
using namespace headroom;

enum class Share : std::uint8_t { nothing, a, b };  // what both blocks of a cluster read, each fetching half of it
enum class Without : std::uint8_t { nothing, promotion, loads, products, store };
enum class BScale : std::uint8_t {
  ahead,
  each_step,
  run
};  // block: 32 steps ahead in registers, or a load a step; run: through shared memory

struct Config {
  int groups = 2, waves = 1, halves = 1, columns = 128,
      stages = 5;  // of a group: waves x halves products of 64 x columns / halves, one after another
  Share share = Share::b;
  int parts = 1;          // 2: the next step's products are under way while this step's are added
  int out_columns = 128;  // of a group's rows in shared memory; 0: stored from registers
  BScale b_scale = BScale::ahead;
  bool a_in_registers = false;  // read once for both halves
  bool peek = false;            // asks for the next stage before this one's sums
  bool lanes_arrive = false;    // at a barrier of the scales' own
  Without without = Without::nothing;
  bool counts = false;
};

struct Args {
  Map a, b, c;
  const float *a_scale, *b_scale;
  int a_step, b_step;  // of scales: from 128 of k to the next (run), from 128 of n to the next (block)
  __nv_bfloat16* out;
  int m, n, k, high, wide, band;
  unsigned* counts;  // of each group of a block: cycles of waiting, products, sums, the rest; steps, tiles
  int* note;         // on the host: which wait never ended
};

constexpr int depth = 128;

template <Config c>
struct Shape {
  static constexpr int rows = c.groups * c.waves * 64, cluster = c.share == Share::nothing ? 1 : 2, threads = 128 + c.groups * 128;
  static constexpr int panel = c.columns % 64 ? 32 : 64, panel_size = 64 * panel * 2;  // columns of a stored panel, bytes
  static constexpr int a_box = c.share == Share::a ? rows / 2 : rows, b_box = c.share == Share::b ? c.columns / 2 : c.columns;
  static constexpr int width = c.columns / c.halves, pieces = c.waves * c.halves;
  static constexpr bool runs = c.b_scale == BScale::run, two = !runs && width != 128;  // two blocks of B's scales under a product
  static constexpr int fetchers_registers = c.groups == 2 ? 40 : 32, multipliers_registers = c.groups == 2 ? 232 : 160;
};

template <Config c>
struct Shared {
  using S = Shape<c>;
  struct Stage {
    char a[S::rows * depth], b[c.columns * depth];
  } stage[c.stages];
  char out[c.groups][c.out_columns > 0 ? 64 * c.out_columns * 2 : 16];
  float a_scale[c.stages][S::rows];
  float b_scale[S::runs ? c.stages : 1][S::runs ? c.columns : 4];
  Barrier full[c.stages], empty[c.stages], scales_read[c.stages];
};

__device__ __forceinline__ bool open(Barrier& b, int parity) {
  std::uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(shared_address(&b)), "r"(parity)
               : "memory");
  return done;
}
__device__ __forceinline__ void wait(Barrier& b, int parity, int* note,
                                     int who) {  // ends the kernel with an error where a barrier stands still
  if (open(b, parity)) return;
  for (int i = 0; !open(b, parity); ++i)
    if (i > 2'000'000) {
      *reinterpret_cast<volatile int*>(note) = who;
      __threadfence_system();
      __trap();
    }
}

struct Tile {
  int row, column;
};
template <Config c>
__device__ __forceinline__ Tile tile_at(const Args& a, int number, int rank) {
  using S = Shape<c>;
  int y, x;
  if (a.band == 0) {  // the shorter side first
    y = a.high < a.wide ? number % a.high : number / a.wide;
    x = a.high < a.wide ? number / a.high : number % a.wide;
  } else {  // bands of `band` tiles down
    const int of_band = a.band * a.wide, first = number / of_band * a.band, here = min(a.band, a.high - first), inside = number % of_band;
    y = first + inside % here;
    x = inside / here;
  }
  if (c.share == Share::b) y = 2 * y + rank;
  if (c.share == Share::a) x = 2 * x + rank;
  return {y * S::rows, x * c.columns};
}

template <Config c>
__device__ __forceinline__ void fetch(const Args& a, Shared<c>& s, int rank, int first, int stride) {
  using S = Shape<c>;
  const int tiles = a.high * a.wide, steps = a.k / depth;
  constexpr int scale_bytes = S::rows * 4 + (S::runs ? c.columns * 4 : 0);
  Turn<c.stages> turn;
  int done = 0;
  for (int number = first; number < tiles; number += stride) {
    const Tile t = tile_at<c>(a, number, rank);
    for (int step = 0; step < steps; ++step, turn.next(), ++done) {
      auto& stage = s.stage[turn.stage];
      Barrier& full = s.full[turn.stage];
      wait(s.empty[turn.stage], turn.parity ^ 1, a.note, 1);
      if (c.without == Without::loads && done >= c.stages) {
        full.arrive();
        continue;
      }
      full.arrive_and_expect(int(sizeof stage) + scale_bytes);
      const int at = step * depth;
      if constexpr (c.share == Share::a)
        load_in_all(stage.a + rank * S::a_box * depth, a.a, full, CachePolicy::normal, 3, at, t.row + rank * S::a_box, 0);
      else
        load(stage.a, a.a, full, CachePolicy::normal, at, t.row, 0);
      if constexpr (c.share == Share::b)
        load_in_all(stage.b + rank * S::b_box * depth, a.b, full, CachePolicy::normal, 3, at, t.column + rank * S::b_box, 0);
      else
        load(stage.b, a.b, full, CachePolicy::normal, at, t.column, 0);
      if constexpr (c.lanes_arrive) wait(s.scales_read[turn.stage], turn.parity ^ 1, a.note, 4);
      load_run(s.a_scale[turn.stage], a.a_scale + std::int64_t(step) * a.a_step + t.row, S::rows * 4, full);
      if constexpr (S::runs) load_run(s.b_scale[turn.stage], a.b_scale + std::int64_t(step) * a.b_step + t.column, c.columns * 4, full);
    }
  }
}

template <Config c>
struct BlockScales {  // of B, one or two blocks under a tile: lane l has those of step 32 i + l, the next 32 are fetched ahead
  static constexpr int count = Shape<c>::two || c.halves == 2 ? 2 : 1;
  const float* from[count];
  float now[count], next[count];
  int steps, split;  // columns of the tile under the first block

  __device__ __forceinline__ float at(int i, int step) const { return step < steps ? __ldg(from[i] + step) : 0.f; }
  __device__ __forceinline__ BlockScales(const Args& a, const Tile& t) : steps(a.k / depth), split(128 - t.column % 128) {
    const int most = (a.n + 127) / 128 - 1;
    for (int i = 0; i < count; ++i) {
      from[i] = a.b_scale + std::int64_t(min(t.column / 128 + i, most)) * a.b_step;
      if (c.b_scale == BScale::each_step)
        next[i] = at(i, 0);
      else
        now[i] = at(i, threadIdx.x % 32), next[i] = at(i, 32 + threadIdx.x % 32);
    }
  }
  __device__ __forceinline__ void get(int step, float (&b)[2]) {
    for (int i = 0; i < count; ++i)
      if (c.b_scale == BScale::each_step) {
        b[i] = next[i];
        next[i] = at(i, step + 1);
      } else {
        b[i] = __shfl_sync(~0u, now[i], step % 32);
        if (step % 32 == 31) now[i] = next[i], next[i] = at(i, step + 33 + threadIdx.x % 32);
      }
  }
};
struct NoScales {
  int split = 0;
  __device__ NoScales(const Args&, const Tile&) {}
  __device__ void get(int, float (&b)[2]) { b[0] = b[1] = 1; }
};

template <Config c>
__device__ __forceinline__ void promote(float (&sum)[Shape<c>::width / 2], const float (&part)[Shape<c>::width / 2], const float (&a)[2],
                                        const float (&b)[2], int half, int split, const float* b_run) {
  if constexpr (Shape<c>::runs) {
#pragma unroll
    for (int j = 0; j < Shape<c>::width / 8; ++j) {
      const float2 of_b = *reinterpret_cast<const float2*>(b_run + 8 * j);
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) sum[i] = fmaf(part[i] * a[i / 2 % 2], i % 2 ? of_b.y : of_b.x, sum[i]);
    }
  } else {
#pragma unroll
    for (int q = 0; q < Shape<c>::width / 32; ++q) {
      const float of_b = c.halves == 2 ? b[half] : Shape<c>::two && 32 * q >= split ? b[1] : b[0], scale[2] = {a[0] * of_b, a[1] * of_b};
#pragma unroll
      for (int i = 16 * q; i < 16 * q + 16; ++i) sum[i] = fmaf(part[i], scale[i / 2 % 2], sum[i]);
    }
  }
}

template <Config c>
__device__ __forceinline__ void store_piece(const Args& a, Shared<c>& s, const float (&sum)[Shape<c>::width / 2], const Tile& t, int group,
                                            int piece) {
  using S = Shape<c>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, first = t.row + (group * c.waves + piece / c.halves) * 64,
            left = t.column + piece % c.halves * S::width;
  if constexpr (c.without == Without::store) {
    if (sum[0] == 12345.f) a.out[0] = sum[1];
  } else if constexpr (c.out_columns == 0) {
    for (int r = 0; r < 2; ++r) {
      const int row = first + warp * 16 + lane / 4 + 8 * r;
      if (row < a.m)
#pragma unroll
        for (int j = 0; j < S::width / 8; ++j)
          if (const int column = left + 8 * j + lane % 4 * 2; column < a.n)
            *reinterpret_cast<std::uint32_t*>(a.out + std::int64_t(row) * a.n + column) =
                pack<__nv_bfloat16>(sum[4 * j + 2 * r], sum[4 * j + 2 * r + 1]);
    }
  } else {
    const bool stores = threadIdx.x % 128 == 0;
    const int row = warp * 16 + lane % 16;
    constexpr int chunks = S::panel / 8;  // of 16 bytes, in a row of a panel
#pragma unroll
    for (int part = 0; part < S::width / c.out_columns; ++part) {
      if (stores) store_wait_read<0>();
      meet(1 + group, 128);
#pragma unroll
      for (int j = 0; j < c.out_columns / 8; j += 2) {
        const int d = 4 * (part * c.out_columns / 8 + j), chunk = j % chunks + lane / 16;
        const int there = S::panel == 64 ? swizzled(row, chunk) : row * 64 + ((chunk ^ (row / 2 % 4)) << 4);
        store_blocks(s.out[group] + j / chunks * S::panel_size + there, pack<__nv_bfloat16>(sum[d], sum[d + 1]),
                     pack<__nv_bfloat16>(sum[d + 2], sum[d + 3]), pack<__nv_bfloat16>(sum[d + 4], sum[d + 5]),
                     pack<__nv_bfloat16>(sum[d + 6], sum[d + 7]));
      }
      proxy_fence();
      meet(1 + group, 128);
      if (stores) {
#pragma unroll
        for (int p = 0; p < c.out_columns / S::panel; ++p)
          store(a.c, s.out[group] + p * S::panel_size, left + part * c.out_columns + p * S::panel, first);
        store_commit();
      }
    }
  }
}

template <Config c>
__device__ __forceinline__ void multiply(const Args& a, Shared<c>& s, int rank, int first, int stride, int group) {
  using S = Shape<c>;
  constexpr int n = S::width / 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row_here = group * c.waves * 64 + warp * 16 + lane / 4;
  const int tiles = a.high * a.wide, steps = a.k / depth;
  const Descriptors words(&s);
  const auto offset = [&](const void* p) { return int(static_cast<const char*>(p) - reinterpret_cast<const char*>(&s)); };
  const auto release = [&](int stage) {
    if constexpr (S::cluster == 1) {
      if (lane == 0) s.empty[stage].arrive();
    } else {
      if (lane < 2) s.empty[stage].arrive_in(lane);
    }
  };
  std::uint32_t fragment[c.a_in_registers ? depth / 32 : 1][4];
  const auto read_a = [&](int stage) {  // this warp's 16 rows
    const int row = group * 64 + warp * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < depth / 32; ++i) {
      std::uint32_t(&r)[4] = fragment[c.a_in_registers ? i : 0];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(shared_address(s.stage[stage].a + swizzled(row, 2 * i + lane / 16)))
                   : "memory");
    }
  };
  const auto products = [&](float(&part)[n], int stage, int piece, bool fresh) {
    if constexpr (c.without != Without::products) {
      const int at = offset(s.stage) + stage * int(sizeof s.stage[0]), wave = piece / c.halves, half = piece % c.halves;
      mma_fence();
#pragma unroll
      for (int i = 0; i < depth / 32; ++i) {
        const auto b = words.at(at + S::rows * depth + half * panel_bytes(S::width) + k_offset(S::width, i));
        if constexpr (c.a_in_registers)
          mma_e4m3(part, fragment[i], b, !fresh || i > 0);
        else
          mma_e4m3(part, words.at(at + (group * c.waves + wave) * panel_bytes(64) + k_offset(64, i)), b, !fresh || i > 0);
      }
      mma_commit();
    }
  };
  using Scales = std::conditional_t<S::runs, NoScales, BlockScales<c>>;
  Turn<c.stages> turn;
  unsigned waited = 0, multiplied = 0, added = 0, rest = 0, all_steps = 0, all_tiles = 0, mark = 0;
  const auto clocked = [&](unsigned& into) {
    if constexpr (c.counts) {
      const unsigned now = clock();
      into += now - mark;
      mark = now;
    }
  };
  if constexpr (c.counts) mark = clock();
  bool ready = false;  // what was asked for

  for (int number = first; number < tiles; number += stride) {
    const Tile t = tile_at<c>(a, number, rank);
    Scales scales(a, t);
    float sum[S::pieces][n], part[n];
#pragma unroll
    for (auto& piece : sum)
#pragma unroll
      for (float& x : piece) x = 0;
    const auto scales_of = [&](int stage, int wave, float(&of_a)[2]) {
#pragma unroll
      for (int r = 0; r < 2; ++r) of_a[r] = s.a_scale[stage][row_here + wave * 64 + 8 * r];
    };
    const auto run_of = [&](int stage) { return S::runs ? s.b_scale[stage] + lane % 4 * 2 : nullptr; };
    clocked(rest), ++all_tiles;

    if constexpr (c.without == Without::promotion) {  // one level: the unit adds all along
      int before = 0;
      for (int step = 0; step < steps; ++step, turn.next()) {
        wait(s.full[turn.stage], turn.parity, a.note, 2);
        products(sum[0], turn.stage, 0, step == 0);
        mma_wait<1>();
        if (step > 0) release(before);
        before = turn.stage;
      }
      mma_wait<0>();
      pin(sum[0]);
      release(before);
    } else {
      if constexpr (c.a_in_registers) {
        wait(s.full[turn.stage], turn.parity, a.note, 2);
        read_a(turn.stage);
      }
      for (int step = 0; step < steps; ++step) {
        if constexpr (!c.a_in_registers)
          if (!ready) wait(s.full[turn.stage], turn.parity, a.note, 2);
        clocked(waited);
        const int stage = turn.stage;
        float of_a[2], of_b[2];
        turn.next();
#pragma unroll
        for (int piece = 0; piece < S::pieces; ++piece) {
          products(part, stage, piece, true);
          if (piece % c.halves == 0) scales_of(stage, piece / c.halves, of_a);
          if (piece == 0) scales.get(step, of_b);
          if constexpr (c.lanes_arrive) s.scales_read[stage].arrive();
          mma_wait<0>();
          pin(part);
          clocked(multiplied);
          if constexpr (c.without == Without::products)
#pragma unroll
            for (float& x : part) x = 1;
          if (!S::runs && piece == S::pieces - 1) {
            release(stage);
            if constexpr (c.peek) ready = open(s.full[turn.stage], turn.parity);
            if constexpr (c.a_in_registers)
              if (step + 1 < steps) {
                wait(s.full[turn.stage], turn.parity, a.note, 2);
                clocked(waited);
                read_a(turn.stage);
              }
          }
          promote<c>(sum[piece], part, of_a, of_b, piece % c.halves, scales.split, run_of(stage));
          if constexpr (c.counts) pin(sum[piece]);
          clocked(added);
        }
        if constexpr (S::runs) release(stage);
      }
    }
    all_steps += steps;
#pragma unroll
    for (int piece = 0; piece < S::pieces; ++piece) store_piece<c>(a, s, sum[piece], t, group, piece);
  }
  if (c.out_columns > 0 && threadIdx.x % 128 == 0) store_wait<0>();
  if constexpr (c.counts) {
    clocked(rest);
    if (threadIdx.x % 128 == 0) {
      unsigned* to = a.counts + (blockIdx.x * c.groups + group) * 6;
      to[0] = waited, to[1] = multiplied, to[2] = added, to[3] = rest, to[4] = all_steps, to[5] = all_tiles;
    }
  }
}

// The same with two parts: the products of the next step, of the next tile too, are under way while a step's are added and a tile is stored.
template <Config c>
__device__ __forceinline__ void multiply_ahead(const Args& a, Shared<c>& s, int rank, int first, int stride, int group) {
  using S = Shape<c>;
  constexpr int n = c.columns / 2;
  static_assert(S::pieces == 1 && !S::runs);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row_here = group * 64 + warp * 16 + lane / 4;
  const int tiles = a.high * a.wide, steps = a.k / depth;
  const Descriptors words(&s);
  const int base = int(reinterpret_cast<const char*>(s.stage) - reinterpret_cast<const char*>(&s));
  Turn<c.stages> turn, next;
  const auto start = [&](float(&part)[n]) {
    wait(s.full[next.stage], next.parity, a.note, 3);
    const int at = base + next.stage * int(sizeof s.stage[0]);
    mma_fence();
#pragma unroll
    for (int i = 0; i < depth / 32; ++i)
      mma_e4m3(part, words.at(at + group * panel_bytes(64) + k_offset(64, i)), words.at(at + S::rows * depth + k_offset(c.columns, i)),
               i > 0);
    mma_commit();
    next.next();
  };
  int left = (tiles - first + stride - 1) / stride * steps, number = first, step = 0;  // left: steps that have not begun
  if (number >= tiles) return;
  Tile t = tile_at<c>(a, number, rank);
  BlockScales<c> scales(a, t);
  float sum[n], one[n], other[n];
#pragma unroll
  for (float& x : sum) x = 0;
  const auto add = [&](const float(&part)[n], const float(&of_a)[2], const float(&of_b)[2]) {
    promote<c>(sum, part, of_a, of_b, 0, scales.split, nullptr);
    if (++step < steps) return;
    store_piece<c>(a, s, sum, t, group, 0);
#pragma unroll
    for (float& x : sum) x = 0;
    step = 0, number += stride;
    if (number >= tiles) return;
    t = tile_at<c>(a, number, rank);
    scales = BlockScales<c>(a, t);
  };
  float of_a[2], of_b[2];
  const auto before = [&] {
    for (int r = 0; r < 2; ++r) of_a[r] = s.a_scale[turn.stage][row_here + 8 * r];
    scales.get(step, of_b);
  };
  const auto after = [&] {
    if constexpr (S::cluster == 1) {
      if (lane == 0) s.empty[turn.stage].arrive();
    } else {
      if (lane < 2) s.empty[turn.stage].arrive_in(lane);
    }
    turn.next();
  };
  start(one), --left;
  for (;;) {
    if (left-- == 0) {
      before(), mma_wait<0>(), pin(one), after(), add(one, of_a, of_b);
      break;
    }
    start(other);
    before(), mma_wait<1>(), pin(one), after(), add(one, of_a, of_b);
    if (left-- == 0) {
      before(), mma_wait<0>(), pin(other), after(), add(other, of_a, of_b);
      break;
    }
    start(one);
    before(), mma_wait<1>(), pin(other), after(), add(other, of_a, of_b);
  }
  if (c.out_columns > 0 && threadIdx.x % 128 == 0) store_wait<0>();
}

template <Config c>
__device__ __forceinline__ void run(const Args& a) {
  using S = Shape<c>;
  static_assert(sizeof(Shared<c>) <= 227 * 1024);
  extern __shared__ __align__(1024) char memory[];
  auto& s = *reinterpret_cast<Shared<c>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < c.stages; ++i) {
      s.full[i].init(1);
      s.empty[i].init(c.groups * 4 * S::cluster);
      s.scales_read[i].init(c.groups * 128);
    }
    barriers_ready();
  }
  if constexpr (S::cluster == 1)
    __syncthreads();
  else
    cluster_meet();
  const int rank = int(blockIdx.x) % S::cluster, first = int(blockIdx.x) / S::cluster, stride = int(gridDim.x) / S::cluster;
  const int group = __shfl_sync(~0u, int(threadIdx.x) / 128, 0);
  if (group > 0) {
    registers_up<S::multipliers_registers>();
    if constexpr (c.parts == 2)
      multiply_ahead<c>(a, s, rank, first, stride, group - 1);
    else
      multiply<c>(a, s, rank, first, stride, group - 1);
  } else {
    registers_down<S::fetchers_registers>();
    if (threadIdx.x == 0) fetch<c>(a, s, rank, first, stride);
    __syncwarp();
  }
  if constexpr (S::cluster > 1) cluster_meet();  // no block exits while the other still sends
}

}  // namespace lab
