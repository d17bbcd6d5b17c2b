// What packed documents and sinks need on a GPU beside the kernels of attention: lists of what each row sees, and dsink.
#include "gpu/dependent_launch.cuh"
#include "ops/attention/documents/documents.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sink.h"

namespace headroom::attention {

namespace {

struct ListArgs {
  DocumentsArgs documents;
  int *zero, *not_numbers;  // to set back for the kernel behind; each may be null
  DocumentTiles tiles[2];
  int position_blocks;  // the blocks behind them cut a row of the batch into tiles each
};

constexpr int list_threads = 256, pieces_at_once = 2048, lengths = 1024;  // tiles of more steps count as equally long

__device__ void list_tiles(const DocumentsArgs& a, const DocumentTiles& to, int batch) {
  __shared__ int next[pieces_at_once], tiles_of[pieces_at_once], begin[pieces_at_once], group[pieces_at_once];
  __shared__ int piece, listed, groups, starts[lengths], sums[list_threads / 32];
  const Pieces p(a, batch, to.size, to.step, to.of_keys);
  DocumentTile *const in_order = to.tiles + std::int64_t(batch) * 2 * to.most, *const by_length = in_order + to.most;
  RowsOfTile *const rows_in_order = to.rows + std::int64_t(batch) * 2 * to.most, *const rows_by_length = rows_in_order + to.most;
  RowTile* const row_tiles = to.row_tiles + std::int64_t(batch) * to.most_row_tiles;
  const bool rows_too = to.row_tiles != nullptr;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  if (thread == 0) piece = 0, listed = 0, groups = 0;
  if (rows_too)
    for (int m = thread; m < to.most_row_tiles; m += list_threads) row_tiles[m] = {0, 0};
  for (int first = 0; first < p.count(); first += pieces_at_once) {
    const int here = min(pieces_at_once, p.count() - first);
    for (int x = thread; x < here; x += list_threads) {
      const Pieces::Cut cut = rows_too && !to.cut && first + x == 0 ? p.whole() : p.cut(first + x);
      next[x] = cut.next, tiles_of[x] = cut.tiles, begin[x] = -1;
    }
    __syncthreads();
    if (thread == 0) {
      int i = piece, n = listed, g = groups;
      for (; i < first + here; i = next[i - first]) begin[i - first] = n, n += tiles_of[i - first], group[i - first] = g++;
      piece = i, listed = n, groups = g;
    }
    __syncthreads();
    for (int x = warp; x < here; x += list_threads / 32) {
      if (begin[x] < 0) continue;
      const Pieces::Cut cut{tiles_of[x], next[x]};
      const int count = min(cut.tiles, to.most - begin[x]);
      if (!rows_too) {
        for (int n = lane; n < count; n += 32) in_order[begin[x] + n] = p.tile(first + x, cut, n);
        continue;
      }
      const Pieces::Rows rows = p.rows_of(first + x, cut.next, group[x]);
      for (int m = lane; m < rows.count && rows.tile + m < to.most_row_tiles; m += 32)
        row_tiles[rows.tile + m] = {rows.first + m * to.step, min(rows.first + (m + 1) * to.step, rows.end)};
      for (int n = lane; n < count; n += 32) {
        const DocumentTile t = in_order[begin[x] + n] = p.tile_of(first + x, cut, n, rows);
        rows_in_order[begin[x] + n] = p.rows_of_tile(t, rows);
      }
    }
    __syncthreads();
  }
  const int count = min(listed, to.most);
  if (thread == 0) to.count[batch] = count;

  // Sorted by counting.
  constexpr int each = lengths / list_threads;
  const auto place = [&](const DocumentTile& t) { return lengths - 1 - min(t.steps, lengths - 1); };
  for (int i = thread; i < lengths; i += list_threads) starts[i] = 0;
  __syncthreads();
  for (int i = thread; i < count; i += list_threads) atomicAdd(&starts[place(in_order[i])], 1);
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < each; ++i) sum += starts[thread * each + i];
  int up_to_here = sum;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0u, up_to_here, step);
    if (lane >= step) up_to_here += before;
  }
  if (lane == 31) sums[warp] = up_to_here;
  __syncthreads();
  int start = up_to_here - sum;
  for (int w = 0; w < warp; ++w) start += sums[w];
  for (int i = 0; i < each; ++i) {
    const int n = starts[thread * each + i];
    starts[thread * each + i] = start;
    start += n;
  }
  __syncthreads();
  for (int i = thread; i < count; i += list_threads) {
    const DocumentTile t = in_order[i];
    const int at = atomicAdd(&starts[place(t)], 1);
    by_length[at] = t;
    if (rows_too) rows_by_length[at] = rows_in_order[i];
  }
}

