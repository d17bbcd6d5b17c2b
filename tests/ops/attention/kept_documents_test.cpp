// dS that the Hopper backward keeps of packed documents: emulated as the card lists it. Every block has a place of its own, a head has no more blocks than are
// counted on, and ranges cover all query heads and fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/divide.h"
#include "base/random.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/sm90/bwd_kept_documents.h"

namespace headroom::attention::sm90::backward {
namespace {

struct Packed {  // a row of the batch after another
  std::vector<std::int32_t> cu_q, cu_k;
};

struct Listed {
  std::vector<DocumentTile> all;  // tiles of keys in order
  std::vector<KeptTile> seen;
  int blocks = 0;
};

Listed list_of(const DocumentsArgs& a, int batch) {
  Listed l;
  const Pieces pieces(a, batch, kept_side, kept_side, true);
  for (int i = 0; i < pieces.count();) {
    const Pieces::Cut cut = pieces.cut(i);
    for (int n = 0; n < cut.tiles; ++n) {
      const DocumentTile t = pieces.tile(i, cut, n);
      l.all.push_back(t);
      if (t.steps > 0) l.seen.push_back({t.first, t.from, t.from + t.steps, l.blocks});
      l.blocks += t.steps;
    }
    i = cut.next;
  }
  return l;
}

// Each block of a tile of keys lies below the head's end, and the tiles that a tile of rows finds are those that walk it.
void check_blocks(const Listed& l, int row_tiles) {
  std::vector<int> finds(std::size_t(l.blocks), 0);
  for (int m = 0; m < row_tiles; ++m) {
    const Run tiles = kept_tiles_of(l.seen.data(), int(l.seen.size()), m);
    for (int n = 0; n < int(l.seen.size()); ++n) {
      const KeptTile& t = l.seen[std::size_t(n)];
      ASSERT_EQ(n >= tiles.first && n < tiles.last, m >= t.from && m < t.end) << "tile " << n << ", rows " << m;
    }
    for (int n = tiles.first; n < tiles.last; ++n) {
      const KeptTile& t = l.seen[std::size_t(n)];
      const int at = t.offset + m - t.from;
      ASSERT_TRUE(at >= 0 && at < l.blocks);
      ++finds[std::size_t(at)];
    }
  }
  for (int found : finds) ASSERT_EQ(found, 1);
}

void check_ranges(const Problem& p, const std::vector<int>& blocks, const KeptDocumentRanges& r) {
  std::vector<std::int32_t> of_row(blocks.begin(), blocks.end());
  std::vector<std::int64_t> before(blocks.size(), 0);
  for (std::size_t b = 1; b < blocks.size(); ++b) before[b] = before[b - 1] + p.heads * blocks[b - 1];
  KeptDocuments d{};
  d.blocks = of_row.data(), d.before = before.data(), d.capacity = r.capacity;
  d.batch = std::int32_t(p.batch), d.heads = std::int32_t(p.heads);
  KeptRange at{};
  for (int i = 0; i < r.count; ++i) {
    const KeptRange next = d.after(at);
    ASSERT_GE(next.first, at.first);
    if (at.first < p.batch * p.heads) {
      ASSERT_GT(next.first, at.first);
      ASSERT_EQ(at.place, d.place(at.first / d.heads, at.first % d.heads));
    }
    ASSERT_LE(next.place - at.place, r.capacity);
    at = next;
  }
  ASSERT_EQ(at.first, p.batch * p.heads) << r.count << " ranges";
}

TEST(AttentionKeptDocuments, EveryBlockHasAPlaceAndEveryHeadARange) {
  const Random random{.seed = 92};
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t n) { return std::int32_t(random.bits(drawn++) % std::uint64_t(n)); };
  for (int trial = 0; trial < 1500; ++trial) {
    Problem p;
    p.batch = 1 + below(3), p.kv_heads = 1 + below(3), p.heads = p.kv_heads * (1 + below(4)), p.head_dim = 256, p.precision = {DType::bf16};
    p.documents = 1 + below(trial % 3 ? 12 : 60);
    const Mask masks[] = {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1 + below(400)),
                          Mask::sliding(1 + below(90), Align::bottom_right, below(200))};
    p.mask = masks[trial % 5];
    const bool equal = below(2);
    const int longest = trial % 3 ? 600 : 70;
    Packed x;
    for (int b = 0; b < p.batch; ++b) {
      std::int32_t q = below(3), k = equal ? q : below(3);
      for (int d = 0; d <= p.documents; ++d) {
        x.cu_q.push_back(q), x.cu_k.push_back(k);
        const auto length = [&] { return below(5) == 0 ? 0 : below(3) == 0 ? below(longest) : below(70); };
        const std::int32_t n = length();
        q += n, k += equal ? n : length();
      }
      p.len_q = std::max<std::int64_t>(p.len_q, q), p.len_k = std::max<std::int64_t>(p.len_k, k);
    }
    p.len_q += 1 + below(70), p.len_k = equal ? p.len_q : p.len_k + 1 + below(70);
    SCOPED_TRACE(fmt::format("trial {}: {} documents, {} rows, {} keys, {}", trial, p.documents, p.len_q, p.len_k, name_of(p.mask)));
    const Extras with{.cu_q = Tensor(x.cu_q.data(), DType::i32, {p.batch, p.documents + 1}),
                      .cu_k = Tensor(x.cu_k.data(), DType::i32, {p.batch, p.documents + 1})};
    const DocumentsArgs a = documents_args(p, with, {});
    const KeptDocumentRanges r = kept_document_ranges(p);
    ASSERT_GT(r.count, 0);
    std::vector<int> blocks;
    for (int b = 0; b < p.batch; ++b) {
      const Listed l = list_of(a, b);
      ASSERT_LE(l.blocks, r.most_blocks);
      check_blocks(l, int(ceil_div(p.len_q, kept_side)));
      if (HasFatalFailure()) return;
      blocks.push_back(l.blocks);
    }
    check_ranges(p, blocks, r);
    if (HasFatalFailure()) return;
    KeptDocumentRanges narrow = r;  // as if memory held one head and a half
    narrow.capacity = r.most_blocks * 3 / 2, narrow.count = p.batch * p.heads;
    check_ranges(p, blocks, narrow);
    if (HasFatalFailure()) return;
  }
}

