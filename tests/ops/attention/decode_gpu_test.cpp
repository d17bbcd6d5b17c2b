// A few new positions against many keys, however blocks share them.
#include "ops/attention/decode/dense_deal.h"
#include "tests/ops/attention/on_gpu.h"

namespace headroom::attention {
namespace {

class DecodingGpu : public OnGpu {};

// Few new positions, many keys: blocks share a sequence, or walk several; no sequence is as long as the next one.
TEST_F(DecodingGpu, HoweverTheKeysAreDealt) {
  const int units = device.units;
  struct Shape {
    std::int64_t heads, kv_heads, len_q, dim, dim_v, page;
  };
  const Mask masks[] = {Mask::causal(), Mask::sliding(300), Mask::full()};
  int number = 0;
  for (const Shape& s : {Shape{8, 2, 1, 128, 0, 0},
                         {8, 2, 1, 128, 0, 16},
                         {8, 2, 3, 64, 0, 64},
                         {4, 4, 2, 256, 0, 0},
                         {16, 1, 1, 128, 0, 24},
                         {12, 2, 4, 128, 64, 16},
                         {8, 1, 16, 64, 0, 16},
                         {6, 2, 5, 40, 0, 7},
                         {8, 1, 7, 192, 128, 16},
                         {2, 2, 16, 96, 0, 0},
                         {4, 2, 4, 128, 64, 16},
                         {3, 3, 7, 64, 0, 0},
                         {8, 1, 1, 256, 0, 24}})
    for (int seen : {1, 3, units}) {
      device.units = seen;
      ++number;
      Case c = plain_case(s.heads, s.kv_heads, s.len_q, 900, s.dim, masks[(number + number / 3) % 3], precisions[number % 2], 90);
      c.problem.batch = 5;
      c.problem.dim_v = s.dim_v;
      c.with_dlse = false;
      c.layout = Layout(number % 7 > 4);
      c.problem.sink = number % 4 == 1;
      c.problem.softcap = number % 5 == 3 ? 2 : 0;
      if (s.page) {
        c.problem.page = s.page;
        c.problem.pages = c.problem.batch * c.problem.pages_of_sequence() + 3;
        while (c.problem.pages % 7 == 0) ++c.problem.pages;
      }
      if (number % 5 < 3) {
        c = packed(c, {int(s.len_q)}, {900});
        c.cached = {640, 0, 1, 900, 65};
      }
      EXPECT_GE(check_case(c), only.empty() ? 2 : 0) << in_words(c);
    }
  device.units = units;
}

TEST_F(DecodingGpu, WhereClustersShareASequence) {  // they do where sequences are shorter than the cache has room
  struct Shape {
    std::int64_t batch, heads, kv_heads, len_k, dim;
  };
  for (const Shape& s : {Shape{1, 32, 8, 4096, 128}, {3, 8, 2, 2000, 64}, {4, 10, 5, 1500, 128}, {2, 45, 3, 900, 256}})
    for (std::int64_t page : {0, 64})
      for (bool filled : {false, true}) {
        Case c = plain_case(s.heads, s.kv_heads, 1 + s.heads % 2, s.len_k, s.dim, Mask::full(), {DType::bf16}, 92);
        c.problem.batch = s.batch;
        c.with_dlse = false;
        c.problem.page = page;
        c.problem.pages = page ? s.batch * c.problem.pages_of_sequence() : 0;
        while (page && c.problem.pages % 7 == 0) ++c.problem.pages;
        if (filled) {
          c = packed(c, {int(c.problem.len_q)}, {int(s.len_k)});
          c.cached = {int(s.len_k) - 64, 17, int(s.len_k) * 3 / 4, 640};
        }
        EXPECT_GE(check_case(c), only.empty() ? 2 : 0) << in_words(c);
      }
}

TEST_F(DecodingGpu, GivesTheSameBitsEveryTimeAndInAGraph) {
  for (auto [batch, len_q, dim] : {std::tuple{1, 1, 128}, {3, 4, 64}, {40, 1, 64}, {2, 16, 256}}) {
    Case c = packed(plain_case(8, 2, len_q, 3000, dim, Mask::causal(), {DType::bf16}, 91), {len_q}, {3000});
    c.problem.batch = batch;
    c.cached = {2999, 17, 0, 1500};
    c.with_dlse = false;
    const Tensors inputs = tensors_of(c);  // 31 million random numbers of 40 sequences take seconds
    for (const Variant& v : variants())
      if (v.deterministic && serves(v, c.problem, Pass::forward)) expect_same_bits(v, c, inputs, 300);
  }
}

// A dense cache and how a card of so many multiprocessors reads it: blocks of these warps, and so many of these blocks share a multiprocessor.
struct Dense {
  int multiprocessors;
  std::int64_t batch, heads, kv_heads, len_q, len_k, dim;
  int warps = 0, a_multiprocessor = 0;
};
constexpr Dense dense_caches[] = {
    {2, 2, 8, 4, 1, 1000, 64, 8, 2},      // whole units, two of them a block
    {2, 2, 16, 4, 1, 1000, 128, 8, 2},    //
    {12, 2, 8, 2, 1, 700, 64, 8, 2},      // two steps a block
    {12, 2, 8, 2, 2, 700, 128, 8, 2},     //
    {30, 1, 2, 2, 1, 8000, 64, 16, 1},    // 15 parts of a unit in one round
    {30, 1, 14, 2, 1, 5001, 128, 16, 1},  //
    {15, 1, 8, 1, 1, 2000, 64, 8, 1},     // 15 parts in two rounds
    {7, 3, 5, 1, 1, 1500, 64, 8, 1},      // units cut anywhere
    {7, 3, 2, 1, 3, 1500, 128, 8, 1},     //
    {3, 1, 12, 3, 2, 1999, 64, 8, 1},     // a unit a block
    {3, 1, 3, 3, 8, 1030, 128, 8, 1},     //
};

// The same of long caches whose blocks take eight heads: parts of a sequence, whole ones, pieces cut anywhere, and keys that 16 does not divide.
constexpr Dense long_caches[] = {
    {4, 1, 32, 8, 1, 16500, 64},   // eight parts
    {8, 1, 8, 8, 1, 33000, 64},    // 16 parts
    {1, 2, 32, 16, 1, 4100, 64},   // whole units, two of them a block
    {7, 3, 16, 8, 2, 9703, 64},    // cut anywhere
    {1, 1, 24, 24, 1, 8201, 128},  //
    {1, 1, 8, 8, 8, 16500, 128},   // eight rows a head
    {1, 1, 24, 8, 2, 4500, 64},    //
    {16, 2, 8, 8, 8, 33000, 64},   // cut unevenly: 17 parts of the second sequence, eight rows a head
};

class DenseDecodingGpu : public OnGpu {
 protected:
  Case of(const Dense& d, Mask mask, Precision precision) const {
    Case c = plain_case(d.heads, d.kv_heads, d.len_q, d.len_k, d.dim, mask, precision, 94);
    c.problem.batch = d.batch;
    c.with_dlse = false;
    return c;
  }
};

TEST_F(DenseDecodingGpu, EveryKernelIsRight) {
  const int units = device.units;
  int number = 0;
  for (const Dense& d : dense_caches)
    for (int turn = 0; turn < 3; ++turn, ++number) {
      device.units = d.multiprocessors;
      Case c = of(d, turn % 2 ? Mask::causal() : Mask::full(), precisions[number % 2]);
      c.problem.sink = number % 4 == 1;
      c.layout = number % 5 == 1 ? Layout::heads_first : Layout::rows;
      if (device.sm == 90) {
        const auto deal = decode::dense_deal_of(c.problem, device);
        ASSERT_TRUE(deal) << in_words(c);
        EXPECT_EQ(std::pair(deal->warps, deal->a_multiprocessor), std::pair(d.warps, d.a_multiprocessor)) << in_words(c);
      }
      EXPECT_GE(check_case(c), only.empty() ? 2 : 0) << in_words(c);
    }
  device.units = units;
}

TEST_F(DenseDecodingGpu, BlocksOfHeadsAreRight) {
  if (only.empty()) only = "flash_decode";
  const int units = device.units;
  int number = 0, row = -1;
  for (const Dense& d : long_caches) {
    ++row;
    // Of more than 10 000 keys random numbers and the oracle take seconds: such a cache has one mask.
    const MaskKind of_long = d.len_q > 1 ? MaskKind::causal : row % 2 ? MaskKind::full : MaskKind::window;
    for (const Mask& mask : {Mask::full(), Mask::causal(), Mask::sliding(d.len_k - 5)}) {
      if (mask.kind == MaskKind::window && d.len_q > 1) continue;  // its rows begin at different keys
      ++number;
      if (d.len_k > 10000 && mask.kind != of_long) continue;
      device.units = d.multiprocessors;
      Case c = of(d, mask, precisions[number % 2]);
      c.last = Pass::forward;
      c.problem.sink = number % 4 == 1;
      c.layout = number % 9 == 0 ? Layout::heads_first : Layout::rows;  // which others serve
      if (device.sm == 90) EXPECT_TRUE(decode::heads_blocks_of(c.problem, device)) << in_words(c);
      check_case(c);
    }
  }
  device.units = units;
  if (device.sm == 90 && only == "flash_decode") EXPECT_EQ(checked, 14);
}

TEST_F(DenseDecodingGpu, RowsThatSeeFewKeysOrNone) {
  const int units = device.units;
  for (const int seen : {1, 2, 5})
    for (const std::int64_t len_k : {1, 2, 15, 129})
      for (const Mask& mask : {Mask::causal(), Mask::causal(Align::top_left)}) {
        device.units = seen;
        EXPECT_GE(check_case(of({seen, 3, 2, 2, 8, len_k, 64, 8, 1}, mask, {DType::bf16})), only.empty() ? 2 : 0);
      }
  device.units = 2;
  const Case window = of({2, 2, 8, 2, 1, 900, 64, 8, 1}, Mask::sliding(300), {DType::f16});
  EXPECT_GE(check_case(window), only.empty() ? 2 : 0) << in_words(window);
  device.units = units;
}

TEST_F(DenseDecodingGpu, GivesTheSameBitsEveryTimeAndInAGraph) {
  const Variant* const decode = variant_named("flash_decode");
  const int units = device.units;
  const auto expect = [&](const Dense& d, int times) {
    device.units = d.multiprocessors;
    const Case c = of(d, Mask::causal(), {DType::bf16});
    if (serves(*decode, c.problem, Pass::forward)) expect_same_bits(*decode, c, tensors_of(c), times);
  };
  for (const Dense& d : dense_caches) expect(d, 200);
  for (const Dense& d : long_caches) expect(d, 100);
  device.units = units;
}

}  // namespace
}  // namespace headroom::attention
