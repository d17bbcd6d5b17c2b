// Packed documents of which keys and rows are cut: listed as attention_list_documents does it, and checked row by row and key by key.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "ops/attention/documents/documents.h"

namespace headroom::attention {
namespace {

struct Listed {  // one row of the batch
  std::vector<DocumentTile> tiles;
  std::vector<RowsOfTile> rows_of;
  std::vector<RowTile> row_tiles;

  Listed(const DocumentsArgs& a, const DocumentTiles& list) : row_tiles(std::size_t(list.most_row_tiles)) {
    const Pieces p(a, 0, list.size, list.step, true);
    int group = 0;
    for (int i = 0; i < p.count(); ++group) {
      const Pieces::Cut cut = list.cut ? p.cut(i) : p.whole();
      const Pieces::Rows rows = p.rows_of(i, cut.next, group);
      for (int m = 0; m < rows.count; ++m) {
        RowTile& to = row_tiles.at(std::size_t(rows.tile + m));
        EXPECT_EQ(to.first, to.end) << "two documents have row tile " << rows.tile + m;
        to = {rows.first + m * list.step, std::min(rows.first + (m + 1) * list.step, rows.end)};
      }
      for (int n = 0; n < cut.tiles; ++n) {
        tiles.push_back(p.tile_of(i, cut, n, rows));
        rows_of.push_back(p.rows_of_tile(tiles.back(), rows));
      }
      i = cut.next;
    }
    EXPECT_LE(int(tiles.size()), list.most);
  }
};

// Every row lies in one row tile, every key in one tile, every visible pair in a step of it; a step that needs no mask sees all.
void check(const DocumentsArgs& a, const DocumentTiles& list, std::int64_t& plain) {
  const Listed x(a, list);
  std::vector<int> row_tile_of(std::size_t(a.len_q), -1), tiles_with(std::size_t(a.len_k), 0);
  for (std::size_t m = 0; m < x.row_tiles.size(); ++m) {
    EXPECT_LE(x.row_tiles[m].end - x.row_tiles[m].first, list.step);
    for (int i = x.row_tiles[m].first; i < x.row_tiles[m].end; ++i) {
      EXPECT_EQ(row_tile_of.at(std::size_t(i)), -1) << "row " << i;
      row_tile_of[std::size_t(i)] = int(m);
    }
  }
  for (int i = 0; i < a.len_q; ++i) ASSERT_NE(row_tile_of[std::size_t(i)], -1) << "row " << i;
  for (std::size_t n = 0; n < x.tiles.size(); ++n) {
    const DocumentTile& t = x.tiles[n];
    const RowsOfTile& rows = x.rows_of[n];
    ASSERT_LE(t.end - t.first, list.size);
    for (int m = t.from; m < t.from + t.steps; ++m) {
      ASSERT_LT(x.row_tiles.at(std::size_t(m)).first, x.row_tiles[std::size_t(m)].end);
      ASSERT_EQ(x.row_tiles[std::size_t(m)].first, m * list.step + rows.shift);
      if (m < rows.plain_from || m >= rows.plain_to) continue;
      ++plain;
      ASSERT_EQ(t.end - t.first, list.size);
      for (int j = t.first; j < t.end; ++j) {
        ASSERT_LE(a.rows_of_key(0, j).first, m * list.step + rows.shift);
        ASSERT_GE(a.rows_of_key(0, j).last, (m + 1) * list.step + rows.shift);
      }
    }
    for (int j = t.first; j < std::min(t.end, a.len_k); ++j) {
      ++tiles_with[std::size_t(j)];
      const Run seen = a.rows_of_key(0, j);
      for (int i = seen.first; i < seen.last; ++i) {
        ASSERT_GE(row_tile_of[std::size_t(i)], t.from) << "row " << i << ", key " << j;
        ASSERT_LT(row_tile_of[std::size_t(i)], t.from + t.steps) << "row " << i << ", key " << j;
      }
    }
  }
  for (int times : tiles_with) ASSERT_EQ(times, 1);
}

TEST(AttentionDocumentRows, EveryPairIsInAStep) {
  const Random random{.seed = 88};
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t n) { return std::int64_t(random.bits(drawn++) % std::uint64_t(n)); };
  std::int64_t plain = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Problem p;
    p.batch = p.heads = p.kv_heads = 1, p.head_dim = 8;
    p.documents = 1 + below(8);
    const Mask masks[] = {Mask::causal(), Mask::full(), Mask::causal(Align::top_left), Mask::sliding(1 + below(40)),
                          Mask::sliding(1 + below(9), Align::bottom_right, below(20))};
    p.mask = masks[below(3) == 0 ? below(5) : 0];
    const bool equal = below(4) != 0;
    std::vector<std::int32_t> cu[2];
    std::int32_t at[2] = {std::int32_t(below(3)), std::int32_t(below(3))};
    for (std::int64_t d = 0; d <= p.documents; ++d) {
      for (int side : {0, 1}) cu[side].push_back(at[side]);
      const auto length = [&] { return std::int32_t(below(4) == 0 ? 0 : below(3) == 0 ? below(400) : below(60)); };
      at[0] += length();
      at[1] = equal ? at[0] : at[1] + length();
    }
    if (equal) cu[1] = cu[0];
    p.len_q = cu[0].back() + 1 + below(30), p.len_k = equal ? p.len_q : cu[1].back() + 1 + below(30);
    const Extras with{.cu_q = Tensor(cu[0].data(), DType::i32, {1, p.documents + 1}),
                      .cu_k = Tensor(cu[1].data(), DType::i32, {1, p.documents + 1})};
    const DocumentsArgs a = documents_args(p, with, {});
    Arena none;
    const Device here;
    Context dry{none, here};
    for (auto [keys, rows] : {std::pair{16, 16}, {16, 8}, {8, 16}, {1, 1}})
      for (bool cut : {true, false}) {
        SCOPED_TRACE(fmt::format("trial {}, {} keys and {} rows a tile, cut {}, {}", trial, keys, rows, cut, name_of(p.mask)));
        DocumentTiles list = make_tiles_and_rows(p, dry, keys, rows, 1);
        list.cut = cut;
        check(a, list, plain);
        if (HasFailure()) return;
      }
  }
  EXPECT_GT(plain, 10000);
}