// attention_list_documents — a thread per position of either side.
//   reads  cu_q, cu_k (a binary search)     writes  8 bytes a position, 32 a tile     limit  latency
__global__ void __launch_bounds__(list_threads) attention_list_documents(const __grid_constant__ ListArgs args) {
  const DocumentsArgs& a = args.documents;
  allow_dependent_launch();
  if (const int block = int(blockIdx.x) - args.position_blocks; block >= 0)
    return list_tiles(a, args.tiles[block / a.batch], block % a.batch);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if (args.zero) *args.zero = 0;
    if (args.not_numbers) *args.not_numbers = 0;
  }
  const long long at = blockIdx.x * (long long)list_threads + threadIdx.x, queries = (long long)a.batch * a.len_q,
                  keys = (long long)a.batch * a.len_k;
  if (at < queries)
    a.keys_of[at] = a.keys_of_row(int(at / a.len_q), int(at % a.len_q));
  else if (at - queries < keys)
    a.rows_of[at - queries] = a.rows_of_key(int((at - queries) / a.len_k), int((at - queries) % a.len_k));
}

struct SinkArgs {
  const float *sink, *lse;
  SinkRows rows;
  float* dsink;
  int batch, heads, len_q;
};

// attention_dsink — a block per head: −Σ e^(sink − LSE) · Δ over its rows, in one order.
//   reads  LSE and Δ once     writes  a number a head     limit  latency
constexpr int sink_threads = 512;
__global__ void __launch_bounds__(sink_threads) attention_dsink(const __grid_constant__ SinkArgs a) {
  __shared__ float parts[sink_threads / 32];
  const int head = blockIdx.x;
  const float sink = a.sink[head];
  float sum = 0;
  const RowTile* const tiles = a.rows.row_tiles;
  const int places = tiles ? int(a.rows.padded) : a.len_q;
  for (int b = 0; b < a.batch; ++b) {
    const long long pair = (long long)b * a.heads + head;
    for (int place = threadIdx.x; place < places; place += sink_threads) {
      const int at = a.rows.in_sixteens ? (place & ~15) | (place & 6) << 1 | (place & 8) >> 2 | (place & 1) : place;
      int row = place;
      if (tiles) {
        const RowTile t = tiles[(long long)b * (places / a.rows.of_tile) + place / a.rows.of_tile];
        row = t.first + place % a.rows.of_tile;
        if (row >= t.end) continue;
      }
      sum -= share_of_sink(sink, a.lse[pair * a.len_q + row]) * a.rows.sign * a.rows.delta[pair * a.rows.padded + at];
    }
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int w = 1; w < sink_threads / 32; ++w) sum += parts[w];
  a.dsink[head] = sum;
}

}  // namespace

void list_documents_on_gpu(const Problem& p, const Extras& with, const Lists& lists, Context& ctx, int* zero, const DocumentTiles& tiles,
                           const DocumentTiles& more_tiles) {
  const std::int64_t positions = p.batch * (p.len_q + p.len_k);
  if (p.documents == 0 || positions == 0 || ctx.dry()) return;
  check(positions < (1ll << 39), Code::unsupported, "attention: {} packed positions are too many for one launch", positions);
  const std::int64_t blocks = ceil_div(positions, list_threads), lists_of_tiles = (tiles.tiles != nullptr) + (more_tiles.tiles != nullptr);
  launch(cuda_stream(ctx.stream), attention_list_documents, {dim3(unsigned(blocks + lists_of_tiles * p.batch)), list_threads},
         {documents_args(p, with, lists), zero, not_numbers_of(lists), {tiles, more_tiles}, int(blocks)});
}

void sum_dsink_on_gpu(const Problem& p, const Tensor& sink, const Tensor& lse, const SinkRows& rows, const Tensor& dsink, Context& ctx) {
  if (ctx.dry()) return;
  const int len = rows.delta ? int(p.len_q) : 0;  // nothing to sum: 0
  launch(cuda_stream(ctx.stream), attention_dsink, {dim3(unsigned(p.heads)), sink_threads},
         {.sink = sink.as<float>(),
          .lse = lse.as<float>(),
          .rows = rows,
          .dsink = dsink.as<float>(),
          .batch = int(p.batch),
          .heads = int(p.heads),
          .len_q = len});
}

}  // namespace headroom::attention
