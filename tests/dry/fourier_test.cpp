// What torch.backends.cudnn.benchmark takes for convolutions, beside what an H200 took, row by row of the table in bench/results.
#include "dry/fourier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "dry/card_workspace.h"
#include "dry/library/tries.h"

namespace fourier_test {

namespace {

using namespace headroom::dry;
using Numbers = std::vector<std::int64_t>;

struct TriedPass {
  ConvolutionPass pass = ConvolutionPass::forward;
  Numbers filter{}, input{}, output{}, strides{}, padding{};
  std::uint64_t element_bytes = 4;
  bool channels_innermost = false, dilated = false;
  std::string text{}, fourier{}, winograd{};
  std::uint64_t card = 0;

  ConvolutionShape shape() const { return {pass, filter, input, output, element_bytes, channels_innermost, dilated, strides, padding}; }
};

Numbers sides_of(std::string text, std::int64_t flat) {  // "3x3"; one of one dimension is PyTorch's with a first of `flat`
  std::replace(text.begin(), text.end(), 'x', ' ');
  std::istringstream words(text);
  Numbers sides;
  for (std::int64_t n; words >> n;) sides.push_back(n);
  if (sides.size() == 1) sides.insert(sides.begin(), flat);
  return sides;
}

TriedPass pass_of(const std::string& pass, const std::string& dtype, const std::string& layout, const std::string& shape) {
  TriedPass r{.pass = pass == "forward" ? ConvolutionPass::forward
                      : pass == "data"  ? ConvolutionPass::data
                                        : ConvolutionPass::weight,
              .element_bytes = dtype == "bf16" || dtype == "fp16" ? 2u : 4u,
              .channels_innermost = layout == "last"};
  std::istringstream words(shape);
  std::int64_t examples = 0, from = 0, to = 0, groups = 0;
  std::string filter, stride, padding, dilation, places;
  words >> examples >> from >> to >> filter >> stride >> padding >> dilation >> groups >> places;
  r.filter = sides_of(filter, 1);
  r.input = sides_of(places, 1);
  r.strides = sides_of(stride, 1);
  r.padding = sides_of(padding, 0);
  const Numbers dilations = sides_of(dilation, 1);
  r.dilated = std::ranges::any_of(dilations, [](std::int64_t d) { return d > 1; });
  for (std::size_t i = 0; i < r.filter.size(); ++i)
    r.output.push_back((r.input[i] + 2 * r.padding[i] - dilations[i] * (r.filter[i] - 1) - 1) / r.strides[i] + 1);
  r.filter.insert(r.filter.begin(), {to, from / groups});
  r.input.insert(r.input.begin(), {examples, from});
  r.output.insert(r.output.begin(), {examples, to});
  return r;
}

std::vector<TriedPass> rows_of(const char* table) {
  std::ifstream in(std::string(HEADROOM_SOURCE_DIR "/bench/results/") + table);
  std::vector<TriedPass> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::vector<std::string> c;
    for (std::string cell; std::getline(cells, cell, ',');) c.push_back(cell);
    TriedPass r = pass_of(c[0], c[1], c[2], c[3]);
    r.text = line;
    r.card = std::stoull(c[4]);
    if (c.size() > 6) {
      r.fourier = c[5];
      r.winograd = c[6];
    }
    rows.push_back(r);
  }
  return rows;
}

std::vector<TriedPass> tried_passes() { return rows_of("h200_cudnn_benchmark_2026-11-30.csv"); }

TEST(DryFourier, TransformsAreAnH200sToTheByte) {
  int listed = 0, not_listed = 0, in_groups = 0;
  const std::vector<TriedPass> rows = tried_passes();
  ASSERT_EQ(rows.size(), 162u);
  for (const TriedPass& r : rows) {
    const ConvolutionShape s = r.shape();
    const bool rule = fourier_may(s);
    if (r.fourier.empty()) {
      not_listed += rule;
      continue;
    }
    if (s.grouped()) {
      ++in_groups;
      EXPECT_FALSE(rule);
      EXPECT_GE(workspace_of_unlisted(s, true, true).most, std::stoull(r.fourier)) << r.text;
      continue;
    }
    ASSERT_TRUE(rule) << r.text;
    ++listed;
    EXPECT_EQ(fourier_bytes(s, copies_of_innermost(s)), std::stoull(r.fourier)) << r.text;
  }
  EXPECT_EQ(listed, 41);
  EXPECT_EQ(not_listed, 1);
  EXPECT_EQ(in_groups, 4);
}

// None of these was used to make the rule but for which tensors are copied where there is one channel, or one place.
TEST(DryFourier, SoAreThoseOfEveryThirdOfTheOthersThatACardListed) {
  int foreseen = 0;
  const std::vector<TriedPass> rows = rows_of("h200_cudnn_fourier_2026-11-30.csv");
  ASSERT_EQ(rows.size(), 869u);
  for (const TriedPass& r : rows) {
    const ConvolutionShape s = r.shape();
    if (!fourier_may(s)) continue;
    ++foreseen;
    EXPECT_EQ(fourier_bytes(s, copies_of_innermost(s)), r.card) << r.text;
  }
  EXPECT_EQ(foreseen, 862);
}

TEST(DryFourier, WinogradsTransformsAreListedForEveryFilterThatTheyFit) {
  int listed = 0;
  for (const TriedPass& r : tried_passes()) {
    const ConvolutionShape s = r.shape();
    if (s.grouped()) continue;
    if (s.single()) { EXPECT_EQ(winograd_listed(s), !r.winograd.empty()) << r.text; }
    if (r.winograd.empty()) continue;
    ++listed;
    EXPECT_EQ(winograd_workspace(s), std::stoull(r.winograd)) << r.text;
    EXPECT_GE(workspace_of_unlisted(s, true, true).most, r.card) << r.text;
  }
  EXPECT_EQ(listed, 7);
}

// The card's requests of PyTorch's DCGAN example (50 examples) have these; no rule was made with them.
TEST(DryFourier, AGeneratorsFirstLayersTakeWhatACardTook) {
  const auto bytes = [](const char* shape) {
    const TriedPass r = pass_of("data", "fp32", "plain", shape);
    EXPECT_TRUE(fourier_may(r.shape())) << shape;
    return fourier_bytes(r.shape(), 0);
  };
  EXPECT_EQ(bytes("50 512 100 4x4 1x1 0x0 1x1 1 4x4"), 355993600u);
  EXPECT_EQ(bytes("50 256 512 4x4 2x2 1x1 1x1 1 8x8"), 2639724560u);
  EXPECT_EQ(bytes("50 64 128 4x4 2x2 1x1 1x1 1 32x32"), 247005200u);
}

TEST(DryTries, TheLargestOfAllPlansIsTakenAndTheFirstIsKept) {
  const TriedPass r = pass_of("forward", "fp32", "plain", "50 128 128 3x3 1x1 1x1 1x1 1 28x28");
  const std::uint64_t transforms = 198901760;
  Tries t;
  t.listed = {{67, true}, {38, true}, {70, false}};
  WorkspaceRange first = WorkspaceRange::exactly(40), second{10, 20, 30}, third = WorkspaceRange::exactly(0);
  EXPECT_EQ(t.made(r.shape(), 0, true, first), 0);
  EXPECT_EQ(first, WorkspaceRange::exactly(40)) << "what is kept is its own";
  EXPECT_EQ(t.made(r.shape(), 1, true, second), 1);
  EXPECT_EQ(second, (WorkspaceRange{10, transforms, transforms})) << "one of the others stands for the engine that is not listed here";
  t.made(r.shape(), 2, true, third);
  EXPECT_EQ(t.all(), (WorkspaceRange{40, transforms, transforms}));
  EXPECT_EQ(t.least_if_all_are_listed(), transforms);
  for (int run = 0; run < 2; ++run) EXPECT_TRUE(t.runs(0, WorkspaceRange::exactly(40)));
  for (int run = 0; run < 2; ++run) EXPECT_TRUE(t.runs(1, {10, 20, 30}));
  EXPECT_FALSE(t.runs(0, WorkspaceRange::exactly(40))) << "it was tried, and is used";
  EXPECT_EQ(t.kept(40), (WorkspaceRange{10, 40, transforms})) << "with so few plans the engine that is not listed here is tried, too";
  for (int number = 2; number < 10; ++number) t.runs(number, WorkspaceRange::exactly(50));
  EXPECT_EQ(t.kept(40), (WorkspaceRange{10, 40, 50}));
}

TEST(DryTries, WithoutTf32AFiltersGradientIsByWinogradsTransforms) {
  const TriedPass r = pass_of("weight", "strict", "plain", "50 64 128 3x3 1x1 1x1 1x1 1 64x64");
  Tries strict, by_tensor_cores, fused;
  strict.listed = by_tensor_cores.listed = fused.listed = {{68, true}, {20, false}};
  WorkspaceRange own = WorkspaceRange::exactly(0), other = own, in_a_graph = own;
  strict.made(r.shape(), 1, true, own);  // PyTorch passed over the first
  EXPECT_EQ(own, (WorkspaceRange{0, 355074048, 355074048}));
  by_tensor_cores.made(r.shape(), 0, true, other);
  EXPECT_EQ(other, WorkspaceRange::exactly(0));
  fused.made(r.shape(), 1, false, in_a_graph);
  EXPECT_EQ(in_a_graph, WorkspaceRange::exactly(0));
}

TEST(DryTries, AnEngineThatIsListedBesideAnotherIsNotThereWithoutIt) {
  const TriedPass r = pass_of("data", "fp32", "plain", "50 128 256 4x4 2x2 1x1 1x1 1 16x16");  // a card listed none
  Tries with, without;
  with.listed = {{76, true}, {listed_beside_fourier, true}};
  without.listed = {{76, true}, {28, true}};
  for (Tries* const t : {&with, &without})
    for (int i = 0; i < 2; ++i) {
      WorkspaceRange own = WorkspaceRange::exactly(11927699);
      t->made(r.shape(), i, true, own);
    }
  EXPECT_EQ(without.all().likely, 11927699u);
  EXPECT_EQ(without.all().most, with.all().most) << "seldom it is listed alone";
  EXPECT_GT(with.all().likely, 500u << 20);
}

TEST(DryTries, AProductsGradientIsSummedOverExamples) {
  const TriedPass r = pass_of("weight", "bf16", "plain", "50 1024 256 1x1 1x1 0x0 1x1 1 14x14");
  EXPECT_EQ(workspace_of_unlisted(r.shape(), true, false).likely, 52428800u) << "as a card took";
  EXPECT_EQ(workspace_of_unlisted(r.shape(), false, false).likely, 0u);
  const TriedPass odd = pass_of("weight", "fp16", "plain", "32 2048 512 1x1 1x1 0x0 1x1 1 7x7");  // 49 places: a card took none
  EXPECT_EQ(workspace_of_unlisted(odd.shape(), true, false), (WorkspaceRange{0, 0, 134217728}));
}

}  // namespace

}  // namespace fourier_test
