// dS that is kept of packed documents (bwd_kept.h). Key tiles differ in how many row tiles they walk, so a small kernel lists where the blocks of each lie and
// how many query heads make a range: both follow from borders that only the card knows.
#pragma once
#include "ops/attention/documents/document_tiles.h"
#include "ops/attention/sm90/bwd_kept.h"

namespace headroom::attention::sm90::backward {

struct KeptTile {            // a tile of keys that some row sees
  std::int32_t first, from;  // its first key; the first tile of rows that it walks
  std::int32_t end, offset;  // past the last one; the place of its first block among those of a query head
};
struct KeptRange {
  std::int64_t place;  // blocks of all query heads before it
  std::int32_t first;  // query head, counted through all rows of the batch
};

struct KeptDocuments {       // on a GPU
  KeptTile* tiles;           // [batch, most]
  std::int32_t* tile_at;     // [batch, len_k]: which of them begins at this key
  Run* tiles_of_rows;        // [batch, row_tiles]: those that 64 rows see
  std::int32_t* blocks;      // [batch]: of a query head
  std::int64_t* before;      // [batch]: of all query heads of the rows of the batch before
  KeptRange* ranges;         // [count + 1]; the last ones may be empty
  std::int64_t capacity;     // blocks of a range at most
  std::int32_t most_blocks;  // a query head's
  std::int32_t batch, heads, most, row_tiles, len_k, count;
  std::int32_t range;  // the range of this launch

  HEADROOM_HD std::int64_t place(int row_of_batch, int head) const {
    return before[row_of_batch] + std::int64_t(head) * blocks[row_of_batch];
  }
  // The range that begins where this one ends: as many query heads as fit. One fits always.
  HEADROOM_HD KeptRange after(KeptRange r) const {
    for (std::int64_t room = capacity; r.first < batch * heads;) {
      const std::int32_t row = r.first / heads, left = (row + 1) * heads - r.first, each = blocks[row];
      const std::int64_t fit = each > 0 && room / each < left ? room / each : left;
      r.first += std::int32_t(fit), r.place += fit * each, room -= fit * each;
      if (fit < left) break;
    }
    return r;
  }
};

// Tiles that hold row tile m. Neither `from` nor `end` moves left, so they follow each other.
HEADROOM_HD Run kept_tiles_of(const KeptTile* tiles, int count, int m) {
  const auto first_that = [&](auto&& does) {
    int low = 0, past = count;
    while (low < past) {
      const int middle = (low + past) / 2;
      if (does(tiles[middle]))
        past = middle;
      else
        low = middle + 1;
    }
    return low;
  };
  const int first = first_that([&](const KeptTile&t) { return t.end > m; }),
            last = first_that([&](const KeptTile&t) { return t.from > m; });
  return {first, last > first ? last : first};
}

// dealt_tile of (batch, kv head) pairs first … end-1. Past the last tile, `batch` is that of no row.
HEADROOM_HD DealtTile dealt_tile_of_pairs(const DocumentTiles& list, int batches, int kv_heads, int first, int end, int index, int blocks) {
  for (int pair = first; pair < end;) {
    const int batch = pair / kv_heads, head = pair % kv_heads, left = kv_heads - head, heads = end - pair < left ? end - pair : left;
    const int count = list.count[batch];
    if (index < count * heads) {
      const DealtPlace dealt = dealt_in_row(list, batch, count, heads, pair + heads == end, index, blocks);
      return {list.tiles[dealt.at], head + dealt.head, batch};
    }
    index -= count * heads, pair += heads;
  }
  return {{}, 0, batches};
}

struct KeptDocumentRanges {
  std::int64_t most_blocks = 0, capacity = 0;
  std::int64_t count = 0;  // launches: ranges in the worst case; 0: nothing is kept
};
KeptDocumentRanges kept_document_ranges(const Problem& p);

}  // namespace headroom::attention::sm90::backward
