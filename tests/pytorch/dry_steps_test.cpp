// Steps of programs of PyTorch that no card measured, against dry runs of them: headroom forecast --device h200 --steps 40 -- python3
// bench/peers/pytorch_steps.py --out rows.csv SETTING, where PyTorch's own allocator counts (tests/data/pytorch_steps_dry.csv).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "pytorch/language_model.h"
#include "studies/memory/model_pytorch.h"
#include "tests/pytorch/csv_rows.h"
#include "tests/pytorch/setting.h"

namespace headroom::pytorch {
namespace {

TEST(PyTorchDrySteps, AreCountedWithinTwoPercent) {
  const auto rows = rows_of("pytorch_steps_dry.csv");
  ASSERT_GE(rows.size(), 35u);
  double worst = 0;
  std::ifstream page(HEADROOM_SOURCE_DIR "/docs/memory-as-pytorch-checks.md");
  const std::string docs(std::istreambuf_iterator<char>(page), {});
  for (const Row& row : rows) {
    const LanguageModel m = setting_of(row);
    // From 2.12 on PyTorch takes cuBLAS's workspace for each product and gives it back: none stands at the peak.
    const bool standing = row.at("torch").starts_with("2.11");
    const auto a = account(m, standing ? 32ull << 20 : 0);
    std::string at;
    for (const char* word : {"model", "batch", "len", "precision", "keep", "parameters", "adam", "lora", "accumulate", "shard", "gpus"})
      at += row.at(word) + " ";
    if (m.base == Base::precision) {  // a packed matrix has fewer elements
      EXPECT_EQ(std::to_string(a.params), row.at("params")) << at;
    }
    const bool checkpoints = row.at("keep") == "input";
    // From 2.12 on each product takes cuBLAS's 32 MiB and gives them back. PyTorch's grouped product in FP32 is a loop of products, and of a packed matrix
    // a product runs beside what is written out.
    const bool loops = (m.routed() && m.parameters == Parameters::whole) || m.base == Base::four_bit;
    const auto near = [&](const char* name, std::uint64_t bytes, double run) {
      const double mb = double(bytes) / 1048576.0;
      if (loops) run = std::clamp(mb, run - 32, run);
      const double off = mb / run - 1;
      if (!checkpoints) worst = std::max(worst, std::abs(off));
      const bool less_known = std::string(name) == "held" || (checkpoints && std::string(name) == "forward_peak");
      EXPECT_LT(std::abs(off), less_known ? 0.03 : 0.02) << at << name << " " << off;
    };
    const auto of = [&](const char* name) { return std::stod(row.at(name)); };
    near("before_backward", a.before_backward_bytes, of("before_backward"));
    near("forward_peak", a.forward_peak_bytes, of("forward_peak"));
    near("backward_peak", a.forward_backward_peak_bytes, of("backward_peak"));
    near("update_peak", a.train_peak_bytes, std::max(of("update_peak"), of("backward_peak")));
    near("held", a.held_bytes, of("held"));
    const double run = std::max(of("update_peak"), of("backward_peak"));
    const std::string blocks = row.at("layers") == "0" ? "" : fmt::format(" ({} of its blocks)", m.layers);
    const std::string said = fmt::format("| {}{}, {} × {}, {} | `{}{}` | {:.0f} MB, {:+.1f} % |", row.at("model"), blocks, m.batch, m.len,
                                         row.at("precision"), m.fused_attention ? "" : "--attention plain ", studies::levers_of(m), run,
                                         100 * (double(a.train_peak_bytes) / 1048576.0 / run - 1));
    EXPECT_NE(docs.find(said), std::string::npos) << "docs/memory-as-pytorch-checks.md is stale: " << said;
  }
  std::printf("largest relative error %.4f\n", worst);
}

// The same programs on an H100 (tests/data/pytorch_steps_h100.csv): bench/peers/pytorch_steps.py, PyTorch 2.11, two ranks by NCCL, the fullest of them.
TEST(PyTorchDrySteps, ExpertsAndZeroRedundancyTakeThatOnAnH100) {
  const auto rows = rows_of("pytorch_steps_h100.csv");
  ASSERT_EQ(rows.size(), 5u);
  for (const Row& row : rows) {
    const LanguageModel m = setting_of(row);
    const auto a = account(m, 32ull << 20);
    EXPECT_EQ(std::to_string(a.params), row.at("params")) << row.at("model");
    const double off = double(a.train_peak_bytes) / 1048576.0 / std::stod(row.at("update_peak")) - 1;
    std::printf("%s: %+.2f %%\n", row.at("model").c_str(), 100 * off);
    EXPECT_LT(std::abs(off), 0.01) << row.at("model");
  }
}

// A program that loops over experts, as transformers does with experts_implementation="eager", is within the interval of the grouped products, whichever
// expert gets the tokens: HEADROOM_DRY_ROUTING=balanced, worst.
TEST(PyTorchDrySteps, LoopsOverExpertsAreWithinTheInterval) {
  const auto rows = rows_of("pytorch_loops_dry.csv");
  ASSERT_GE(rows.size(), 4u);
  for (const Row& row : rows) {
    const LanguageModel m = setting_of(row);
    const std::uint64_t peak = account(m, 0).train_peak_bytes, run = std::uint64_t(std::stod(row.at("backward_peak")) * 1048576);
    EXPECT_GT(run, peak) << row.at("model");
    EXPECT_LE(run, studies::interval_of(m, peak, 0).at_most) << row.at("model") << " " << row.at("routing");
    EXPECT_LT(double(run), 1.03 * double(peak)) << row.at("model");
  }
}

// ZeroRedundancyOptimizer hands out whole parameters: of two ranks the fullest has at least half of the moments, and as many as the largest parameter has.
TEST(PyTorchDrySteps, RanksShareMomentsByWholeParameters) {
  LanguageModel m;
  m.width = 512, m.ffn = 1408, m.layers = 5, m.heads = 8, m.batch = 2, m.len = 512, m.adam = Adam::fused, m.gpus = 2;
  const double all = double(account(m, 0).held_bytes), n = double(account(m, 0).params);
  m.shard = engine::Sharding::optimizer;
  const double half = double(account(m, 0).held_bytes);
  EXPECT_LT(half, all - 0.99 * 4 * n);       // half of 8 bytes a parameter
  EXPECT_GT(half, all - 4 * n - (1 << 20));  // and counts of steps
  m.gpus = 64;
  const double one = double(account(m, 0).held_bytes), largest = 10000.0 * 512;
  EXPECT_NEAR(all - one, 8 * (n - largest), 1 << 20);
}

// gpt-oss's softmax names its dtype, so autocast leaves it in 16 bits.
TEST(PyTorchDrySteps, AdaptersOfGptOssKeepWeightsOfAttentionIn16Bits) {
  LanguageModel m;
  make_gpt_oss(m);
  m.batch = 1, m.len = 256, m.lora = 8, m.precision = {DType::bf16};
  std::size_t found = 0;
  for (const Component& c : account(m, 0, Detail::components).account.components) {
    if (c.name.find("weights and those of sinks") == std::string::npos || c.phase != name_of(Phase::saved)) continue;
    EXPECT_EQ(c.dtype, "bf16") << c.name;
    ++found;
  }
  EXPECT_EQ(found, 1u) << "those of all blocks are one component";
}

// A temporary of Muon's is of one matrix: its moments are half of AdamW's where matrices are most of a model.
TEST(PyTorchDrySteps, MuonAndLionKeepOneMoment) {
  LanguageModel m;
  m.width = 1024, m.ffn = 4096, m.layers = 6, m.heads = 8, m.batch = 1, m.len = 128;
  const auto held = [&](Adam adam) {
    m.adam = adam;
    return double(account(m, 0).held_bytes);
  };
  const double none = held(Adam::sgd), two = held(Adam::fused), n = double(account(m, 0).params), ends = 2.0 * 10000 * 1024,
               rests = 16 << 20;
  EXPECT_NEAR(held(Adam::muon) - none, 4 * (n - ends) + 8 * ends, rests);
  EXPECT_NEAR(held(Adam::lion) - none, (two - none) / 2, rests);
  EXPECT_NEAR(held(Adam::lion_8bit) - none, (1 + 4.0 / 256) * n, rests);
  m.adam = Adam::muon, m.gpus = 2, m.shard = engine::Sharding::everything;
  EXPECT_THROW(check(m), Error);
}

}  // namespace
}  // namespace headroom::pytorch