TEST(AttentionDocumentRows, WrongBordersStayInside) {
  for (const std::vector<std::int32_t>& wrong :
       {std::vector<std::int32_t>{0, 100, 0, 100, 0, 100}, {-50, 900, 7, -3}, {400, 300, 200}, {0, 300, 0, 300, 0}})
    for (int step : {8, 64}) {
      Problem p;
      p.batch = p.heads = p.kv_heads = 1, p.head_dim = 8, p.documents = std::int64_t(wrong.size()) - 1, p.len_q = p.len_k = 300;
      const Tensor cu(const_cast<std::int32_t*>(wrong.data()), DType::i32, {1, p.documents + 1});
      const DocumentsArgs a = documents_args(p, {.cu_q = cu, .cu_k = cu}, {});
      Arena none;
      const Device here;
      Context dry{none, here};
      const DocumentTiles list = make_tiles_and_rows(p, dry, 64, step, 1);
      const Pieces pieces(a, 0, 64, step, true);
      int group = 0;
      for (int i = 0; i < pieces.count(); ++group) {
        const Pieces::Cut cut = pieces.cut(i);
        const Pieces::Rows rows = pieces.rows_of(i, cut.next, group);
        EXPECT_GE(rows.first, 0);
        EXPECT_LE(rows.end, 300);
        EXPECT_LE(rows.tile + rows.count, list.most_row_tiles);
        for (int n = 0; n < cut.tiles; ++n) {
          const DocumentTile t = pieces.tile_of(i, cut, n, rows);
          EXPECT_GE(t.from, rows.tile);
          EXPECT_LE(t.from + t.steps, rows.tile + rows.count);
        }
        i = cut.next;
      }
    }
}

}  // namespace
}  // namespace headroom::attention
