// Which kernel of flash_decode reads a dense cache, and with how many blocks: the cells that were measured on an H200, and what goes another way.
#include "ops/attention/decode/dense_deal.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace headroom::attention::decode {
namespace {

Problem step(std::int64_t batch, std::int64_t len_k, std::int64_t dim) {
  Problem p;
  p.batch = batch, p.heads = 32, p.kv_heads = 8, p.len_q = 1, p.len_k = len_k, p.head_dim = dim;
  p.precision = {DType::bf16};
  return p;
}
std::string deal(const Problem& p, const Device& device) {
  const auto d = dense_deal_of(p, device);
  return d ? fmt::format("{} warps x {}, {} blocks", d->warps, d->a_multiprocessor, d->blocks) : "clusters";
}

TEST(DenseDeal, IsWhatWasFastest) {
  const Device h200 = device_described("h200");
  struct Cell {
    std::int64_t batch, len_k;
    const char *at_64, *at_128;
  };
  for (const Cell& c : {Cell{1, 1024, "8 warps x 1, 64 blocks", "clusters"},
                        {1, 4096, "8 warps x 1, 128 blocks", "16 warps x 1, 128 blocks"},
                        {1, 16384, "16 warps x 1, 128 blocks", "16 warps x 1, 128 blocks"},
                        {4, 1024, "8 warps x 2, 132 blocks", "8 warps x 2, 132 blocks"},
                        {4, 4096, "8 warps x 1, 128 blocks", "8 warps x 1, 128 blocks"},
                        {3, 4096, "8 warps x 1, 120 blocks", "8 warps x 1, 120 blocks"},
                        {6, 4096, "8 warps x 1, 132 blocks", "8 warps x 1, 132 blocks"},  // 48 units: 96 blocks would be too few
                        {16, 1024, "8 warps x 1, 128 blocks", "8 warps x 1, 128 blocks"},
                        {64, 8192, "8 warps x 2, 256 blocks", "8 warps x 2, 256 blocks"}})
    for (const std::int64_t dim : {64, 128})
      EXPECT_EQ(deal(step(c.batch, c.len_k, dim), h200), dim == 64 ? c.at_64 : c.at_128) << c.batch << " × " << c.len_k << " at " << dim;
}

TEST(DenseDeal, LongCachesAreReadByBlocksOfHeads) {
  const Device h200 = device_described("h200");
  const auto blocks = [&](std::int64_t batch, std::int64_t len_k, const std::function<void(Problem&)>& change) {
    Problem p = step(batch, len_k, 64);
    change(p);
    return heads_blocks_of(p, h200).value_or(0);
  };
  const auto as_it_is = [](Problem&) {};
  EXPECT_EQ(blocks(64, 8192, as_it_is), 264);                                       // cut anywhere
  EXPECT_EQ(blocks(16, 65536, as_it_is), 256);                                      // 16 parts of a sequence
  EXPECT_EQ(blocks(9, 65536, [](Problem& p) { p.kv_heads = p.heads = 32; }), 264);  // four groups of eight heads
  EXPECT_EQ(blocks(64, 65536, [](Problem& p) { p.head_dim = 128; }), 264);          // 15 888 keys a block
  EXPECT_EQ(blocks(64, 4096, as_it_is), 0);                                         // 993 keys a block
  EXPECT_EQ(blocks(16, 16384, as_it_is), 0);                                        // 1024
  EXPECT_EQ(blocks(64, 16384, [](Problem& p) { p.head_dim = 128; }), 0);            // 3972 keys a block
  EXPECT_EQ(blocks(15, 65536, as_it_is), 0);                                        // 17 parts of a sequence would fill the card
  EXPECT_EQ(blocks(64, 65536, [](Problem& p) { p.kv_heads = 4; }), 0);              // half a block would be idle
  EXPECT_EQ(blocks(64, 65536, [](Problem& p) { p.page = 64, p.pages = 64 * 1024; }), 0);
  EXPECT_EQ(blocks(64, 65536, [](Problem& p) { p.mask = Mask::sliding(1000); }), 0);  // sees 1000 of them
}

TEST(DenseDeal, IsOfDenseCachesOnHopper) {
  const Device h200 = device_described("h200");
  const auto serves = [&](const std::function<void(Problem&)>& change) {
    Problem p = step(4, 8192, 64);
    change(p);
    return dense_deal_of(p, h200).has_value();
  };
  EXPECT_TRUE(serves([](Problem&) {}));
  EXPECT_TRUE(serves([](Problem& p) { p.len_q = 2, p.mask = Mask::causal(); }));
  EXPECT_TRUE(serves([](Problem& p) { p.mask = Mask::sliding(1000); }));
  EXPECT_TRUE(serves([](Problem& p) { p.sink = true, p.precision = {DType::f16}; }));
  EXPECT_FALSE(serves([](Problem& p) { p.len_q = 3; }));                                // 12 rows a key head
  EXPECT_FALSE(serves([](Problem& p) { p.len_q = 2, p.mask = Mask::sliding(1000); }));  // rows begin at different keys
  EXPECT_FALSE(serves([](Problem& p) { p.page = 64, p.pages = 4 * 128; }));
  EXPECT_FALSE(serves([](Problem& p) { p.documents = 1; }));
  EXPECT_FALSE(serves([](Problem& p) { p.softcap = 30; }));
  EXPECT_FALSE(serves([](Problem& p) { p.head_dim = 96; }));
  EXPECT_FALSE(serves([](Problem& p) { p.head_dim = 128, p.dim_v = 64; }));
  EXPECT_FALSE(serves([](Problem& p) { p.batch = 1, p.heads = 8, p.kv_heads = 2; }));  // 66 parts of a unit
  EXPECT_FALSE(dense_deal_of(step(4, 8192, 64), device_described("a100")));
  EXPECT_TRUE(dense_deal_of(step(4, 8192, 64), device_described("h100")));
}

}  // namespace
}  // namespace headroom::attention::decode
