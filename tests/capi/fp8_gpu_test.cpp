// Attention in fp8 by the C++ door on a card: held to FP64 on Hopper, refused in words elsewhere.
#include "gpu/device.h"
#include "tests/capi/fp8_door.h"

namespace headroom::capi {
namespace {

using namespace attention::fp8_cases;

TEST(CAttentionFp8OnGpu, IsWhatRoundingExplains) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
  const api::Context context(0, HEADROOM_DEVICE_CUDA);
  if (cuda_device(0).sm != 90) {
    EXPECT_THROW(api::workspace_bytes(context, as_c(fp8_problem(1, 1, 64, 64, 64)), HEADROOM_FORWARD), api::Error);
    GTEST_SKIP() << "not a Hopper card";
  }
  const Device cpu;
  Place place(cpu, 8);
  for (Fp8Case c : every_fp8_case({64, 16, 128, 80, 256})) {
    if (c.from != DType::bf16) continue;
    const Fp8Inputs in = inputs_of(c);
    Fp8Result r = by_door(context, c, in, run_fp8(c, in, *attention::variant_named("flash_fp8"), place, cpu));
    judge_fp8(c, r);  // Q, K and V of 8 bits are the CPU's to the bit: fp8_gpu_test of the op
  }
  for (const auto& [len_q, len_k] : {std::pair{4, 0}, {0, 4}}) {
    const Fp8Case c{.problem = fp8_problem(2, 1, len_q, len_k, 64)};
    const Fp8Inputs in = inputs_of(c);
    const Fp8Result r = by_door(context, c, in, run_fp8(c, in, *attention::variant_named("flash_fp8"), place, cpu));
    for (const double x : r.values()) EXPECT_EQ(x, 0);
    for (const float x : r.lse) EXPECT_EQ(x, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace
}  // namespace headroom::capi
