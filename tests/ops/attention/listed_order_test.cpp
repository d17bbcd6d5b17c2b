// The fixed order in which key tiles add to dQ where documents say which row sees which key: emulated tile by tile, as the kernel's threads ask for it.
#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/sm90/listed.h"

namespace headroom::attention {
namespace {

using sm90::ListedTurns;
using sm90::Visits;
using sm90::visits_of;

// Every pair of tiles that holds a visible pair is visited, and at each query tile the turns 0, 1, 2, … go to the key tiles from the last one down.
void check_order(const BandOf<int>& band, int keys, int rows) {
  const int key_tiles = (band.len_k + keys - 1) / keys, query_tiles = (band.len_q + rows - 1) / rows;
  const auto at = [&](int m, int n) { return std::size_t(m) * std::size_t(key_tiles) + std::size_t(n); };
  std::vector<bool> visited(at(query_tiles, 0));
  std::vector<int> turns(std::size_t(query_tiles), 0);
  for (int n = key_tiles - 1; n >= 0; --n) {
    const Visits visits = visits_of(band, n, keys, rows);
    ListedTurns of_tile(band, n, keys);
    for (int head = 0; head < 2; ++head) {
      for (int m = visits.first; m < visits.first + visits.count; ++m) {
        ASSERT_LT(m, query_tiles);
        ASSERT_EQ(of_tile.before(m, rows), turns[std::size_t(m)]) << "key tile " << n << " at query tile " << m;
      }
      of_tile.begin_head();
    }
    for (int m = visits.first; m < visits.first + visits.count; ++m) ++turns[std::size_t(m)], visited[at(m, n)] = true;
  }
  for (int i = 0; i < band.len_q; ++i)
    for (int j = band.first(i); j < band.last(i); ++j) ASSERT_TRUE(visited[at(i / rows, j / keys)]) << "row " << i << ", key " << j;
}

TEST(AttentionListedOrder, EveryTileHasItsTurn) {
  const Random random{.seed = 88};
  std::uint64_t drawn = 0;
  const auto below = [&](std::int64_t n) { return std::int64_t(random.bits(drawn++) % std::uint64_t(n)); };
  for (int trial = 0; trial < 300; ++trial) {
    Problem p;
    p.batch = 1 + below(2), p.heads = p.kv_heads = 1, p.head_dim = 8;
    p.documents = 1 + below(9);
    const Mask masks[] = {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(1 + below(40)),
                          Mask::sliding(1 + below(9), Align::bottom_right, below(20))};
    p.mask = masks[below(5)];
    const bool equal = below(2);
    std::vector<std::int32_t> cu[2];
    std::int64_t longest[2] = {};
    for (std::int64_t b = 0; b < p.batch; ++b) {
      std::int32_t at[2] = {};
      for (std::int64_t d = 0; d <= p.documents; ++d) {
        for (int side : {0, 1}) cu[side].push_back(at[side]);
        const auto length = [&] { return std::int32_t(below(4) == 0 ? 0 : below(3) == 0 ? below(90) : below(20)); };
        at[0] += length();
        at[1] = equal ? at[0] : at[1] + length();
      }
      for (int side : {0, 1}) longest[side] = std::max<std::int64_t>(longest[side], cu[side].back());
    }
    p.len_q = longest[0] + 1 + below(30), p.len_k = equal ? p.len_q : longest[1] + 1 + below(30);
    const Extras with{.cu_q = Tensor(cu[0].data(), DType::i32, {p.batch, p.documents + 1}),
                      .cu_k = Tensor(cu[1].data(), DType::i32, {p.batch, p.documents + 1})};
    const HostLists lists(p, with);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (auto [keys, rows] : {std::pair{16, 16}, {16, 8}, {8, 16}, {1, 1}}) {
        SCOPED_TRACE(fmt::format("trial {}, row {} of the batch, {} keys and {} rows a tile, {}", trial, b, keys, rows, name_of(p.mask)));
        check_order(in_32_bits(lists.band(b)), keys, rows);
        if (HasFatalFailure()) return;
      }
  }
}

}  // namespace
}  // namespace headroom::attention
