// What kernels that go by elements touch, and their times beside an H200's, row by row of the table in bench/results.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "dry/parameters.h"
#include "dry/strides.h"
#include "dry/work_seconds.h"
#include "tests/dry/recorded.h"

namespace {

using namespace headroom::dry;

// As PyTorch lays it out: the number of dimensions, of each size three words, then each dimension's strides.
std::vector<char> parameter(const std::vector<std::uint32_t>& sizes, const std::vector<std::vector<std::uint32_t>>& operands) {
  std::vector<std::uint32_t> words(1 + 25 * (3 + operands.size()), 0xdeadbeef);
  words[0] = std::uint32_t(sizes.size());
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    words[1 + 3 * d] = sizes[d];
    for (std::size_t k = 0; k < operands.size(); ++k) words[1 + 75 + d * operands.size() + k] = operands[k][d];
  }
  const std::size_t table = (words.size() * 4 + 7) / 8 * 8;
  std::vector<char> bytes(table + 8 * operands.size() + 4);  // addresses, and what the function holds
  std::memcpy(bytes.data(), words.data(), words.size() * 4);
  return bytes;
}

TEST(Strides, AreReadFromTheKernelsTable) {
  const auto bytes = parameter({64, 1000}, {{4, 256}, {4000, 4}, {0, 4}});
  const auto strides = strides_of(bytes.data(), bytes.size());
  ASSERT_TRUE(strides);
  EXPECT_EQ(strides->sizes, (std::vector<std::uint32_t>{64, 1000}));
  ASSERT_EQ(strides->operands.size(), 3u);
  EXPECT_EQ(strides->operands[1], (std::vector<std::uint32_t>{4000, 4}));
  EXPECT_EQ(strides->operands[2], (std::vector<std::uint32_t>{0, 4}));
  EXPECT_FALSE(strides_of(bytes.data(), 100)) << "there is no table";
}

TEST(Strides, ATurnedOperandIsAskedForInManyPieces) {
  constexpr std::uint32_t side = 8192, block = 512;
  constexpr std::uint64_t elements = std::uint64_t(side) * side;
  const Touched alike = touched_by({{side * side}, {{4}, {4}}}, elements, block);
  const Touched turned = touched_by({{side, side}, {{4, 4 * side}, {4 * side, 4}}}, elements, block);
  EXPECT_EQ(alike.bytes, 2 * 4 * elements);
  EXPECT_EQ(turned.bytes, alike.bytes);
  EXPECT_EQ(alike.block_sectors, 2 * elements / 8);
  EXPECT_EQ(turned.block_sectors, elements / 8 + elements) << "a sector for each element";
  EXPECT_EQ(alike.warp_lines, 2 * elements / 32);
  EXPECT_EQ(turned.warp_lines, elements / 32 + elements);
  EXPECT_EQ(alike.reread_bytes, 0u);
  EXPECT_EQ(turned.reread_bytes, side * (4u + 128u)) << "a row of the result, and a line for each of its elements";
}

TEST(Strides, ARepeatedOperandHasItsOwnBytes) {
  const Touched t = touched_by({{64, 1000}, {{4, 256}, {0, 4}}}, 64'000, 512);
  EXPECT_EQ(t.bytes, 64'000u * 4 + 1000 * 4);
  EXPECT_EQ(t.dimensions, 2u);
}

TEST(Strides, ABlockOfAKernelHasAsManyElementsAsItsNameSays) {
  EXPECT_EQ(block_elements_of("_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastI"), 512u);
  EXPECT_EQ(block_elements_of("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"), 0u);
}

TEST(Strides, TimesAreAnH200s) {
  int all = 0, near = 0;
  for (const auto& [line, cells] : recorded("h200_elementwise_2026-11-30.csv")) {
    ASSERT_EQ(cells.size(), 12u) << line;
    const auto number = [&](std::size_t i) { return std::stoull(cells[i]); };
    Launch l{};
    l.touched = {number(5), number(6), number(7), number(8), number(9), number(10)};
    const std::string how = cells[11] == "1" ? "15gpu_kernel_implI" : "22gpu_kernel_impl_nocastI";
    const LaunchWork work = work_of(l, "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_" + how, rates_of_h200());
    const double ratio = work.s * 1e6 / std::stod(cells[4]);
    EXPECT_GT(ratio, 0.5) << line;
    EXPECT_LT(ratio, 2.1) << line;
    near += ratio > 0.83 && ratio < 1.2;
    ++all;
  }
  EXPECT_EQ(all, 462);
  EXPECT_GE(near, all * 9 / 10);
}

}  // namespace
