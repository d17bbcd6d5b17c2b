// Documents packed into one row of the batch. Where they begin is known only when a kernel runs, so the keys that each row sees, and the rows that
// see each key, are listed first, in scratch; a Band then looks its answers up (Reach::listed), and kernels walk them like any other mask.
#pragma once
#include "ops/attention/attention.h"
#include "ops/attention/documents/document_tiles.h"
#include "ops/attention/documents/documents_args.h"

namespace headroom::attention {

// A row of the batch lies in pieces: what is before the first document, the documents, what is behind the last one. They are cut into tiles of `size`
// positions, queries or keys.
struct Pieces {
  static constexpr int most_walked = 512;  // most of a tile, because short documents share it

  const DocumentsArgs& a;
  const std::int32_t *mine, *others;  // first positions of the documents
  int batch, size, step;
  bool of_keys;
  HEADROOM_HD Pieces(const DocumentsArgs& args, int row_of_batch, int tile_size, int tile_step, bool keys)
      : a(args),
        mine((keys ? a.cu_k : a.cu_q) + std::int64_t(row_of_batch) * (a.count + 1)),
        others((keys ? a.cu_q : a.cu_k) + std::int64_t(row_of_batch) * (a.count + 1)),
        batch(row_of_batch),
        size(tile_size),
        step(tile_step),
        of_keys(keys) {}

  HEADROOM_HD int count() const { return a.count + 2; }
  HEADROOM_HD int border(int i) const { return border(mine, i, of_keys ? a.len_k : a.len_q); }  // first position of piece i
  HEADROOM_HD int length(int i) const { return border(i + 1) > border(i) ? border(i + 1) - border(i) : 0; }

  struct Cut {
    int tiles, next;  // pieces up to the next one lie in the last of these tiles
  };
  HEADROOM_HD Cut cut(int i) const {
    const int whole = length(i) / size;
    if (length(i) % size == 0) return {whole, i + 1};
    const int end = border(i) + (whole + 1) * size, walked = other(i + 1) + most_walked;
    int next = i + 1;
    for (int past = count() + 1; past - next > 1;) {
      const int middle = (next + past) / 2;
      (border(middle) <= end && other(middle) <= walked ? next : past) = middle;
    }
    return {whole + 1, next};
  }
  HEADROOM_HD DocumentTile tile(int i, const Cut& cut, int n) const {  // the n-th, longest first where rows see what is before them
    if (!of_keys) n = cut.tiles - 1 - n;
    const int first = border(i) + n * size, end = end_of(i, cut, n);
    const bool shared = end > border(i + 1);
    const Run at_first = seen_in(i, first);
    const int to = (shared ? of_keys ? a.rows_of_key(batch, end - 1) : a.keys_of_row(batch, end - 1) : seen_in(i, end - 1)).last;
    if (of_keys) {
      const int from = at_first.first / step;
      return {first, end, from, to > from * step ? (to + step - 1) / step - from : 0};
    }
    const int seen = to - at_first.first;
    return {first, end, at_first.first, seen > step ? (seen + step - 1) / step : 1};
  }

  // The same for keys whose rows are cut too; `group`: so many documents that share no tile are before this one.
  struct Rows {
    int first, end, tile;  // a document with those that share its last tile: its rows, its first row tile
    int count;             // its row tiles
  };
  HEADROOM_HD Rows rows_of(int i, int next, int group) const {
    const int first = other(i), end = other(next) > first ? other(next) : first;
    return {first, end, first / step + group, (end - first + step - 1) / step};
  }
  HEADROOM_HD DocumentTile tile_of(int i, const Cut& cut, int n, const Rows& rows) const {
    const int first = border(i) + n * size, end = end_of(i, cut, n), own = border(i + 1);
    const int row = (first < own ? seen_in(i, first) : a.rows_of_key(batch, first)).first - rows.first,
              past = (end <= own ? seen_in(i, end - 1) : a.rows_of_key(batch, end - 1)).last - rows.first;
    const int from = DocumentsArgs::between(row / step, rows.count), to = DocumentsArgs::between((past + step - 1) / step, rows.count);
    return {first, end, rows.tile + from, to > from ? to - from : 0};
  }
  HEADROOM_HD RowsOfTile rows_of_tile(const DocumentTile& t, const Rows& rows) const {
    const int shift = rows.first - rows.tile * step;
    if (t.end - t.first < size || t.steps == 0) return {shift, 0, 0, 0};
    const int from = a.rows_of_key(batch, t.end - 1).first - shift, past = a.rows_of_key(batch, t.first).last - shift;
    return {shift, (from + step - 1) / step, past / step, 0};
  }
  HEADROOM_HD Cut whole() const {  // the row of the batch as one piece, for tile_of
    return {((of_keys ? a.len_k : a.len_q) + size - 1) / size, count()};
  }

