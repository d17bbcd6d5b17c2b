#include "studies/precision/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/convert.h"
#include "base/json.h"
#include "base/random.h"
#include "ops/quantise/quantise.h"
#include "report/render.h"

namespace headroom::studies::precision {
namespace {

using engine::Scales;
const Device cpu;

struct Data {
  std::vector<float> x;
  std::int64_t lines, k;
  template <class Of>
  Data(std::int64_t n, std::int64_t depth, std::uint64_t seed, Of&& of) : lines(n), k(depth) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < depth; ++j) x.push_back(of(Random{seed}.normal(std::uint64_t(i * depth + j)), i, j));
  }
  Tensor tensor() { return {x.data(), DType::f32, {lines, k}}; }
};
float same(float v, std::int64_t, std::int64_t) { return v; }

ProductError error_of(Data a, Data b, Scales scales) {
  Arena none;
  Threads threads(2);
  Context ctx{none, cpu, &threads};
  const auto f = engine::formats_of({DType::e4m3}, scales);
  return product_error(a.tensor(), b.tensor(), f.activation, f.weight, ctx);
}

// Rounding to 4 significant bits, uniform in a binade: an operand's relative error is near 2^-4/sqrt(3) of its value's binade, so the signal
// is between 26 and 32 dB above a product's error, for any k, as both grow with sqrt(k).
TEST(PrecisionFp8, NormalNumbersLoseWhatFourBitsMustLose) {
  for (const Scales scales : {Scales::tensor, Scales::row, Scales::block})
    for (const std::int64_t k : {100, 700}) {
      const ProductError e = error_of({70, k, 1, same}, {90, k, 2, same}, scales);
      EXPECT_GT(e.snr_db, 26);
      EXPECT_LT(e.snr_db, 32);
      EXPECT_LE(e.worst_row_db, e.snr_db);
      EXPECT_EQ(e.clipped, 0);
    }
}

// The SNR itself, computed here by other means: from the numbers as they are stored.
TEST(PrecisionFp8, TheErrorIsThatOfTheNumbersStored) {
  Data a{5, 40, 1, same}, b{7, 40, 2, same};
  Arena none;
  Context ctx{none, cpu};
  const ScaledFormat f{DType::e4m3, ScaleKind::one};
  const ProductError e = product_error(a.tensor(), b.tensor(), f, f, ctx);
  const auto stored = [](const Data& d) {
    float largest = 0;
    for (const float v : d.x) largest = std::max(largest, std::fabs(v));
    std::vector<double> y;
    for (const float v : d.x) y.push_back(double(widen(narrow<e4m3>(v * (1.0f / (largest / 448.0f))))) * double(largest / 448.0f));
    return y;
  };
  const auto sa = stored(a), sb = stored(b);
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 7; ++j) {
      double exact = 0, got = 0;
      for (std::int64_t l = 0; l < 40; ++l) {
        const auto x = std::size_t(i * 40 + l), y = std::size_t(j * 40 + l);
        exact += double(a.x[x]) * double(b.x[y]), got += sa[x] * sb[y];
      }
      signal += exact * exact, noise += (got - exact) * (got - exact);
    }
  EXPECT_NEAR(e.snr_db, 10 * std::log10(signal / noise), 1e-3);
}

TEST(PrecisionFp8, FineScalesRescueRowsBesideOutliers) {
  const auto outlier = [](float v, std::int64_t i, std::int64_t) { return v * (i == 3 ? 1e5f : 1.0f); };
  const auto row = [&](Scales s) { return error_of({64, 256, 1, outlier}, {64, 256, 2, same}, s); };
  EXPECT_LT(row(Scales::tensor).worst_row_db, 10) << "one scale: 1e5 is 2^17, and E4M3 holds 2^18 in all";
  EXPECT_GT(row(Scales::tensor).flushed_a, 0.1);
  EXPECT_GT(row(Scales::row).worst_row_db, 25);
  EXPECT_GT(row(Scales::block).worst_row_db, 25);
}

TEST(PrecisionFp8, TwoLevelsRepairLongSums) {
  const auto positive = [](float v, std::int64_t, std::int64_t) { return std::fabs(v); };
  const ProductError e = error_of({8, 8192, 1, positive}, {8, 8192, 2, positive}, Scales::tensor);
  EXPECT_LT(e.hopper_db, e.snr_db - 15);
  EXPECT_GT(e.two_level_db, e.hopper_db + 15);
  const ProductError blocks = error_of({8, 8192, 1, positive}, {8, 8192, 2, positive}, Scales::block);
  EXPECT_EQ(blocks.hopper_db, blocks.two_level_db);
}

TEST(PrecisionFp8, TheRecordHasEveryProductOfEveryLayer) {
  Fp8Settings s;
  s.width = 32, s.layers = 2, s.heads = 2, s.len = 24, s.steps = 1, s.threads = 2, s.scales = {Scales::block};
  const auto j = parse_json(render_json(fp8_record(s)), "a record");
  EXPECT_EQ(j["rows"].size(), 2u * 12);
  for (const auto& row : j["rows"]) {
    EXPECT_GT(row["snr_db"].get<double>(), 15) << row;
    EXPECT_EQ(row["clipped"], 0);
  }
  EXPECT_EQ(j["summary"].size(), 3u);
  EXPECT_EQ(j["hurts"].size(), 5u + 2 * 5) << "gradients in both formats";
  EXPECT_EQ(j["hurts"].back()["snr_db"], "exact") << "zeros";
  EXPECT_EQ(j["formats"].back()["format"], "NVFP4");
  const auto says = [&](std::size_t row, const char* column, const char* card) {
    return j["formats"][row][column].get<std::string>().find(card) != std::string::npos;
  };
  const std::size_t last = j["formats"].size() - 1, tensor = 1, row = 2, block = 3;
  EXPECT_FALSE(says(last, "units_of", "h200")) << "Hopper multiplies no fp4";
  EXPECT_TRUE(says(last, "units_of", "b200"));
  EXPECT_EQ(j["formats"][last]["step_runs_on"], "none");
  EXPECT_TRUE(says(tensor, "step_runs_on", "rtx4090"));
  for (const std::size_t hoppers : {row, block}) {
    EXPECT_TRUE(says(hoppers, "step_runs_on", "h200"));
    for (const char* other : {"b200", "rtx4090"}) {
      EXPECT_FALSE(says(hoppers, "step_runs_on", other));
      EXPECT_TRUE(says(hoppers, "units_of", other));
    }
  }
  const auto& attention = j["attention"];
  ASSERT_EQ(attention.size(), 6u);
  for (const auto& one : attention) {
    EXPECT_GT(one["bf16_db"].get<double>(), one["fp8_db"].get<double>() + 10) << one;
    EXPECT_LT(one["fp8_db"].get<double>(), one["inputs_db"].get<double>() + 0.5) << one;
    EXPECT_GT(one["kernel_db"].get<double>(), 28) << one;
  }
  EXPECT_GT(attention[0]["fp8_db"].get<double>(), 20);
}

}  // namespace
}  // namespace headroom::studies::precision
