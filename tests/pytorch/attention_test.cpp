// The account of PyTorch eager against what was measured: two published sweeps and our own run on an H200, every row.
#include "pytorch/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/pytorch/csv_rows.h"

namespace headroom::pytorch {
namespace {

attention::Problem problem(std::int64_t dim, std::int64_t len, Precision precision = {}) {
  attention::Problem p;
  p.batch = 8, p.head_dim = dim, p.len_q = p.len_k = len, p.precision = precision;
  return p;
}

double mb(std::uint64_t bytes) { return double(bytes) / 1048576.0; }

void expect_close(std::uint64_t bytes, const std::string& measured, const std::string& what) {
  const double m = std::stod(measured);
  EXPECT_NEAR(mb(bytes), m, std::max(0.1, 0.001 * m)) << what;
}

constexpr std::uint64_t small_workspace = 8519680, large_workspace = 33554432;  // 8.125 and 32 MiB

TEST(PyTorchAttention, SweepOfComposedSoftmaxAndSummedOutput) {
  Process process(large_workspace);
  Program program;
  program.softmax = Softmax::composed, program.upstream = Upstream::sum;
  const auto rows = rows_of("attention_sweep_a.csv");
  ASSERT_EQ(rows.size(), 20u);
  for (const Row& row : rows) {
    const std::string at = "dim " + row.at("d_model") + " len " + row.at("seq_len");
    const Account a = account(process, problem(std::stoll(row.at("d_model")), std::stoll(row.at("seq_len"))), program);
    EXPECT_NEAR(mb(a.peak_bytes), std::stod(row.at("peak_mb")), 6e-6 * std::stod(row.at("peak_mb"))) << at;  // all printed digits
    EXPECT_NEAR(mb(a.saved_bytes), std::stod(row.at("saved_mb")), 6e-6 * std::stod(row.at("saved_mb"))) << at;
  }
}

TEST(PyTorchAttention, SweepOfBuiltinSoftmaxAndGivenGradient) {
  Process process(small_workspace);
  const Program program;
  const auto rows = rows_of("attention_sweep_b.csv");
  ASSERT_EQ(rows.size(), 20u);
  for (const Row& row : rows) {
    const std::string at = "dim " + row.at("d_model") + " len " + row.at("seq_len");
    const Account a = account(process, problem(std::stoll(row.at("d_model")), std::stoll(row.at("seq_len"))), program);
    EXPECT_NEAR(mb(a.peak_bytes), std::stod(row.at("peak_mb")), 0.0051) << at;  // two decimals were printed
    EXPECT_NEAR(mb(a.before_backward_bytes), std::stod(row.at("before_bwd_mb")), 0.0051) << at;
  }
}

// One process measured the whole file, row by row: workspaces touched by the first row are there in all later ones.
TEST(PyTorchAttention, RunOnAnH200) {
  Process process(large_workspace);
  const auto rows = rows_of("pytorch_attention_h200.csv");
  ASSERT_EQ(rows.size(), 36u);
  for (const Row& row : rows) {
    const std::string at = row.at("softmax") + " " + row.at("dtype") + " dim " + row.at("dim") + " len " + row.at("len");
    const auto p = problem(std::stoll(row.at("dim")), std::stoll(row.at("len")), *precision_named(row.at("dtype")));
    Program program;
    program.fused = row.at("softmax") == "fused";
    program.softmax = row.at("softmax") == "composed" ? Softmax::composed : Softmax::builtin;
    Account a = account(process, p, program);
    expect_close(a.before_backward_bytes, row.at("given_before"), at + " before backward, gradient given");
    expect_close(a.peak_bytes, row.at("given_peak"), at + " peak, gradient given");
    program.upstream = Upstream::sum;
    a = account(process, p, program);
    expect_close(a.saved_bytes, row.at("sum_saved"), at + " saved");
    expect_close(a.forward_peak_bytes, row.at("sum_forward_peak"), at + " forward peak");
    expect_close(a.backward_peak_bytes, row.at("sum_backward_peak"), at + " backward peak");
    EXPECT_EQ(a.peak_bytes, a.forward_peak_bytes);
    program.peak_of = PeakOf::step;
    EXPECT_EQ(account(process, p, program).peak_bytes, std::max(a.forward_peak_bytes, a.backward_peak_bytes));
  }
}

TEST(PyTorchAttention, EveryPieceHasAFormulaThatGivesItsBytes) {
  auto p = problem(64, 1000);
  p.heads = 6, p.kv_heads = 2, p.len_k = 700, p.mask = attention::Mask::causal();
  Process process(small_workspace);
  const Account a = account(process, p, {});
  std::map<std::string, std::string> formula;
  std::uint64_t at_peak = 0;
  for (const Component& c : a.components) {
    formula[c.name] = c.formula;
    if (c.at_peak) at_peak += c.taken;
  }
  EXPECT_EQ(at_peak, a.peak_bytes);
  EXPECT_EQ(a.timeline.at(a.peak_moment).live, a.peak_bytes);
  EXPECT_EQ(formula.at("q"), "B·H·Nq·D·4 = 8·6·1000·64·4");
  EXPECT_EQ(formula.at("k"), "B·Hkv·Nk·D·4 = 8·2·700·64·4");
  EXPECT_EQ(formula.at("weights"), "B·H·Nq·Nk·4 = 8·6·1000·700·4");
  EXPECT_EQ(formula.at("mask"), "Nq·Nk·1 = 1000·700·1");
}

TEST(PyTorchAttention, Fp8IsRefusedInOneLine) {
  Process process(small_workspace);
  EXPECT_THROW(account(process, problem(64, 256, *precision_named("fp8")), {}), Error);
}

}  // namespace
}  // namespace headroom::pytorch
