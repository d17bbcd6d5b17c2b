// The sweep on a card: every variant that serves it is right, takes what was forecast, and memory that ends is a row.
#include <gtest/gtest.h>

#include "gpu/buffer.h"
#include "gpu/device.h"
#include "studies/attention/analysis.h"

namespace headroom::studies {
namespace {

class AttentionSweepGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    device = cuda_device(0);
    device.memory_bytes = free_memory_bytes(device);
    sweep.variants = {"all"};
    sweep.protocol = {.warmup = 1, .steps = 3};
  }
  Device device;
  AttentionSweep sweep;
};

TEST_F(AttentionSweepGpu, EveryVariantIsRightAndTakesWhatWasForecast) {
  sweep.batch = 2, sweep.heads = 4, sweep.kv_heads = 2, sweep.dims = {16, 128}, sweep.lens = {1, 97, 1500};
  sweep.dtypes = {{DType::f32, Math::exact}, {DType::f32, Math::tf32}, {DType::bf16, Math::exact}, {DType::f16, Math::exact}};
  sweep.masks = {attention::Mask::full(), attention::Mask::causal(), attention::Mask::sliding(70)};
  const auto result = run_sweep(sweep, device);
  EXPECT_EQ(result.rows.size(), result.asked);
  int ok = 0;
  for (const AttentionRow& r : result.rows) {
    SCOPED_TRACE(key_of(r));
    EXPECT_TRUE(r.status == Status::ok || r.status == Status::refused) << names_of<Status>.of(r.status) << ": " << r.why;
    if (!r.ok()) continue;
    ++ok;
    EXPECT_EQ(r.peak_bytes, r.forecast_peak_bytes);
    EXPECT_EQ(r.device, device.name);
    EXPECT_GT(*r.fwd_ms, 0);
    EXPECT_LT(*r.fwd_ms, 10);
    EXPECT_TRUE(r.max_error_o && r.max_error_dq && r.max_error_dk && r.max_error_dv);
  }
  EXPECT_GE(ok, 4 * 3 * 2 * 3) << "plain_cuda alone serves all of these";
}

TEST_F(AttentionSweepGpu, MemoryThatEndsIsARowWhetherItIsForeseenOrRefused) {
  sweep.variants = {"plain"}, sweep.lens = {65536, 256}, sweep.passes = Passes::forward;
  auto rows = run_sweep(sweep, device).rows;
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].status, Status::oom) << "two matrices of 128 GiB";
  EXPECT_NE(rows[0].why.find("this machine allows"), std::string::npos) << rows[0].why;
  EXPECT_EQ(rows[1].status, Status::ok) << rows[1].why;
  Device boastful = device;
  boastful.memory_bytes = 1ull << 60;
  rows = run_sweep(sweep, boastful).rows;
  EXPECT_EQ(rows[0].status, Status::oom);
  EXPECT_NE(rows[0].why.find("the driver refused"), std::string::npos) << rows[0].why;
  EXPECT_EQ(rows[1].status, Status::ok) << rows[1].why;
  sweep.memory = 1 << 20;
  rows = run_sweep(sweep, device).rows;
  EXPECT_NE(rows[1].why.find("--memory allows 1048576 bytes"), std::string::npos) << rows[1].why;
}

// Memory is asked for up to what the machine is said to allow: the largest length of the edge runs, for real.
TEST_F(AttentionSweepGpu, TheEdgeIsWhereItSaysItIs) {
  const std::uint64_t before = free_memory_bytes(device);
  const Buffer ballast(device.memory_bytes - (6ull << 30));  // the rest is filled quickly
  device.memory_bytes = free_memory_bytes(device);
  sweep.variants = {"plain"}, sweep.batch = 1, sweep.dims = {64}, sweep.lens = {64, 128}, sweep.protocol.steps = 1;
  const std::int64_t largest = analysis_of(sweep, device, run_sweep(sweep, device).rows).edges.at(0).largest_len;
  ASSERT_GT(largest, 10'000);
  sweep.lens = {largest, largest + 1};
  const auto rows = run_sweep(sweep, device).rows;
  EXPECT_EQ(rows.at(0).status, Status::ok) << rows[0].why;
  EXPECT_EQ(rows.at(1).status, Status::oom) << rows[1].why;
  EXPECT_GT(before, 0u);
}

}  // namespace
}  // namespace headroom::studies
