// The workspaces that a card takes for convolutions, beside what an H200 took, row by row of the tables in bench/results.
#include "dry/card_workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace headroom::dry;

constexpr std::uint64_t alike_bytes = 1024;  // alignment, and a list of tiles

struct AskedPass {
  ConvolutionPass pass = ConvolutionPass::weight;
  std::array<std::int64_t, 4> filter{}, input{}, output{};
  std::uint64_t element_bytes = 4, said = 0, card = 0;
  bool channels_innermost = false;
  EngineChoice choice{};
  std::string text{}, algorithm{};
  std::vector<std::int64_t> strides{}, padding{};

  ConvolutionShape shape() const { return {pass, filter, input, output, element_bytes, channels_innermost, false, strides, padding}; }
  std::uint64_t copies() const {
    const auto turned = [&](std::span<const std::int64_t> tensor, bool is_filter) {
      return turned_bytes(tensor, element_bytes, is_filter, channels_innermost, shape().grouped());
    };
    return turned(filter, true) + turned(input, false) + turned(output, false);
  }
  bool took(std::uint64_t bytes) const { return bytes + alike_bytes >= card && card + alike_bytes >= bytes; }
};

void read_shape(std::istream& words, AskedPass& r) {
  std::int64_t batch = 0, from = 0, to = 0, filter = 0, stride = 0, padding = 0, side = 0;
  words >> batch >> from >> to >> filter >> stride >> padding >> side;
  const std::int64_t out = (side + 2 * padding - filter) / stride + 1;
  r.filter = {to, from, filter, filter};
  r.input = {batch, from, side, side};
  r.output = {batch, to, out, out};
  r.strides = {stride, stride};
  r.padding = {padding, padding};
}

template <class Read>
std::vector<AskedPass> rows_of(const std::string& table, Read read) {
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/" + table);
  std::vector<AskedPass> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    AskedPass r;
    r.text = line;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    read(words, r);
    rows.push_back(r);
  }
  return rows;
}

std::vector<AskedPass> passes_with_shared_tiles() {
  return rows_of("h200_scratch_shared_tiles_2026-11-29.csv", [](std::istream& words, AskedPass& r) {
    std::string pass, dtype, layout;
    words >> pass >> dtype >> layout;
    read_shape(words, r);
    words >> r.choice.tile_size >> r.choice.tile_k >> r.choice.cluster_m >> r.choice.cluster_n >> r.said >> r.card;
    r.choice.workspace = 0;
    r.pass = pass == "f" ? ConvolutionPass::forward : pass == "d" ? ConvolutionPass::data : ConvolutionPass::weight;
    r.element_bytes = dtype == "bf16" ? 2 : 4;
    r.channels_innermost = layout == "last";
  });
}

std::vector<AskedPass> gradients_of_filters() {
  return rows_of("h200_scratch_winograd_2026-11-29.csv", [](std::istream& words, AskedPass& r) {
    std::string dtype;
    words >> dtype;
    read_shape(words, r);
    words >> r.choice.engine >> r.said >> r.card >> r.algorithm;
  });
}

TEST(DryCardWorkspace, PiecesOfSharedTilesAreAnH200s) {
  int decided = 0, exact = 0, exact_before = 0;
  for (const AskedPass& r : passes_with_shared_tiles()) {
    const auto range = stream_k_workspace(r.shape(), r.choice, r.copies(), r.said);
    if (!range) continue;
    EXPECT_TRUE(range->least <= r.card + alike_bytes && r.card <= range->most + alike_bytes) << r.text;
    ++decided;
    exact += r.took(range->likely);
    exact_before += r.took(r.said);
  }
  EXPECT_EQ(decided, 1067);
  EXPECT_EQ(exact, 1015);
  EXPECT_EQ(exact_before, 345);
}

// An adjoint's gradient of 65 channels: its card took 80 sums, of what cuDNN says 10. The copies have 68 channels.
TEST(DryCardWorkspace, CopiesFillPiecesOf16Bytes) {
  AskedPass r;
  r.pass = ConvolutionPass::data;
  r.said = 9135303;
  std::istringstream words("64 65 64 3 1 1 16");
  read_shape(words, r);
  r.choice = {.engine = 71, .tile_size = 1, .tile_k = 0, .workspace = 0, .cluster_m = 5, .cluster_n = 1};
  EXPECT_EQ(r.copies(), 8807424u);
  EXPECT_EQ(workspace_on_card(r.shape(), r.choice, true, r.copies(), r.said).likely, 11429063u);
  const std::int64_t filter[] = {512, 3, 3, 3}, input[] = {8, 3, 32, 32};
  EXPECT_EQ(turned_bytes(filter, 2, true, true, false), 512u * 8 * 9 * 2)
      << "three channels are filled up to eight where they lie side by side, too";
  EXPECT_EQ(turned_bytes(input, 2, false, true, true), 0u) << "in groups it is not known";
}

