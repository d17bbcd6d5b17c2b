// dS that the backward of head dims past 128 keeps between its two kernels: where each block of it lies, and how much work is done at a time.
#pragma once
#include "ops/attention/mask.h"

namespace headroom::attention {
struct Problem;
}

namespace headroom::attention::sm90::backward {

// dS of a range of work, which dK and dV's kernel keeps for dQ's product: blocks of 64 keys × 64 rows of 16 bits, each in the order of the registers that
// made it. A range is `pairs` (batch, kv head) pairs, and of each `heads` of the query heads that share it.
constexpr int kept_side = 64, kept_vectors = kept_side * kept_side / 8;  // vectors of 16 bytes
struct Kept {
  void* ds;           // [pairs, heads, blocks_of_head, kept_vectors]
  float* unfinished;  // [pairs, key tiles, dK or dV, registers, threads]: sums of a range that does not hold all query heads of its pairs
  int first_pair, pairs, first_head, heads;
  int blocks_of_head, row_tiles, key_tiles, shift, width;
  bool resumes, goes_on;  // sums come from `unfinished`, and go there

  // Where the block of key tile n and row tile m lies among those of its head. All rows of tiles see the same number of them; or, causal, tile m sees
  // the first m + shift, as far as they exist.
  HEADROOM_HD int place(int m, int n, int first_seen) const {
    if (width > 0) return m * width + n - first_seen;
    const int row = m + (shift < 0 ? shift : 0), more = shift < 0 ? 0 : shift, rising = row < key_tiles - more ? row : key_tiles - more;
    if (rising < 0) return row * key_tiles + n;
    return rising * (rising - 1) / 2 + rising * more + (row - rising) * key_tiles + n;
  }
};

// Work is done in ranges: as many (batch, kv head) pairs, and of each as many query heads, as fit in `kept_bytes`; more, up to `kept_bytes_at_most`, where
// these are too few to keep all multiprocessors at work. Heads that are longer keep nothing, and dS is formed twice. Documents: bwd_kept_documents.h.
constexpr std::int64_t kept_block_bytes = kept_vectors * 16, kept_bytes = 264 << 20, kept_bytes_at_most = 520 << 20;
// Sums of dK and dV between two ranges, FP32. They grow with the keys: where they would take more, nothing is kept either.
constexpr std::int64_t unfinished_tile_bytes = 2 * kept_side * 256 * 4, unfinished_bytes_at_most = 128 << 20;

struct KeptRanges {
  Kept shape{};                       // a head's
  std::int64_t pairs = 0, heads = 0;  // a range has so many at most
  std::int64_t count = 0;             // ranges; 0: nothing is kept
};
KeptRanges kept_ranges(const Problem& p, int units);

}  // namespace headroom::attention::sm90::backward
