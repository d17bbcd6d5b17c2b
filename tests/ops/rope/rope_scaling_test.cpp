// Scaled rotary positions against what transformers 5.23 computes (modeling_rope_utils.ROPE_INIT_FUNCTIONS, in FP32), and the table that
// a model's files lead to.
#include "ops/rope/scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/rope/rope.h"

namespace headroom::rope {
namespace {

void expect_transformers(const char* name, const Positions& p, std::int64_t len, double magnitude, const std::vector<double>& expected) {
  const Frequencies f = frequencies(p, 2 * std::int64_t(expected.size()), len);
  ASSERT_EQ(f.of_pair.size(), expected.size()) << name;
  EXPECT_NEAR(f.magnitude, magnitude, 1e-8) << name;
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(f.of_pair[i] / expected[i], 1, 1e-5) << name << " " << i;
}

TEST(RopeScaling, IsThatOfTransformers) {
  expect_transformers("llama3", {.theta = 500000, .scaling = Scaling::llama3, .factor = 8, .original = 8192}, 100, 1,
                      {1, 0.440366626, 0.193922758, 0.0853971019, 0.0376060307, 0.0165604409, 0.00729266508, 0.00321144611, 0.000524846022,
                       7.78465546e-05, 3.42810235e-05, 1.50962178e-05, 6.64786967e-06, 2.92749974e-06, 1.28917316e-06, 5.6770881e-07});
  expect_transformers(
      "linear", {.theta = 10000, .scaling = Scaling::linear, .factor = 4}, 100, 1,
      {0.25, 0.140585333, 0.079056941, 0.0444569848, 0.0250000004, 0.0140585322, 0.00790569466, 0.00444569858, 0.00249999994, 0.00140585331,
       0.000790569466, 0.000444569858, 0.000250000012, 0.000140585325, 7.90569466e-05, 4.44569851e-05});
  const Positions dynamic{.theta = 10000, .scaling = Scaling::dynamic, .factor = 4, .original = 2048};
  expect_transformers("dynamic, longer", dynamic, 5000, 1,
                      {1, 0.495046645, 0.245071203, 0.121321678, 0.0600598902, 0.0297324508, 0.0147189498, 0.00728656678, 0.00360719045,
                       0.00178572768, 0.000884018547, 0.000437630457, 0.000216647473, 0.000107250613, 5.30940633e-05, 2.62840367e-05});
  expect_transformers("dynamic, shorter", dynamic, 2000, 1,
                      {1, 0.562341332, 0.316227764, 0.177827939, 0.100000001, 0.0562341288, 0.0316227786, 0.0177827943, 0.00999999978,
                       0.00562341325, 0.00316227786, 0.00177827943, 0.00100000005, 0.000562341302, 0.000316227786, 0.00017782794});
  expect_transformers("yarn", {.theta = 1e6, .scaling = Scaling::yarn, .factor = 4, .original = 32768}, 100, 1.13862944,
                      {1, 0.421696514, 0.177827939, 0.0749894157, 0.0316227786, 0.0133352149, 0.00477990136, 0.00165996165, 0.000549999997,
                       0.000168678584, 4.44569851e-05, 1.87473561e-05, 7.90569356e-06, 3.33380353e-06, 1.40585337e-06, 5.92843435e-07});
  expect_transformers("yarn, ends between frequencies",
                      {.theta = 150000, .scaling = Scaling::yarn, .factor = 32, .original = 4096, .whole_ends = false}, 100, 1.34657359,
                      {1, 0.47478205, 0.225418001, 0.107024416, 0.0508132726, 0.0193350017, 0.00679495931, 0.00209379266, 0.000456483918,
                       3.83088118e-05, 1.8188337e-05, 8.63549576e-06, 4.09997847e-06, 1.94659629e-06, 9.24208962e-07, 4.38797855e-07});
  Positions longrope{.theta = 10000, .scaling = Scaling::longrope, .factor = 32, .original = 4096};
  longrope.short_factors = {1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7}, longrope.long_factors = {1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 30.0, 40.0};
  expect_transformers("longrope, short", longrope, 4096, 1.19023807,
                      {1, 0.287479758, 0.0833333358, 0.0243252143, 0.00714285718, 0.00210818532, 0.000624999986, 0.000186016332});
  expect_transformers("longrope, long", longrope, 4097, 1.19023807,
                      {1, 0.158113882, 0.0250000004, 0.00395284733, 0.000624999986, 0.000158113893, 3.33333337e-05, 7.90569447e-06});
  EXPECT_THROW(frequencies(longrope, 8, 4096), Error) << "a factor for each pair";
}

TEST(RopeScaling, ATableHoldsCosinesAndThenSines) {
  const auto table = table_of({{1, 0.5}, 2}, 4);
  ASSERT_EQ(table.size(), 16u);
  for (int position = 0; position < 4; ++position)
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(table[std::size_t(position * 4 + i)], float(2 * std::cos(position * (i ? 0.5 : 1.0))));
      EXPECT_EQ(table[std::size_t(position * 4 + 2 + i)], float(2 * std::sin(position * (i ? 0.5 : 1.0))));
    }
}

}  // namespace
}  // namespace headroom::rope
