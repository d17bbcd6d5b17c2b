// Packed documents cut into tiles, of rows and of keys: emulated as the kernel that lists them walks.
#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/attention/documents/documents.h"

namespace headroom::attention {
namespace {

struct Packed {
  std::vector<std::int32_t> cu_q, cu_k;
  std::int32_t len_q = 0, len_k = 0;
};

struct Counts {
  int tiles = 0, steps = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};
std::ostream& operator<<(std::ostream& to, const Counts& x) { return to << x.tiles << " tiles, " << x.steps << " steps"; }

// Every position lies in one tile, and a tile's steps hold all that one of its positions sees, or is seen by.
Counts check_tiles(const Packed& x, Mask mask, int size, int step, bool of_keys) {
  Problem p;
  p.batch = p.heads = p.kv_heads = 1, p.head_dim = 8, p.mask = mask;
  p.documents = std::int64_t(x.cu_q.size()) - 1, p.len_q = x.len_q, p.len_k = x.len_k;
  const Extras with{.cu_q = Tensor(const_cast<std::int32_t*>(x.cu_q.data()), DType::i32, {1, p.documents + 1}),
                    .cu_k = Tensor(const_cast<std::int32_t*>(x.cu_k.data()), DType::i32, {1, p.documents + 1})};
  const DocumentsArgs a = documents_args(p, with, {});
  const Pieces pieces(a, 0, size, step, of_keys);
  const int len = of_keys ? x.len_k : x.len_q;
  std::vector<int> tiles_of(std::size_t(len), 0);
  Counts counts;
  for (int i = 0; i < pieces.count();) {
    const Pieces::Cut cut = pieces.cut(i);
    for (int n = 0; n < cut.tiles; ++n, ++counts.tiles) {
      const DocumentTile t = pieces.tile(i, cut, n);
      EXPECT_LT(t.first, t.end);
      EXPECT_LE(t.end, std::min(t.first + size, len));
      EXPECT_GE(t.steps, of_keys ? 0 : 1);
      const int begin = of_keys ? t.from * step : t.from, end = begin + t.steps * step;
      for (int at = t.first; at < t.end && at < len; ++at) {
        ++tiles_of[std::size_t(at)];
        const Run seen = of_keys ? a.rows_of_key(0, at) : a.keys_of_row(0, at);
        if (seen.first == seen.last) continue;
        EXPECT_GE(seen.first, begin) << "position " << at;
        EXPECT_LE(seen.last, end) << "position " << at;
      }
      counts.steps += t.steps;
    }
    EXPECT_GT(cut.next, i);
    i = cut.next;
  }
  Arena none;
  const Device here;
  Context dry{none, here};
  EXPECT_LE(counts.tiles, make_tiles(p, dry, size, step, 1, of_keys).most);
  for (int at = 0; at < len; ++at) EXPECT_EQ(tiles_of[std::size_t(at)], 1) << "position " << at;
  return counts;
}

Packed packed(const std::vector<int>& lengths, int rest = 0) {
  Packed x{{0}, {0}};
  for (int n : lengths) x.cu_q.push_back(x.cu_q.back() + n);
  x.cu_k = x.cu_q, x.len_q = x.len_k = x.cu_q.back() + rest;
  return x;
}

TEST(AttentionDocumentTiles, EveryPositionLiesInOne) {
  const Random random{.seed = 89};
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t n) { return std::int32_t(random.bits(drawn++) % std::uint64_t(n)); };
  for (int trial = 0; trial < 300; ++trial) {
    Packed x{{below(3)}, {below(3)}};
    const int documents = 1 + below(12);
    const bool equal = below(2);
    for (int d = 0; d < documents; ++d) {
      const auto length = [&] { return below(4) == 0 ? 0 : below(3) == 0 ? below(300) : below(20); };
      x.cu_q.push_back(x.cu_q.back() + length());
      x.cu_k.push_back(equal ? x.cu_k.back() + x.cu_q.back() - x.cu_q[x.cu_q.size() - 2] : x.cu_k.back() + length());
    }
    x.len_q = x.cu_q.back() + 1 + below(30), x.len_k = x.cu_k.back() + 1 + below(30);
    const Mask masks[] = {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1 + below(40)),
                          Mask::sliding(1 + below(9), Align::bottom_right, below(20))};
    for (auto [size, step] : {std::pair{64, 32}, {16, 16}, {1, 1}})
      for (bool of_keys : {false, true}) {
        SCOPED_TRACE(fmt::format("trial {}, tiles of {} {}, steps of {}", trial, size, of_keys ? "keys" : "rows", step));
        check_tiles(x, masks[trial % 5], size, step, of_keys);
        if (HasFailure()) return;
      }
  }
}

TEST(AttentionDocumentTiles, ADocumentHasThoseOfABatchOfItsOwn) {
  for (bool of_keys : {false, true}) {
    EXPECT_EQ(check_tiles(packed({2048, 2048}), Mask::causal(), 128, 128, of_keys), (Counts{32, 2 * 16 * 17 / 2}));
    EXPECT_EQ(check_tiles(packed(std::vector<int>(6, 512)), Mask::full(), 128, 64, of_keys), (Counts{24, 24 * 8}));
  }
  EXPECT_EQ(check_tiles(packed({130, 300, 129}), Mask::causal(), 128, 128, false), (Counts{2 + 3 + 2, 1 + 2 + 1 + 2 + 3 + 1 + 2}));
}

TEST(AttentionDocumentTiles, ShortDocumentsShareOne) {
  EXPECT_EQ(check_tiles(packed(std::vector<int>(300, 1)), Mask::causal(), 128, 128, false), (Counts{3, 3}));
  EXPECT_EQ(check_tiles(packed({100, 20, 8, 100}, 28), Mask::causal(), 128, 128, false), (Counts{2, 2}));
  EXPECT_EQ(check_tiles(packed({}, 500), Mask::causal(), 128, 128, false), (Counts{4, 4}));  // no document: steps that see nothing
  EXPECT_EQ(check_tiles(packed({}, 500), Mask::causal(), 128, 128, true), (Counts{4, 0}));
}

// Borders that are none: whatever comes out, every tile's positions exist.
TEST(AttentionDocumentTiles, WrongBordersStayInside) {
  for (const std::vector<std::int32_t>& wrong : {std::vector<std::int32_t>{0, 100, 0, 100, 0, 100}, {-50, 900, 7, -3}, {400, 300, 200}})
    for (bool of_keys : {false, true}) {
      Problem p;
      p.batch = p.heads = p.kv_heads = 1, p.head_dim = 8, p.documents = std::int64_t(wrong.size()) - 1, p.len_q = p.len_k = 300;
      const Tensor cu(const_cast<std::int32_t*>(wrong.data()), DType::i32, {1, p.documents + 1});
      const DocumentsArgs a = documents_args(p, {.cu_q = cu, .cu_k = cu}, {});
      const Pieces pieces(a, 0, 64, 64, of_keys);
      for (int i = 0; i < pieces.count();) {
        const Pieces::Cut cut = pieces.cut(i);
        for (int n = 0; n < cut.tiles; ++n) {
          const DocumentTile t = pieces.tile(i, cut, n);
          EXPECT_GE(t.first, 0);
          EXPECT_LT(t.first, t.end);
          EXPECT_LE(t.end, std::min(t.first + 64, 300));
          EXPECT_GE(t.from, 0);
          EXPECT_LE(t.from, 300);
        }
        ASSERT_GT(cut.next, i);
        i = cut.next;
      }
    }
}

}  // namespace
}  // namespace headroom::attention