TEST(DryCardWorkspace, WinogradsTransformsAreAnH200sToTheByte) {
  int by_winograd = 0, foreseen = 0, wrong = 0;
  const std::vector<AskedPass> rows = gradients_of_filters();
  ASSERT_EQ(rows.size(), 742u);
  for (const AskedPass& r : rows) {
    ASSERT_TRUE(winograd_may(r.shape())) << r.text;
    const bool is = r.algorithm == "winograd", likely = winograd_likely(r.shape(), r.choice.engine);
    by_winograd += is;
    foreseen += is && likely;
    wrong += likely != is;
    if (!is) continue;
    EXPECT_EQ(winograd_bytes(r.shape()), r.card) << r.text;
    EXPECT_GE(workspace_on_card(r.shape(), r.choice, true, r.copies(), r.said).most, r.card) << r.text;
  }
  EXPECT_EQ(by_winograd, 202);
  EXPECT_EQ(foreseen, 160);
  EXPECT_EQ(wrong, 62);
}

std::vector<AskedPass> gradients_near_fourier() {
  return rows_of("h200_scratch_fourier_2026-11-30.csv", [](std::istream& words, AskedPass& r) {
    std::string dtype;
    words >> dtype;
    read_shape(words, r);
    words >> r.choice.engine >> r.choice.tile_size >> r.said >> r.card >> r.algorithm;
  });
}

TEST(DryCardWorkspace, FouriersTransformsOfManyExamplesAreAnH200sToTheByte) {
  int by_fourier = 0, foreseen = 0;
  const std::vector<AskedPass> rows = gradients_near_fourier();
  ASSERT_EQ(rows.size(), 35u);
  for (const AskedPass& r : rows) {
    ASSERT_TRUE(fourier_region(r.shape())) << r.text;
    const bool is = r.algorithm == "fourier", likely = fourier_likely(r.shape(), r.choice);
    const WorkspaceRange range = workspace_on_card(r.shape(), r.choice, true, r.copies(), r.said);
    by_fourier += is;
    foreseen += is && likely;
    EXPECT_TRUE(is || !likely) << r.text;
    if (is) { EXPECT_EQ(fourier_bytes(r.shape(), 0), r.card) << r.text; }
    if (likely) { EXPECT_EQ(range.likely, r.card) << r.text; }
    EXPECT_GE(range.most, is ? r.card : 0) << r.text;
    EXPECT_LE(range.least, r.card) << r.text;
  }
  EXPECT_EQ(by_fourier, 14);
  EXPECT_EQ(foreseen, 11);
}

AskedPass asked(ConvolutionPass pass, const char* shape) {
  AskedPass r{.pass = pass};
  std::istringstream words(shape);
  read_shape(words, r);
  return r;
}

// Pictures of a GAN, 48 channels to 3 in bfloat16: what an H200 took for two batches; for the third it took what cuDNN says.
TEST(DryCardWorkspace, ForwardToFewChannelsIsByWinogradsTransforms) {
  constexpr std::uint64_t said = 14686992;
  const auto of = [](const char* shape) {
    AskedPass r = asked(ConvolutionPass::forward, shape);
    r.element_bytes = 2;
    return r;
  };
  const AskedPass many = of("128 48 3 3 1 1 32"), short_batch = of("88 48 3 3 1 1 32"), few = of("64 48 3 3 1 1 32"),
                  wide = of("128 48 8 3 1 1 32"), large = of("128 48 3 3 1 1 64");
  EXPECT_EQ(workspace_on_card(many.shape(), {}, true, 0, said), (WorkspaceRange{said, 60182784, 60182784}));
  EXPECT_EQ(workspace_on_card(short_batch.shape(), {}, true, 0, said), (WorkspaceRange{said, 45142272, 45142272}));
  EXPECT_EQ(workspace_on_card(few.shape(), {}, true, 0, said / 2).likely, said / 2);
  EXPECT_GT(workspace_on_card(few.shape(), {}, true, 0, said / 2).most, said);
  EXPECT_TRUE(workspace_on_card(large.shape(), {}, true, 0, said).certain()) << "not seen";
  EXPECT_TRUE(workspace_on_card(wide.shape(), {}, true, 0, said).certain());
  EXPECT_FALSE(winograd_forward_may(asked(ConvolutionPass::forward, "128 48 3 3 1 1 32").shape())) << "FP32";
}

