// The update of matrices whose 8-bit copies are written as they are updated: a block of threads takes a tile of 128 × 256 weights, which two scales of
// 128 × 128 cover, and knows their largest magnitudes when it has updated the last of them.
#include <algorithm>
#include <vector>

#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "ops/adamw/step_narrow.cuh"
#include "ops/quantise/tile_codes.cuh"

namespace headroom::adamw {

namespace {

using quantise::own;
using quantise::side;
using Word = quantise::Word<bf16>;

constexpr int halves = int(tile_columns) / side;
static_assert(tile_rows == side && tile_columns == moments_block);

// A warp has two rows under way. 512 threads with one row of each warp were 5 % slower (H200, 2026-11-29: bench/lab/fp8.md).
constexpr int warps = threads / 32, turns = 2;
static_assert(threads == quantise::threads);

struct TiledParameter : NarrowParameter<bf16> {
  int rows, columns;
  std::uint8_t *as_is, *transposed;
  float *as_is_scale, *transposed_scale;
  int as_is_apart, transposed_apart;  // scales from one 128 lines to the next
  unsigned long long* counts;
};
struct TileArgs {
  const Numbers* numbers;
  Table<TiledParameter, int(tile_rows* tile_columns), 128> table;
};

template <class G, class Stored>
struct TileRoom {
  Pack<bf16, each> weights[tile_rows][32];  // updated
  union {
    Ahead<bf16, G, Stored> ahead[warps][turns];
    std::uint8_t codes[halves][side * side];  // transposed, as quantise has them
  };
};

struct Found {                        // what a tile's halves found
  std::uint32_t most[halves][warps];  // the largest magnitudes, as bits of bf16: of each warp's rows
  std::uint32_t finite[halves];       // where some are not finite: the largest of the others
  unsigned clipped, flushed, nan;     // in both copies
};

__device__ __forceinline__ void transpose_fours(std::uint32_t (&x)[4]) {  // bytes of a 4 × 4 matrix
  const std::uint32_t low0 = __byte_perm(x[0], x[1], 0x5140), high0 = __byte_perm(x[0], x[1], 0x7362),
                      low1 = __byte_perm(x[2], x[3], 0x5140), high1 = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(low0, low1, 0x5410), x[1] = __byte_perm(low0, low1, 0x7632);
  x[2] = __byte_perm(high0, high1, 0x5410), x[3] = __byte_perm(high0, high1, 0x7632);
}

// The signs of four numbers, two in a word, where four codes have them.
__device__ __forceinline__ std::uint32_t signs_of(std::uint32_t low, std::uint32_t high) {
  return __byte_perm(low, high, 0x7531) & 0x80808080u;
}

// The largest magnitude of each half of a tile, as bits of bf16, in `finite`: numbers that are not finite set no scale. Answers whether there are any.
template <class Room>
__device__ __forceinline__ bool find_largest(const Room& room, Found& found, std::uint32_t (&largest)[halves]) {
  bool special = false;
#pragma unroll
  for (int half = 0; half < halves; ++half) {
    largest[half] = 0;
#pragma unroll
    for (int w = 0; w < warps; ++w) largest[half] = max(largest[half], found.most[half][w]);
    special = special || largest[half] >= Word::infinity;
  }
  if (!special) return false;
  if (threadIdx.x < halves) found.finite[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int i = int(threadIdx.x); i < tile_rows * 32; i += threads)
    for (const bf16 x : room.weights[i / 32][i % 32].at)
      if (const std::uint32_t m = x.bits & 0x7fffu; m < Word::infinity) atomicMax(&found.finite[i % 32 / (32 / halves)], m);
  __syncthreads();
#pragma unroll
  for (int half = 0; half < halves; ++half) largest[half] = found.finite[half];
  return true;
}

// Half a tile in 8 bits, by 256 threads: as it is to the copy, transposed to the room. Both copies have one scale for it, and so one set of codes.
template <class Room>
__device__ __forceinline__ void encode_half(const TiledParameter& t, Room& room, Found& found, int half, std::uint32_t largest,
                                            bool special, int down, int right) {
  const int thread = int(threadIdx.x), group = thread % quantise::across, rows_group = thread / quantise::across;
  const float scale = quantise::scale_of<e4m3>(largest << 16), inverse = 1 / scale;
  if (thread == 0) {
    const int along = right * halves + half;
    t.as_is_scale[std::int64_t(down) * t.as_is_apart + along] = scale;
    t.transposed_scale[std::int64_t(along) * t.transposed_apart + down] = scale;
  }
  std::uint32_t left[own], other[own];  // a row's codes, four each
  std::uint32_t none_zero = 0x80808080u;
  const auto stored = [&](int i, std::uint32_t(&x)[Word::count]) {
    quantise::words_of(room.weights[rows_group * own + i][half * side / own + group], x);
  };
#pragma unroll
  for (int i = 0; i < own; ++i) {
    std::uint32_t x[Word::count];
    stored(i, x);
    uint2 row = {};
#pragma unroll
    for (int j = 0; j < own; j += 2) quantise::put<e4m3>(row, j, Word::value(x, j) * inverse, Word::value(x, j + 1) * inverse);
    if (special) row.x |= signs_of(x[0], x[1]), row.y |= signs_of(x[2], x[3]);  // the instruction drops a NaN's
    left[i] = row.x, other[i] = row.y;
    none_zero &= ((row.x & 0x7f7f7f7fu) + 0x7f7f7f7fu) & ((row.y & 0x7f7f7f7fu) + 0x7f7f7f7fu);
  }
  if (t.counts && (special || none_zero != 0x80808080u)) {
    int flushed = 0, clipped = 0, nan = 0;
#pragma unroll 1
    for (int i = 0; i < own; ++i) {
      std::uint32_t x[Word::count];
      stored(i, x);
      for (const std::uint32_t w : x) {
        const std::uint32_t m = Word::magnitude(w), low = m & 0xffffu, high = m >> 16;
        flushed += Word::nonzero(m);
        clipped += (low == Word::infinity) + (high == Word::infinity);  // nothing finite is: the largest of these set the scale
        nan += (low > Word::infinity) + (high > Word::infinity);
      }
    }
#pragma unroll
    for (int i = 0; i < own; ++i) flushed -= quantise::nonzero_codes(uint2{left[i], other[i]});
    const auto add = [](unsigned& sum, int n) {
      if (n > 0) atomicAdd(&sum, 2u * unsigned(n));  // in both copies
    };
    add(found.flushed, flushed), add(found.clipped, clipped), add(found.nan, nan);
  }
  const std::int64_t row0 = std::int64_t(down) * tile_rows + rows_group * own;
  const int column0 = right * int(tile_columns) + half * side + group * own;
#pragma unroll
  for (int i = 0; i < own; ++i) *reinterpret_cast<uint2*>(t.as_is + (row0 + i) * t.columns + column0) = uint2{left[i], other[i]};
  const auto to_columns = [&](std::uint32_t(&rows)[own], int first) {
    std::uint32_t top[4] = {rows[0], rows[1], rows[2], rows[3]}, bottom[4] = {rows[4], rows[5], rows[6], rows[7]};
    transpose_fours(top), transpose_fours(bottom);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<uint2*>(room.codes[half] + quantise::place_of(group, first + j, rows_group)) = uint2{top[j], bottom[j]};
  };
  to_columns(left, 0), to_columns(other, 4);
}

// adamw_step_tiles — as adamw_step_narrow, and the weights' 8-bit copies: one block of threads per tile of 128 x 256.
//   reads  gradient, weight, moments, scales     writes  weight, moments, scales, copy, 8-bit copies with scales, and adds to counts
//   needs  rows that 128 divides, columns that 256 divides     numerics  the bits of adamw_step_narrow, then of quantise
//   limit  bandwidth: in halves with 16-bit gradients 20 bytes an element of 16-bit moments, 16.06 of 8-bit ones
template <bool codes, class G>
__global__ void __launch_bounds__(threads, 2) adamw_step_tiles(const __grid_constant__ TileArgs a) {
  using Stored = std::conditional_t<codes, std::uint8_t, bf16>;
  using Room = TileRoom<G, Stored>;
  constexpr int block = int(moments_block);
  extern __shared__ __align__(16) char memory[];
  auto& room = *reinterpret_cast<Room*>(memory);
  __shared__ Found found;
  const Numbers k = *a.numbers;
  if (k.go == 0) return;
  if (threadIdx.x == 0) found.clipped = found.flushed = found.nan = 0;
  const TiledParameter& t = a.table.of(blockIdx.x);
  const unsigned tile = blockIdx.x - t.first, wide = unsigned(t.columns / block);
  const int down = int(tile / wide), right = int(tile % wide), warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const std::int64_t apart = std::int64_t(warps) * t.columns;  // from one of a warp's rows to the next
  std::int64_t begin = (std::int64_t(down) * tile_rows + warp) * t.columns + right * block;
  const Common common(k, t);
  Lane<bf16, G, Stored> at(t, begin);
  auto& ahead = room.ahead[warp];
  const auto bring = [&](const Lane<bf16, G, Stored>& from, int row, int turn) {
    if (row < tile_rows) ahead[turn].bring(from);
    warp::copies_commit();
  };
  bring(at, warp, 0);
  // The rows of one warp. Their scales are loaded and stored together: the lower lanes have those of m, the upper lanes those of v.
  constexpr int rows = int(tile_rows) / warps;
  static_assert(rows == 16);
  float* const held = (lane < rows ? t.m_scale : t.v_scale) + (begin + lane % rows * apart) / block;
  float scale = 0;
  if constexpr (codes) scale = *held;
  std::uint32_t most = 0;
  int row = warp, turn = 0;
#pragma unroll 1
  for (; row < tile_rows; row += warps, begin += apart, turn ^= 1) {
    Lane<bf16, G, Stored> next = at;
    next.advance(apart);
    bring(next, row + warps, turn ^ 1);
    warp::copies_wait<turns - 1>();
    Scales scales{};
    const int mine = row / warps;
    if constexpr (codes) scales = {__shfl_sync(~0u, scale, mine), __shfl_sync(~0u, scale, mine + rows)};
    step_block<true, false, codes>(common, at, t.element + begin, each, 1, 0, ahead[turn], scales, [&](const Pack<bf16, each>& updated) {
      room.weights[row][lane] = updated;  // until its scale is known
      std::uint32_t x[Word::count];
      quantise::words_of(updated, x);
#pragma unroll
      for (const std::uint32_t w : x) most = Word::max(most, Word::magnitude(w));
    });
    if (lane % rows == mine) scale = lane < rows ? scales.m : scales.v;
    at = next;
  }
  if constexpr (codes) *held = scale;
#pragma unroll
  for (int step = 8; step; step /= 2) most = Word::max(most, __shfl_xor_sync(~0u, most, step));  // over 16 lanes: 128 columns
  if (lane % 16 == 0) found.most[lane / 16][warp] = max(most & 0xffffu, most >> 16);
  __syncthreads();
  std::uint32_t largest[halves];
  const bool special = find_largest(room, found, largest);
#pragma unroll 1
  for (int half = 0; half < halves; ++half) encode_half(t, room, found, half, half ? largest[1] : largest[0], special, down, right);
  __syncthreads();
#pragma unroll
  for (int n = 0; n < halves * side * side / 16 / threads; ++n) {
    const int piece = int(threadIdx.x) + n * threads, line = piece / 8, u = piece % 8;  // a line: of both halves
    *reinterpret_cast<uint4*>(t.transposed + (std::int64_t(right) * block + line) * t.rows + down * side + u * 16) =
        quantise::piece_of_line(room.codes[line / side], line % side, u);
  }
  if (!t.counts || threadIdx.x != 0) return;
  const auto add = [&](quantise::Count which, unsigned long long n) {
    if (n) atomicAdd(t.counts + which, n);
  };
  if (tile == 0) add(quantise::Count::numbers, 2ull * unsigned(t.rows) * unsigned(t.columns));
  add(quantise::Count::clipped, found.clipped);
  add(quantise::Count::flushed, found.flushed);
  add(quantise::Count::nan, found.nan);
}

TiledParameter tiled(const Update& t) {
  TiledParameter p{};
  p.grad = t.grad.data;
  p.master = t.master.as<float>(), p.copy = t.copy.as<bf16>(), p.rest = t.rest.as<std::uint16_t>();
  p.m = t.m.data, p.v = t.v.data, p.m_scale = t.m_scale.as<float>(), p.v_scale = t.v_scale.as<float>();
  p.count = t.grad.count(), p.element = t.first, p.parameter = t.parameter;
  p.decay = t.decay, p.aligned = true, p.narrow = t.grad.dtype != DType::f32;
  p.rows = int(t.copy.shape[0]), p.columns = int(t.copy.shape[1]);
  p.as_is = t.as_is.values.as<std::uint8_t>(), p.as_is_scale = t.as_is.scale.as<float>();
  p.transposed = t.transposed.values.as<std::uint8_t>(), p.transposed_scale = t.transposed.scale.as<float>();
  p.as_is_apart = int(t.as_is.scale.stride[0]), p.transposed_apart = int(t.transposed.scale.stride[0]);
  p.counts = reinterpret_cast<unsigned long long*>(t.counts.data);
  for (const void* at :
       {t.grad.data, t.master.data, t.copy.data, t.rest.data, t.m.data, t.v.data, t.as_is.values.data, t.transposed.values.data})
    check(reinterpret_cast<std::uintptr_t>(at) % 16 == 0, Code::bad_argument,
          "adamw: a weight whose 8-bit copies are written has tensors that begin on 16 bytes; one is at {}", at);
  return p;
}

template <bool codes, class G>
void start(const std::vector<TiledParameter>& some, const Tensor& numbers, cudaStream_t stream) {
  using Stored = std::conditional_t<codes, std::uint8_t, bf16>;
  constexpr std::size_t bytes = sizeof(TileRoom<G, Stored>);
  static_assert(2 * (bytes + sizeof(Found) + 1024) <= 228 * 1024, "two blocks share a multiprocessor");
  TileArgs args{numbers.as<Numbers>(), {}};
  const auto go = [&] {
    if (args.table.pieces > 0) launch(stream, adamw_step_tiles<codes, G>, {grid_of(args.table.pieces), threads, bytes}, args);
    args.table.count = 0, args.table.pieces = 0;
  };
  for (const TiledParameter& t : some)
    if (!args.table.add(t)) go(), args.table.add(t);
  go();
}

}  // namespace

void advance_tiles(std::span<const Update> all, const Tensor& numbers, Context& ctx) {
  const auto stream = cuda_stream(ctx.stream);
  const auto with = [&](DType moments, bool narrow) {
    std::vector<TiledParameter> some;
    for (const Update& t : all)
      if (writes_copies(t, ctx.device) && t.m.dtype == moments && (t.grad.dtype != DType::f32) == narrow) some.push_back(tiled(t));
    return some;
  };
  start<false, bf16>(with(DType::bf16, true), numbers, stream);
  start<false, float>(with(DType::bf16, false), numbers, stream);
  start<true, bf16>(with(DType::u8, true), numbers, stream);
  start<true, float>(with(DType::u8, false), numbers, stream);
}

}  // namespace headroom::adamw
