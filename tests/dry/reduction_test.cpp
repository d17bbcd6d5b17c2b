// Times of PyTorch's sums beside an H200's, row by row of the table in bench/results.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "dry/work_seconds.h"

namespace {

using namespace headroom::dry;

struct Sum {
  std::string text;
  double us = 0;
  Launch launch{};
  std::string name{};
};

std::vector<Sum> sums() {
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/h200_reductions_2026-11-30.csv");
  std::string line;
  std::getline(in, line);
  std::vector<Sum> out;
  while (std::getline(in, line)) {
    Sum s{.text = line};
    for (char& c : line)
      if (c == ',') c = ' ';
    std::istringstream words(line);
    std::string over, dtype;
    std::uint64_t elements = 0, summed = 1, inner = 0;
    int threads = 0, results = 0;
    Launch& l = s.launch;
    words >> over >> dtype >> elements >> summed >> inner >> s.us >> l.grid[0] >> l.grid[1] >> l.block[0] >> l.block[1] >> threads >>
        results;
    l.grid[2] = l.block[2] = 1;
    l.reached_bytes = (elements + elements / summed) * (dtype == "f32" ? 4 : 2);
    s.name = "_ZN2at6native13reduce_kernelILi" + std::to_string(threads) + "ELi" + std::to_string(results) + "ENS0_8ReduceOpIfE";
    out.push_back(s);
  }
  return out;
}

TEST(Reduction, TimesAreAnH200s) {
  int near = 0, all = 0;
  for (const Sum& s : sums()) {
    const double ratio = work_of(s.launch, s.name, rates_of_h200()).s * 1e6 / s.us;
    EXPECT_GT(ratio, 0.5) << s.text;
    EXPECT_LT(ratio, 1.5) << s.text;
    near += ratio > 0.85 && ratio < 1.15;
    ++all;
  }
  EXPECT_EQ(all, 114);
  EXPECT_GE(near, 95);
}

}  // namespace
