// Packed documents cut into tiles, of query rows or of keys, for kernels that walk whole tiles.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/attention/mask.h"

namespace headroom::attention {

// A document is cut from its first position on, so that its tiles are those it would have in a batch of its own. What is left at its end shares a tile with
// the documents behind it, if those are short and fit whole.
struct DocumentTile {
  std::int32_t first, end;  // positions, no more than a tile has
  std::int32_t from,
      steps;  // what it walks. Rows: the first key that one of them sees, and tiles of keys from there on, at least one. Keys: the first tile
              // of rows, counted from the row of the batch's beginning, and how many
};
// Tiles of keys whose rows are cut too, for sums over rows: into row tiles of `step` rows from a document's first row on, so that no two documents (but short
// ones that share a tile) add to one. Then `from` of DocumentTile is a row tile.
struct RowTile {
  std::int32_t first, end;  // rows; an unused one is empty
};
struct RowsOfTile {
  std::int32_t shift;                 // row tile m begins at row m · step + shift
  std::int32_t plain_from, plain_to;  // row tiles of which every row sees every key of the tile
  std::int32_t nothing;               // 16 bytes
};
struct DocumentTiles {      // on a GPU
  DocumentTile* tiles;      // [batch, 2, most]: as they follow each other, the longest of a document first; and the longest of all first
  std::int32_t* count;      // [batch]
  std::int32_t most;        // a row of the batch has no more
  std::int32_t size, step;  // sizes of a tile, and of a tile that it walks
  std::int32_t tail;        // so many for each block are dealt longest first, at the end
  bool of_keys;
  RowTile* row_tiles = nullptr;  // where rows are cut too, else null: [batch, most_row_tiles]
  RowsOfTile* rows = nullptr;    // [batch, 2, most], as `tiles`
  std::int32_t most_row_tiles = 0;
  bool cut = false;  // else the whole row of the batch counts as one document
};

// How a kernel's blocks walk them: head by head, so that few keys are read at a time. Of the last heads of the last row of the batch the longest come first,
// for an even end.
struct DealtTile {
  DocumentTile tile;
  std::int32_t head, batch;  // batch: past the last one where no tile has this number
};
struct DealtPlace {  // the same, and where in `tiles` it is
  std::size_t at;
  std::int32_t head, batch;
};
// The place with number `index` among `heads` heads of a row of the batch, which has `count` tiles. `last`: this row is dealt last.
HEADROOM_HD DealtPlace dealt_in_row(const DocumentTiles& list, int batch, int count, int heads, bool last, int index, int blocks) {
  int tail = last ? (list.tail * blocks + count - 1) / count : 0;
  if (tail > heads) tail = heads;
  const int in_turn = heads - tail, late = index - in_turn * count;
  const int head = late < 0 ? index / count : in_turn + late % tail, rank = late < 0 ? index % count : late / tail;
  return {(std::size_t(batch) * 2 + (late >= 0)) * std::size_t(list.most) + std::size_t(rank), head, batch};
}
HEADROOM_HD DealtPlace dealt_place(const DocumentTiles& list, int batches, int heads, int index, int blocks) {
  int batch = 0, count = list.count[0];
  for (; index >= count * heads; count = list.count[batch]) {
    index -= count * heads;
    if (++batch == batches) return {0, 0, batch};
  }
  return dealt_in_row(list, batch, count, heads, batch == batches - 1, index, blocks);
}
HEADROOM_HD DealtTile dealt_tile(const DocumentTiles& list, int batches, int heads, int index, int blocks) {
  const DealtPlace place = dealt_place(list, batches, heads, index, blocks);
  return {place.batch == batches ? DocumentTile{} : list.tiles[place.at], place.head, place.batch};
}

}  // namespace headroom::attention
