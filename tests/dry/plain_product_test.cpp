// Which convolutions are products of their tensors as they lie in memory, and the workspace of these beside what a card took, row by row of the table in
// bench/results.
#include "dry/plain_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace headroom::dry;
using Extents = std::vector<std::int64_t>;

TEST(DryPlainProduct, OneByOneWithStrideOneAndFiltersOfTheWholeInput) {
  EXPECT_TRUE(is_plain_product(Extents{48, 48, 1, 1}, Extents{8, 48, 128, 128}, Extents{8, 48, 128, 128}));
  EXPECT_TRUE(is_plain_product(Extents{64, 32, 1, 1}, Extents{8, 32, 1, 300}, Extents{8, 64, 1, 300}))
      << "of one dimension, as PyTorch tells it";
  EXPECT_TRUE(is_plain_product(Extents{64, 16, 1, 1, 1}, Extents{2, 64, 4, 8, 8}, Extents{2, 64, 4, 8, 8})) << "in four groups";
  EXPECT_TRUE(is_plain_product(Extents{1, 512, 4, 4}, Extents{64, 512, 4, 4}, Extents{64, 1, 1, 1}));
  EXPECT_FALSE(is_plain_product(Extents{64, 64, 1, 1}, Extents{8, 64, 56, 56}, Extents{8, 64, 28, 28})) << "stride 2 skips places";
  EXPECT_FALSE(is_plain_product(Extents{64, 64, 1, 1}, Extents{8, 64, 56, 56}, Extents{8, 64, 58, 58})) << "padding adds places";
  EXPECT_FALSE(is_plain_product(Extents{64, 64, 3, 3}, Extents{8, 64, 56, 56}, Extents{8, 64, 56, 56}));
  EXPECT_FALSE(is_plain_product(Extents{768, 3, 16, 16}, Extents{8, 3, 224, 224}, Extents{8, 768, 14, 14})) << "patches";
  EXPECT_FALSE(is_plain_product(Extents{}, Extents{8, 3, 224, 224}, Extents{8, 768, 14, 14})) << "a shape that was not told";
}

struct PassOnCard {
  std::string pass, dtype, layout;
  std::int64_t batch, from, to, filter, stride, size, groups, dims;
  std::uint64_t card, without_card;
};

std::vector<PassOnCard> passes_of_an_h200(const std::string& table) {
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/" + table);
  std::vector<PassOnCard> rows;
  std::string line, op;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    PassOnCard r;
    words >> op >> r.pass >> r.dtype >> r.layout >> r.batch >> r.from >> r.to >> r.filter >> r.stride >> r.size >> r.groups >> r.dims;
    words >> r.card >> r.without_card;
    if (words) rows.push_back(r);
  }
  return rows;
}

std::optional<std::uint64_t> by_rule(const PassOnCard& r) {
  const std::int64_t padding = r.filter == 3 ? 1 : 0, out = (r.size + 2 * padding - r.filter) / r.stride + 1;
  Extents filter{r.to, r.from / r.groups}, input{r.batch, r.from}, output{r.batch, r.to};
  for (std::int64_t i = 0; i < r.dims; ++i) {
    filter.push_back(r.filter);
    input.push_back(r.size);
    output.push_back(out);
  }
  return workspace_of_product({.pass = r.pass == "forward" ? ConvolutionPass::forward
                                       : r.pass == "data"  ? ConvolutionPass::data
                                                           : ConvolutionPass::weight,
                               .filter = filter,
                               .input = input,
                               .output = output,
                               .element_bytes = r.dtype == "bf16" || r.dtype == "fp16" ? 2u : 4u,
                               .channels_innermost = r.layout == "last",
                               .tensor_cores = r.dtype != "strict",
                               .said_bytes = r.without_card});
}

TEST(DryPlainProduct, WhereTheWorkspaceIsDecidedItIsWhatAnH200Took) {
  const std::vector<PassOnCard> rows = passes_of_an_h200("h200_scratch_plain_products_2026-11-29.csv");
  ASSERT_EQ(rows.size(), 381u);
  int decided = 0, mended = 0;
  for (const PassOnCard& r : rows) {
    const auto bytes = by_rule(r);
    if (!bytes) continue;
    SCOPED_TRACE(testing::Message() << r.pass << " " << r.dtype << " " << r.layout << " " << r.batch << " " << r.from << " " << r.to << " "
                                    << r.filter << " " << r.size);
    EXPECT_GE(r.card, *bytes);
    EXPECT_LE(r.card, *bytes + 400);
    ++decided;
    mended += r.without_card > r.card + 400 || r.without_card + 400 < r.card;
  }
  EXPECT_EQ(decided, 100);
  EXPECT_EQ(mended, 88) << "what cuDNN says without a card is something else there";
}

// A second table was measured after the rule was made. What the rule had said (dry) was wrong in 14 of its passes, in one of which it still is.
TEST(DryPlainProduct, OfASecondTableTheRuleMissesOnePass) {
  const std::vector<PassOnCard> rows = passes_of_an_h200("h200_scratch_convolutions_2026-11-29.csv");
  ASSERT_EQ(rows.size(), 519u);
  int decided = 0;
  std::vector<std::string> wrong;
  for (PassOnCard r : rows) {
    const auto sums = std::uint64_t(r.batch * r.from * r.to * 4);
    if (r.pass == "weight" && r.without_card != sums) continue;  // what cuDNN said is not in the table; it was not the rule's
    r.without_card = 2 * sums;
    const auto bytes = by_rule(r);
    if (!bytes) continue;
    ++decided;
    if (r.card < *bytes || r.card > *bytes + 600)
      wrong.push_back(r.pass + " " + r.dtype + " " + std::to_string(r.from) + " " + std::to_string(r.to) + " " + std::to_string(r.size));
  }
  EXPECT_EQ(decided, 110);
  EXPECT_EQ(wrong, std::vector<std::string>{"forward bf16 384 256 32"});
}

TEST(DryPlainProduct, NoWorkspaceIsDecidedWhereNoCardWasAsked) {
  const PassOnCard known{"forward", "fp32", "plain", 8, 64, 64, 1, 1, 14, 1, 2, 0, 1 << 24};
  EXPECT_EQ(by_rule(known), 0u);
  PassOnCard small = known, one_example = known, groups = known, padded_sums = known, odd_rows = known;
  small.size = 13;
  one_example.batch = 1;
  groups.groups = 2;
  padded_sums.pass = odd_rows.pass = "weight";
  EXPECT_EQ(by_rule(padded_sums), 8u * 64 * 64 * 4);
  padded_sums.without_card = 8 * 64 * 64 * 3;  // the sums are larger than copies
  odd_rows.dtype = "bf16";
  for (const PassOnCard* r : {&small, &one_example, &groups, &padded_sums, &odd_rows}) EXPECT_FALSE(by_rule(*r));
}

}  // namespace
