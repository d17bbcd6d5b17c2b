// The account of PyTorch eager against what was measured: two published sweeps and our own run on an H200, every row.
#include "studies/pytorch_account/attention.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

namespace headroom::pytorch {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<Row> rows_of(const std::string& file) {
  std::ifstream in("tests/data/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<std::string> names;
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    std::stringstream cells(line);
    Row row;
    std::size_t i = 0;
    for (std::string cell; std::getline(cells, cell, ','); ++i)
      if (rows.empty() && names.size() <= i) names.push_back(cell);
      else row[names[i]] = cell;
    if (!row.empty()) rows.push_back(row);
  }
  return rows;
}

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
  const Program program{.softmax = Softmax::composed, .upstream = Upstream::sum};
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
  const Program program{.softmax = Softmax::builtin, .upstream = Upstream::given};
  const auto rows = rows_of("attention_sweep_b.csv");
  ASSERT_EQ(rows.size(), 20u);
  for (const Row& row : rows) {
    const std::string at = "dim " + row.at("d_model") + " len " + row.at("seq_len");
    const Account a = account(process, problem(std::stoll(row.at("d_model")), std::stoll(row.at("seq_len"))), program);
    EXPECT_NEAR(mb(a.peak_bytes), std::stod(row.at("peak_mb")), 0.0051) << at;  // two decimals were printed
    EXPECT_NEAR(mb(a.before_backward_bytes), std::stod(row.at("before_bwd_mb")), 0.0051) << at;
  }
}

TEST(PyTorchAttention, RunOnAnH200) {
  for (const Row& row : rows_of("pytorch_attention_h200.csv")) {
    const std::string at = row.at("softmax") + " " + row.at("dtype") + " dim " + row.at("dim") + " len " + row.at("len");
    const auto p = problem(std::stoll(row.at("dim")), std::stoll(row.at("len")), *precision_named(row.at("dtype")));
    Program program{.fused = row.at("softmax") == "fused", .softmax = row.at("softmax") == "composed" ? Softmax::composed : Softmax::builtin};
    {
      Process process(large_workspace);
      const Account a = account(process, p, program);
      expect_close(a.peak_bytes, std::to_string(std::stod(row.at("given_peak"))), at + " given peak");
    }
    program.upstream = Upstream::sum;
    Process process(large_workspace);
    const Account a = account(process, p, program);
    expect_close(a.saved_bytes, row.at("sum_saved"), at + " saved");
    expect_close(a.forward_peak_bytes, row.at("sum_forward_peak"), at + " forward peak");
    expect_close(a.backward_peak_bytes, row.at("sum_backward_peak"), at + " backward peak");
    EXPECT_EQ(a.peak_bytes, a.forward_peak_bytes);
    program.peak_of = PeakOf::step;
    EXPECT_EQ(peak_bytes(p, program, large_workspace), std::max(a.forward_peak_bytes, a.backward_peak_bytes));
  }
}

}  // namespace
}  // namespace headroom::pytorch
