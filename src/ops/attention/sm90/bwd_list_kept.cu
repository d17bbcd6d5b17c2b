// Where the blocks of dS lie that the backward keeps of packed documents, and its ranges of query heads.
#include "gpu/launch.cuh"
#include "ops/attention/sm90/bwd.h"

namespace headroom::attention::sm90::backward {

namespace {

constexpr int list_threads = 1024, list_warps = list_threads / 32;

struct Counted {  // tiles that rows see, and their blocks
  long long tiles, blocks;
};
__device__ __forceinline__ Counted operator+(Counted a, Counted b) { return {a.tiles + b.tiles, a.blocks + b.blocks}; }

// attention_list_kept_sm90 — a block per row of the batch; the last one to finish lists the ranges.
//   reads  the tiles of keys     writes  16 bytes a tile, 8 per 64 rows     needs  the kernels that list documents and clear counters     limit  latency
__global__ void __launch_bounds__(list_threads) attention_list_kept_sm90(const __grid_constant__ ListKeptArgs a) {
  __shared__ Counted sums[list_warps];
  __shared__ bool last;
  const KeptDocuments& to = a.to;
  const int batch = blockIdx.x, thread = threadIdx.x, lane = thread % 32, warp = thread / 32, count = a.keys.count[batch];
  const DocumentTile* const from = a.keys.tiles + std::size_t(batch) * 2 * a.keys.most;
  KeptTile* const tiles = to.tiles + std::size_t(batch) * to.most;
  Counted before{};
  for (int first = 0; first < count; first += list_threads) {
    const int i = first + thread;
    DocumentTile t{};
    if (i < count) t = from[i];
    Counted up_to_here{t.steps > 0, t.steps};
    for (int step = 1; step < 32; step *= 2) {
      const Counted x{__shfl_up_sync(~0u, up_to_here.tiles, step), __shfl_up_sync(~0u, up_to_here.blocks, step)};
      if (lane >= step) up_to_here = up_to_here + x;
    }
    if (lane == 31) sums[warp] = up_to_here;
    __syncthreads();
    Counted here = before;
    for (int w = 0; w < list_warps; ++w) {
      if (w < warp) here = here + sums[w];
      before = before + sums[w];
    }
    here = here + up_to_here;
    if (t.steps > 0) {  // Borders in no order could ask for more than there is: what has no place is not kept.
      const long long offset = min(here.blocks - t.steps, (long long)to.most_blocks);
      const int n = int(here.tiles) - 1, steps = int(min((long long)t.steps, to.most_blocks - offset));
      tiles[n] = {t.first, t.from, t.from + steps, int(offset)};
      to.tile_at[std::size_t(batch) * to.len_k + t.first] = n;
    }
    __syncthreads();
  }
  for (int m = thread; m < to.row_tiles; m += list_threads)
    to.tiles_of_rows[std::size_t(batch) * to.row_tiles + m] = kept_tiles_of(tiles, int(before.tiles), m);
  if (thread == 0) {
    to.blocks[batch] = int(min(before.blocks, (long long)to.most_blocks));
    __threadfence();
    last = atomicAdd(a.finished, 1) == to.batch - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last || thread > 0) return;
  long long blocks = 0;
  for (int b = 0; b < to.batch; ++b) to.before[b] = blocks, blocks += (long long)to.heads * to.blocks[b];
  KeptRange r{};
  for (int i = 0; i <= to.count; ++i, r = to.after(r)) to.ranges[i] = r;
}

}  // namespace

void start_list_kept(const ListKeptArgs& a, cudaStream_t stream) {
  launch(stream, attention_list_kept_sm90, {dim3(unsigned(a.to.batch)), list_threads}, a);
}

}  // namespace headroom::attention::sm90::backward
