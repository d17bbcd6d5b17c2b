// A forecast's kernels held against a profile's: programs that are alike, that have other counts, other orders, and other kernels of libraries.
#include "studies/results/kernels.h"

#include <gtest/gtest.h>

#include <numeric>

namespace headroom::studies {
namespace kernels_tests {

const std::vector<ForecastKernel> step{{"add<float>", "memory-bound kernels", "grid 8 x 1 x 1", 10},
                                       {"cublasGemmEx", "matrix products", "64 x 64 x 64", 100},
                                       {"gelu<bf16>", "memory-bound kernels", "grid 8 x 1 x 1", 20},
                                       {"cublasGemmEx", "matrix products", "64 x 64 x 256", 200},
                                       {"cudnnBackendExecute", "attention", "1 x 2 heads", 50},
                                       {"add<float>", "memory-bound kernels", "grid 4 x 1 x 1", 5},
                                       {"copy to the card", "copies", "4096 bytes", 3},
                                       {"fill", "copies", "64 bytes", 1},
                                       {"FusedAdam<4>", "memory-bound kernels", "grid 100 x 1 x 1", 40}};

// The same on a card: products and attention by other names, a product in two kernels, an attention in three.
std::vector<RanKernel> ran_step(double factor = 1) {
  return {{"add<float>", "kernel", 12 * factor},
          {"nvjet_tst_128x64", "kernel", 90 * factor},
          {"gelu<bf16>", "kernel", 20 * factor},
          {"sm90_xmma_gemm_bf16bf16", "kernel", 150 * factor},
          {"cublasLt::splitKreduce_kernel<32>", "kernel", 10 * factor},
          {"cudnn::fusion::compute_dot_do_o", "kernel", 5 * factor},
          {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "kernel", 60 * factor},
          {"cudnn::fusion::convert_dq_to_16bits", "kernel", 5 * factor},
          {"add<float>", "kernel", 6 * factor},
          {"copy host to device", "copy", 3 * factor},
          {"memset", "fill", 1 * factor},
          {"FusedAdam<4>", "kernel", 80 * factor}};
}
double sum(const std::vector<RanKernel>& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0, [](double s, const RanKernel& k) { return s + k.us; });
}
std::vector<RanKernel> program(int steps) {  // it begins with kernels of its own, and every step is slower than the one before
  std::vector<RanKernel> all{{"normal_kernel", "kernel", 500}, {"add<float>", "kernel", 7}};
  for (int i = 0; i < steps; ++i)
    for (const RanKernel& k : ran_step(1 + i)) all.push_back(k);
  return all;
}
const KernelPairRow& row_of(const KernelsJoined& j, const std::string& kernel, const std::string& shape = "") {
  for (const KernelPairRow& r : j.rows)
    if (r.kernel == kernel && (shape.empty() || r.shape == shape)) return r;
  throw std::runtime_error("no row of " + kernel);
}

TEST(KernelsJoined, TakesTheLastStepAndJoinsLibrariesByWhatTheyDo) {
  const KernelsJoined j = joined_kernels(step, program(3));
  EXPECT_EQ(j.pairs, 9);
  EXPECT_EQ(j.only_forecast + j.only_seen, 0);
  EXPECT_NEAR(j.forecast_ms, 0.429, 1e-9);
  EXPECT_NEAR(j.ms, sum(ran_step(3)) / 1e3, 1e-9);
  EXPECT_NEAR(row_of(j, "cublasGemmEx", "64 x 64 x 256").ms, 0.48, 1e-9) << "with the kernel that adds its pieces";
  EXPECT_EQ(row_of(j, "cublasGemmEx", "64 x 64 x 256").ran, "sm90_xmma_gemm_bf16bf16");
  EXPECT_NEAR(row_of(j, "cudnnBackendExecute").ms, 0.21, 1e-9);
  EXPECT_EQ(row_of(j, "add<float>").forecast, 2);
  EXPECT_NEAR(row_of(j, "add<float>").ms, 0.054, 1e-9);
  EXPECT_EQ(j.rows.front().kernel, "cublasGemmEx");
  EXPECT_NEAR(*row_of(j, "FusedAdam<4>").ratio, 40.0 / 240, 1e-9);
}

TEST(KernelsJoined, IsRightWhereCountsDiffer) {
  std::vector<RanKernel> other = ran_step();
  other.erase(other.begin() + 2);                                  // gelu was fused into something
  other.insert(other.begin() + 7, {"isnan<float>", "kernel", 4});  // and something is new
  std::vector<RanKernel> all = program(1);
  all.insert(all.end(), other.begin(), other.end());
  const KernelsJoined j = joined_kernels(step, all);
  // The whole step before it is more like the one that was forecast than the last.
  EXPECT_EQ(j.pairs, 9);
  const KernelsJoined last = joined_kernels(step, other);
  EXPECT_EQ(last.pairs, 8);
  EXPECT_EQ(last.only_forecast, 1);
  EXPECT_EQ(last.only_seen, 1);
  EXPECT_EQ(row_of(last, "gelu<bf16>").seen, 0);
  EXPECT_FALSE(row_of(last, "gelu<bf16>").ratio);
  EXPECT_EQ(row_of(last, "isnan<float>").forecast, 0);
  EXPECT_EQ(row_of(last, "isnan<float>").shape, "not forecast");
  EXPECT_NEAR(row_of(last, "cublasGemmEx", "64 x 64 x 64").ms, 0.09, 1e-9) << "what comes after a difference is joined as before";
  EXPECT_NEAR(row_of(last, "cublasGemmEx", "64 x 64 x 256").ms, 0.16, 1e-9);
  EXPECT_NEAR(last.ms, sum(other) / 1e3, 1e-9);
}

TEST(KernelsJoined, JoinsWhatAnotherStreamGaveInAnotherOrder) {
  std::vector<RanKernel> other = ran_step();
  std::rotate(other.begin() + 8, other.begin() + 9, other.begin() + 11);  // add after the copies
  const KernelsJoined j = joined_kernels(step, other);
  EXPECT_EQ(j.pairs, 9);
  EXPECT_EQ(j.only_seen, 0);
}

TEST(KernelsJoined, JoinsByOrderWhatAnotherVersionNamesOtherwise) {
  std::vector<RanKernel> other = ran_step();
  other[2].kernel = "fast_gelu<bf16>";
  const KernelsJoined j = joined_kernels(step, other);
  EXPECT_EQ(j.pairs, 9);
  EXPECT_EQ(row_of(j, "gelu<bf16>").ran, "fast_gelu<bf16>");
  EXPECT_NEAR(*row_of(j, "gelu<bf16>").ratio, 1, 1e-9);
}

TEST(KernelsJoined, OfNothingAndOfSomethingElseIsNothing) {
  EXPECT_TRUE(joined_kernels({}, {}).rows.empty());
  const KernelsJoined none = joined_kernels(step, {});
  EXPECT_EQ(none.only_forecast, 9);
  EXPECT_EQ(none.ms, 0);
  const KernelsJoined other = joined_kernels(step, {{"something", "kernel", 3}});
  EXPECT_EQ(other.pairs, 0);
  EXPECT_EQ(other.ms, 0) << "no step that is like it";
  EXPECT_EQ(joined_kernels({}, program(1)).pairs, 0);
}

TEST(KernelsJoined, ReadsBothFilesInEitherOrder) {
  const RowObject forecast = RowObject::parse(R"({"launches": [{"kernel": "k", "kind": "matrix products", "shape": "s", "us": 2}]})");
  const RowObject profile = RowObject::parse(
      R"({"timeline": [{"kernel": "gemm", "kind": "kernel", "ms": 0.004, "device": 0}, {"kernel": "gemm", "kind": "kernel", "ms": 1, "device": 1}]})");
  for (const auto& files : {kernels_of(forecast, profile), kernels_of(profile, forecast)}) {
    ASSERT_TRUE(files);
    const KernelsJoined j = joined_kernels(files->forecast, files->ran);
    EXPECT_EQ(j.pairs, 1) << "of the first card alone";
    EXPECT_NEAR(*j.rows.at(0).ratio, 0.5, 1e-9);
  }
  EXPECT_FALSE(kernels_of(forecast, forecast));
  EXPECT_FALSE(kernels_of(RowObject(), profile));
  EXPECT_FALSE(kernels_of(RowObject::parse(R"({"launches": 3})"), profile));
}

}  // namespace kernels_tests
}  // namespace headroom::studies