// The longest documents that there are: what is counted on is enough, and not much more.
TEST(AttentionKeptDocuments, LongDocumentsFit) {
  for (std::int64_t len : {2048, 16384})
    for (Mask mask : {Mask::causal(), Mask::full(), Mask::sliding(1024)}) {
      Problem p;
      p.batch = 1, p.heads = p.kv_heads = 8, p.head_dim = 256, p.len_q = p.len_k = len, p.documents = 8, p.mask = mask,
      p.precision = {DType::bf16};
      SCOPED_TRACE(fmt::format("{} positions, {}", len, name_of(mask)));
      const KeptDocumentRanges r = kept_document_ranges(p);
      std::vector<std::int32_t> cu(9, std::int32_t(len));
      cu[0] = 0;  // one document and seven empty ones
      const Extras with{.cu_q = Tensor(cu.data(), DType::i32, {1, 9}), .cu_k = Tensor(cu.data(), DType::i32, {1, 9})};
      const int blocks = list_of(documents_args(p, with, {}), 0).blocks;
      if (len == 16384 && mask == Mask::full()) {
        EXPECT_EQ(r.count, 0) << "half a gigabyte holds no head";
        continue;
      }
      ASSERT_GT(r.count, 0);
      EXPECT_LE(blocks, r.most_blocks);
      EXPECT_LE(r.capacity * kept_block_bytes, kept_bytes_at_most);
      if (mask == Mask::causal()) { EXPECT_LT(double(r.most_blocks), 1.3 * blocks); }
      check_ranges(p, {blocks}, r);
    }
}

// Dealt by pairs, each tile of each (batch, kv head) pair of a range comes once, and nothing else.
TEST(AttentionKeptDocuments, TilesOfARangeAreDealtOnce) {
  const std::vector<std::int32_t> counts = {5, 0, 3};
  constexpr int most = 6, batches = 3, kv_heads = 4;
  std::vector<DocumentTile> tiles(std::size_t(batches * 2 * most));
  for (int b = 0; b < batches; ++b)
    for (int i = 0; i < counts[std::size_t(b)]; ++i)
      for (int order = 0; order < 2; ++order)
        tiles[std::size_t((b * 2 + order) * most + (order ? counts[std::size_t(b)] - 1 - i : i))].first = i;
  std::vector<std::int32_t> count = counts;
  const DocumentTiles list{.tiles = tiles.data(), .count = count.data(), .most = most, .size = 64, .step = 64, .tail = 2, .of_keys = true};
  for (int first = 0; first < batches * kv_heads; ++first)
    for (int end = first; end <= batches * kv_heads; ++end) {
      std::set<std::tuple<int, int, int>> dealt;
      int index = 0;
      for (;; ++index) {
        const DealtTile t = dealt_tile_of_pairs(list, batches, kv_heads, first, end, index, 2);
        if (t.batch == batches) break;
        ASSERT_GE(t.batch * kv_heads + t.head, first);
        ASSERT_LT(t.batch * kv_heads + t.head, end);
        ASSERT_TRUE(dealt.emplace(t.batch, t.head, t.tile.first).second);
      }
      int expected = 0;
      for (int pair = first; pair < end; ++pair) expected += counts[std::size_t(pair / kv_heads)];
      ASSERT_EQ(index, expected) << first << " to " << end;
    }
}

}  // namespace
}  // namespace headroom::attention::sm90::backward