 private:
  HEADROOM_HD int end_of(int i, const Cut& cut, int n) const {
    const int first = border(i) + n * size, past = border(cut.next);
    return n < cut.tiles - 1 || past > first + size ? first + size : past > first ? past : first + 1;
  }
  HEADROOM_HD Run seen_in(int i, int at) const {  // for a position of piece i: the same as a look-up
    const bool exists = i > 0 && i <= a.count;
    const int mine_first = border(i), other_first = other(i), other_length = other(i + 1) > other_first ? other(i + 1) - other_first : 0;
    if (of_keys) return a.rows_in({exists, other_first, exists ? other_length : 0, mine_first, exists ? length(i) : 0, i - 1}, at);
    return a.keys_in({exists, mine_first, exists ? length(i) : 0, other_first, exists ? other_length : 0, i - 1}, at);
  }
  HEADROOM_HD int other(int i) const { return border(others, i, of_keys ? a.len_q : a.len_k); }
  HEADROOM_HD int border(const std::int32_t* begin, int i, int len) const {
    return i == 0 ? 0 : i > a.count + 1 ? len : DocumentsArgs::between(begin[i - 1], len);
  }
};
// From the arena, unfilled: tiles of `size` queries or keys that walk `step` of the others at a time; `tail` of DocumentTiles.
DocumentTiles make_tiles(const Problem&, Context&, std::int64_t size, std::int64_t step, int tail, bool of_keys);

// The same for tiles of keys whose rows are cut too, unless row tiles that documents leave half empty would be many more than those of the whole row of the
// batch: then it counts as one document.
bool cuts_rows(const Problem&);
DocumentTiles make_tiles_and_rows(const Problem&, Context&, std::int64_t size, std::int64_t step, int tail);

struct Lists {              // empty if a problem has no documents
  Tensor keys_of, rows_of;  // i32 [batch, len_q, 2], [batch, len_k, 2]
  Tensor not_numbers = {};  // i32 [1], on a GPU: kernels set it where a sum of theirs is NaN (mend.h)
};
Lists make_lists(const Problem&, Context&);  // allocates them, unfilled
DocumentsArgs documents_args(const Problem&, const Extras&, const Lists&);
void list_documents(const Problem&, const Extras&, const Lists&, Context&);        // fills them on the CPU
void list_documents_on_gpu(const Problem&, const Extras&, const Lists&, Context&,  // the same on the context's stream,
                           int* zero = nullptr,                                    // beside a counter that is set to 0
                           const DocumentTiles& = {}, const DocumentTiles& = {});  // with tiles, if there is room

inline int* not_numbers_of(const Lists& lists) { return lists.not_numbers ? lists.not_numbers.as<int>() : nullptr; }

// The band of one row of the batch; and of them all, for kernels, which know how to go on to the next.
Band band_of(const Problem&, const Lists&, std::int64_t batch);

// For code on the host that has no arena: lists of its own.
class HostLists {
 public:
  HostLists(const Problem&, const Extras&);  // cu_q and cu_k lie in the host's memory
  Band band(std::int64_t batch) const { return band_of(problem_, lists_, batch); }
  double visible() const;  // pairs that see each other, in all rows of the batch and one head

 private:
  Problem problem_;
  std::vector<Run> runs_;
  Lists lists_;
};

}  // namespace headroom::attention
