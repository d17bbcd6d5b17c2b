// The times that forecasts go by, against calls that were timed: h200_attention_fp32_2026-11-28.txt and h200_attention_fp32_backward_2026-11-28.txt in
// bench/results.
#include "ops/attention/units_us.h"

#include <gtest/gtest.h>

namespace headroom::attention {
namespace {

struct Timed {
  std::int64_t dim, len;
  Mask mask;
  double ms;  // 16 384 tokens, width 2048
  Pass pass = Pass::forward;
};

TEST(UnitsUs, OfFp32ByProductsOfTf32AreAsTimed) {
  const Device h200 = device_described("h200");
  for (const Timed& t : {Timed{128, 1024, Mask::full(), 2.271},
                         {128, 1024, Mask::causal(), 1.266},
                         {128, 4096, Mask::full(), 8.896},
                         {128, 4096, Mask::causal(), 4.469},
                         {128, 16384, Mask::full(), 35.395},
                         {128, 16384, Mask::causal(), 17.202},
                         {64, 1024, Mask::full(), 2.267},
                         {64, 1024, Mask::causal(), 1.288},
                         {64, 4096, Mask::full(), 8.846},
                         {64, 4096, Mask::causal(), 4.494},
                         {64, 16384, Mask::full(), 35.495},
                         {64, 16384, Mask::causal(), 17.229},
                         {32, 4096, Mask::full(), 9.313},
                         {32, 1024, Mask::causal(), 1.429},
                         {128, 1024, Mask::full(), 6.510, Pass::backward},
                         {128, 1024, Mask::causal(), 3.459, Pass::backward},
                         {128, 4096, Mask::full(), 25.441, Pass::backward},
                         {128, 4096, Mask::causal(), 12.710, Pass::backward},
                         {128, 16384, Mask::full(), 101.111, Pass::backward},
                         {128, 16384, Mask::causal(), 49.185, Pass::backward},
                         {64, 1024, Mask::full(), 6.296, Pass::backward},
                         {64, 1024, Mask::causal(), 3.450, Pass::backward},
                         {64, 4096, Mask::full(), 23.890, Pass::backward},
                         {64, 4096, Mask::causal(), 12.322, Pass::backward},
                         {32, 4096, Mask::full(), 24.502, Pass::backward},
                         {32, 1024, Mask::causal(), 3.823, Pass::backward}}) {
    Problem p;
    p.batch = 16384 / t.len, p.heads = p.kv_heads = 2048 / t.dim, p.len_q = p.len_k = t.len, p.head_dim = t.dim, p.mask = t.mask;
    p.precision = {DType::f32};
    EXPECT_NEAR(sm80_fp32_us(p, t.pass, h200) / 1e3 / t.ms, 1, 0.03) << t.dim << " " << t.len << " " << name_of(t.mask);
  }
  Problem wide;
  wide.batch = 1, wide.heads = wide.kv_heads = 1, wide.len_q = wide.len_k = 128, wide.head_dim = 256;
  EXPECT_EQ(sm80_fp32_us(wide, Pass::forward, h200), 0) << "no such call was fitted";
}

}  // namespace
}  // namespace headroom::attention
