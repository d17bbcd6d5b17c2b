// A few new positions against many keys, however blocks share them.
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

}  // namespace
}  // namespace headroom::attention