std::vector<AskedPass> passes_of_many_kinds() {
  return rows_of("h200_scratch_convolutions_2026-11-29.csv", [](std::istream& words, AskedPass& r) {
    std::string op, pass, dtype, layout;
    std::int64_t batch = 0, from = 0, to = 0, filter = 0, stride = 0, side = 0, groups = 0, dimensions = 0;
    words >> op >> pass >> dtype >> layout >> batch >> from >> to >> filter >> stride >> side >> groups >> dimensions >> r.card >> r.said;
    const std::int64_t out = (side + 2 * (filter / 2) - filter) / stride + 1, flat = dimensions == 1 ? 1 : 0;
    r.filter = {to, from / groups, flat ? 1 : filter, filter};
    r.input = {batch, from, flat ? 1 : side, side};
    r.output = {batch, to, flat ? 1 : out, out};
    r.pass = pass == "forward" ? ConvolutionPass::forward : pass == "data" ? ConvolutionPass::data : ConvolutionPass::weight;
    r.element_bytes = dtype == "bf16" ? 2 : 4;
    r.channels_innermost = layout == "last";
  });
}

// What the record has was not used to make these ranges; `said` is cuDNN's own word there, by a build of that day.
TEST(DryCardWorkspace, ACudnnThatCannotBeAskedIsTakenAsALaterOne) {
  int inside = 0, exact = 0, exact_by_cudnn = 0;
  const std::vector<AskedPass> rows = passes_of_many_kinds();
  ASSERT_EQ(rows.size(), 519u);
  for (const AskedPass& r : rows) {
    const WorkspaceRange range = unasked_workspace(r.shape(), r.copies());
    EXPECT_LE(range.likely, range.most) << r.text;
    inside += range.least <= r.card + alike_bytes && r.card <= range.most + alike_bytes;
    exact += r.took(range.likely);
    exact_by_cudnn += r.took(r.said);
  }
  EXPECT_EQ(inside, 516);
  EXPECT_EQ(exact, 364);
  EXPECT_EQ(exact_by_cudnn, 376);
  EXPECT_GE(unasked_workspace({}, 0).most, std::uint64_t(16 << 20)) << "a shape that was not told";
  EXPECT_GT(unasked_workspace({}, 0).likely, 0u) << "PyTorch asks for no block of 0 bytes, and the replays would have none that grows";
}

TEST(DryCardWorkspace, OtherPassesTakeWhatCudnnSays) {
  const AskedPass forward = asked(ConvolutionPass::forward, "8 64 64 3 1 1 32");
  const EngineChoice no_pieces{.engine = 67, .tile_size = 7, .tile_k = 0, .workspace = 1, .cluster_m = 8, .cluster_n = 1};
  EXPECT_EQ(workspace_on_card(forward.shape(), no_pieces, true, forward.copies(), 5 << 20), WorkspaceRange::exactly(5 << 20));
  const AskedPass strided = asked(ConvolutionPass::weight, "8 64 64 3 2 1 32");
  EXPECT_FALSE(winograd_may(strided.shape()));
  EXPECT_TRUE(workspace_on_card(strided.shape(), no_pieces, true, strided.copies(), 5 << 20).certain());
}

TEST(DryCardWorkspace, WhereNoCardWasAskedMoreMayBeTaken) {
  AskedPass grouped = asked(ConvolutionPass::forward, "8 64 64 3 1 1 32");
  grouped.filter[1] = 16;
  const std::uint64_t said = 5 << 20;
  const WorkspaceRange range = workspace_on_card(grouped.shape(), {}, true, 0, said);
  EXPECT_EQ(range.least, said);
  EXPECT_EQ(range.likely, said);
  EXPECT_GT(range.most, said);
  const AskedPass one_by_one = asked(ConvolutionPass::forward, "8 64 64 1 1 0 8");
  EXPECT_EQ(unknown_workspace(one_by_one.shape(), said), (WorkspaceRange{0, said, said}));
  EXPECT_EQ(workspace_on_card(one_by_one.shape(), {}, true, 0, said), (WorkspaceRange{0, 0, said})) << "cuBLAS multiplies most as they lie";
}

}  // namespace
