// Which convolutions are products of their tensors as they lie in memory.
#include "dry/plain_product.h"

#include <gtest/gtest.h>

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

}  // namespace
