// The times that forecasts go by, against calls that were timed. The records are in bench/results, of one H200 each: h200_attention_fp32_2026-11-28.txt,
// h200_attention_fp32_backward_2026-11-28.txt, h200_attention_in_turns_backward_2026-11-28.csv, h200_documents_backward_2026-11-28.txt.
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

// 16 384 tokens, width 2048, bf16, in a fixed order.
Problem on_hopper(std::int64_t dim, std::int64_t len, Mask mask) {
  Problem p;
  p.batch = 16384 / len, p.heads = p.kv_heads = 2048 / dim, p.len_q = p.len_k = len, p.head_dim = dim, p.mask = mask;
  p.precision = {DType::bf16}, p.deterministic = true;
  return p;
}

// Times are at the full clock, which calls of over 550 TFLOP/s do not keep.
constexpr double at_the_full_clock = 0.98, apart = 0.07;

TEST(UnitsUs, OfHoppersBackwardAreAsTimed) {
  const Device h200 = device_described("h200");
  for (const Timed& t : {Timed{64, 512, Mask::full(), 0.4864}, {64, 1024, Mask::full(), 0.7704},    {64, 4096, Mask::full(), 2.5764},
                         {64, 16384, Mask::full(), 9.8336},    {64, 512, Mask::causal(), 0.3994},   {64, 2048, Mask::causal(), 0.8074},
                         {64, 16384, Mask::causal(), 5.0730},  {128, 512, Mask::full(), 0.4354},    {128, 4096, Mask::full(), 2.3415},
                         {128, 512, Mask::causal(), 0.3369},   {128, 1024, Mask::causal(), 0.4679}, {128, 4096, Mask::causal(), 1.2599},
                         {256, 512, Mask::full(), 0.3935},     {256, 1024, Mask::full(), 0.6501},   {256, 2048, Mask::full(), 1.2230},
                         {256, 4096, Mask::full(), 2.3810},    {256, 8192, Mask::full(), 4.5189},   {256, 16384, Mask::full(), 9.0257},
                         {256, 512, Mask::causal(), 0.3019},   {256, 1024, Mask::causal(), 0.4335}, {256, 2048, Mask::causal(), 0.6782},
                         {256, 4096, Mask::causal(), 1.2416},  {256, 8192, Mask::causal(), 2.3504}, {256, 16384, Mask::causal(), 4.5576}})
    EXPECT_NEAR(sm90_backward_us(on_hopper(t.dim, t.len, t.mask), h200) / 1e3 / t.ms, at_the_full_clock, apart)
        << t.dim << " " << t.len << " " << name_of(t.mask);
}

// Where one head's dS is past the workspace's bound, it is formed twice: 458 TFLOP/s causal, 460 full (h200_backward_256_2026-11-28.txt, "old").
TEST(UnitsUs, WhatKeepsNothingFormsItTwice) {
  const Device h200 = device_described("h200");
  for (const Mask mask : {Mask::causal(), Mask::full()}) {
    Problem p = on_hopper(256, 16384, mask);
    p.len_q = p.len_k = 65536, p.heads = p.kv_heads = 2;
    EXPECT_NEAR(backward_flops(p) / sm90_backward_us(p, h200) / 1e6, 460, 15) << name_of(mask);
  }
}

TEST(UnitsUs, OfPackedDocumentsAreAsTimed) {
  struct Packed {
    std::int64_t dim, len, kv_heads;
    double us, cap = 0;
  };
  for (const Packed& t : {Packed{64, 2048, 32, 784.9},
                          {64, 512, 32, 401.2},
                          {64, 2048, 8, 752.6},
                          {64, 16384, 32, 5063.4},
                          {128, 2048, 16, 704.5},
                          {128, 512, 16, 340.5},
                          {128, 2048, 4, 739.3},
                          {128, 16384, 16, 4625.6},
                          {256, 2048, 8, 720.0},
                          {256, 512, 8, 333.5},
                          {256, 2048, 2, 741.0},
                          {256, 2048, 8, 778.3, 30}}) {
    Problem p = on_hopper(t.dim, 16384, Mask::causal());
    p.kv_heads = t.kv_heads, p.softcap = float(t.cap);
    p.documents = 16384 / t.len, p.visible_in_documents = double(p.documents) * band_of(p.mask, t.len, t.len).visible();
    EXPECT_NEAR(sm90_backward_us(p, device_described("h200")) / t.us, at_the_full_clock, apart)
        << t.dim << " " << t.len << " " << t.kv_heads;
  }
}

TEST(UnitsUs, UnevenDocumentsAreAsManyTokensAndPairsOfOneLength) {
  Problem p = on_hopper(64, 16384, Mask::causal());
  p.documents = 3, p.visible_in_documents = 0;
  for (const std::int64_t len : {12000, 4000, 384}) p.visible_in_documents += band_of(p.mask, len, len).visible();
  const Alike a = alike(p);
  EXPECT_NEAR(a.sequences * double(a.each.len_q), 16384, 1e-6);
  EXPECT_NEAR(a.sequences * a.each.band().visible() / p.visible_in_documents, 1, 1e-3);
}

}  // namespace
}  // namespace headroom::attention
