// The precision lab on a card: the same code gives the CPU's bits.
#include <gtest/gtest.h>

#include "gpu/device.h"
#include "studies/precision/accumulate.h"
#include "studies/precision/formats.h"
#include "studies/precision/norm.h"

namespace headroom::studies::precision {
namespace {

class PrecisionGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    card.emplace(cuda_device(0), 1);
  }

  // Every row of every table that has the column says yes; how many did.
  static int all_equal(const Record& r, const std::string& column) {
    int rows = 0;
    for (const Part& p : r.parts) {
      const auto* t = std::get_if<Table>(&p.is);
      if (!t) continue;
      for (std::size_t c = 0; c < t->columns.size(); ++c)
        if (t->columns[c].name == column)
          for (const auto& row : t->rows) {
            EXPECT_TRUE(std::get<bool>(row[c])) << t->name << ": " << std::get<std::string>(row.front()) << ", row " << rows;
            ++rows;
          }
    }
    return rows;
  }
  std::optional<Place> card;
};

TEST_F(PrecisionGpu, SumsOfEveryMethodAndFormat) {
  AccumulateSettings s;
  s.sums = {{0.01, 1000}, {0.001, 10000}, {1e6, 77}, {-3, 4099}, {0.7, 1}};
  s.seed = 5;
  EXPECT_GE(all_equal(accumulate_record(s, &*card), "equal_bits"), 5 * 25);
}

TEST_F(PrecisionGpu, NormsWithStatisticsInEveryFormat) {
  NormSettings s;
  s.widths = {1, 65, 4096}, s.magnitudes = {1e-30, 1, 1e3, 1e30};
  EXPECT_EQ(all_equal(norm_record(s, &*card), "equal_bits"), 2 * 5 * 3 * 4);
}

TEST_F(PrecisionGpu, RoundTripsThroughEveryFormatAndBlock) {
  EXPECT_EQ(all_equal(formats_record({.values = 100'001, .seed = 2}, &*card), "equal_on_gpu"), 7 + 4);
}

}  // namespace
}  // namespace headroom::studies::precision
