// flash_sm90_fp8 on a card: against FP64, against its emulation on a CPU, and its 8-bit inputs to the bit.
#include "gpu/device.h"
#include "tests/attention_fp8.h"

namespace headroom::attention {
namespace {

using namespace fp8_cases;

class AttentionFp8Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    device = cuda_device(0);
    if (device.sm != 90) {
      EXPECT_FALSE(variant.supports(fp8_problem(1, 1, 64, 64, 64), device, Pass::forward).ok);
      GTEST_SKIP() << "not a Hopper card";
    }
    place = std::make_unique<Place>(device, 2);
  }
  const Variant& variant = *variant_named("flash_sm90_fp8");
  Device device;
  std::unique_ptr<Place> place;
};

// The bound that fp8.h's emulation is stated with: a weight near the middle of two E4M3 numbers may fall to either side, because 2^x differs by an ulp or
// two, and a score where the unit's sums are not quite as published. All of O together: 1 % of its size. One number: what one such weight moves.
void expect_near_emulation(const Fp8Case& c, const Fp8Result& got, const Fp8Result& emulated) {
  const std::vector<double> a = got.values(), b = emulated.values();
  ASSERT_EQ(a.size(), b.size());
  std::vector<double> apart(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) apart[i] = a[i] - b[i];
  EXPECT_LE(rms_of(apart), 0.01 * rms_of(b)) << in_words(c);
  double largest_v = 0;
  for (std::size_t i = 0; i < got.v8.size(); ++i)
    largest_v = std::max(largest_v, std::abs(double(widen(e4m3{got.v8[i]})) *
                                             double(got.v_scale[i / std::size_t(c.problem.v_shape()[2] * c.problem.v_shape()[3])])));
  Worst one{"o beside the emulation's"};  // neighbours in E4M3 are an eighth apart at most; then bf16
  for (std::size_t i = 0; i < a.size(); ++i) one.see(i, a[i], b[i], 0x1p-3 * largest_v + 0x1p-7 * std::abs(b[i]));
  EXPECT_TRUE(one.fine()) << one.in_words() << ", " << in_words(c);
}

TEST_F(AttentionFp8Gpu, IsWhatRoundingExplainsAndNearItsEmulation) {
  const Device cpu;
  Place here(cpu, 8);
  for (const Fp8Case& c : every_fp8_case({64, 16, 48, 128, 80, 256, 192})) {
    const Fp8Inputs in = inputs_of(c);
    Fp8Result r = run_fp8(c, in, variant, *place, device);
    judge_fp8(c, r);
    const Fp8Result emulated = run_fp8(c, in, *variant_named("flash_fp8"), here, cpu);
    EXPECT_EQ(r.q8, emulated.q8) << in_words(c);
    EXPECT_EQ(r.k8, emulated.k8) << in_words(c);
    EXPECT_EQ(r.v8, emulated.v8) << in_words(c);
    EXPECT_EQ(r.q_scale, emulated.q_scale);
    EXPECT_EQ(r.k_scale, emulated.k_scale);
    EXPECT_EQ(r.v_scale, emulated.v_scale);
    expect_near_emulation(c, r, emulated);
  }
}

TEST_F(AttentionFp8Gpu, LengthsThatNoTileDividesAndManyTiles) {
  for (const std::int64_t dim : {64, 128, 256})
    for (const Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(300)})
      for (const auto& [len_q, len_k] : {std::pair{95, 95}, {96, 97}, {191, 224}, {193, 385}, {700, 300}, {333, 1025}, {517, 517}}) {
        const Fp8Case c{.problem = fp8_problem(4, 2, len_q, len_k, dim, mask, 1)};
        Fp8Result r = run_fp8(c, inputs_of(c), variant, *place, device);
        judge_fp8(c, r);
      }
}

TEST_F(AttentionFp8Gpu, SameBitsEveryRun) {
  const Fp8Case c{.problem = fp8_problem(8, 8, 2000, 2000, 128, Mask::causal())};
  const Fp8Inputs in = inputs_of(c);
  const Fp8Result first = run_fp8(c, in, variant, *place, device), second = run_fp8(c, in, variant, *place, device);
  EXPECT_EQ(first.o, second.o);
  EXPECT_EQ(first.lse, second.lse);
}

// As same_bits_gpu_test.cpp says of 16 bits.
TEST_F(AttentionFp8Gpu, BlocksThatStartWhenAllTilesAreTaken) {
  constexpr std::int64_t len = 2100, row_tiles = ceil_div<std::int64_t>(len, 192);
  const Fp8Case c{.problem = fp8_problem(4 * device.units / row_tiles, 1, len, len, 128, Mask::causal(), 1)};
  const Fp8Inputs in = inputs_of(c);
  const Fp8Result few = run_fp8(c, in, variant, *place, device);
  device.units *= 2;
  const Fp8Result many = run_fp8(c, in, variant, *place, device);
  EXPECT_EQ(few.o, many.o);
  EXPECT_EQ(few.lse, many.lse);
}

TEST_F(AttentionFp8Gpu, NoKeysNoRowsNaNsAndRefusals) {
  for (const auto& [len_q, len_k] : {std::pair{4, 0}, {0, 4}, {0, 0}}) {
    const Fp8Case c{.problem = fp8_problem(2, 1, len_q, len_k, 64)};
    const Fp8Result r = run_fp8(c, inputs_of(c), variant, *place, device);
    for (const double x : r.values()) EXPECT_EQ(x, 0);
    for (const float x : r.lse) EXPECT_EQ(x, -std::numeric_limits<float>::infinity());
  }
  const Fp8Case c{.problem = fp8_problem(1, 1, 300, 300, 64, Mask::causal(), 1)};
  Fp8Inputs in = inputs_of(c);
  in.q[5 * 64 + 2] = std::numeric_limits<float>::quiet_NaN();
  in.q[9 * 64 + 2] = std::numeric_limits<float>::infinity();
  const Fp8Result r = run_fp8(c, in, variant, *place, device);
  const std::vector<double> o = r.values();
  for (std::size_t i = 0; i < o.size(); ++i) EXPECT_EQ(std::isnan(o[i]), i / 64 == 5) << i;
  EXPECT_EQ(variant.supports(fp8_problem(1, 1, 64, 64, 72), device, Pass::forward).why,
            "needs head_dim to be a multiple of 16 (16 bytes), it is 72");
  EXPECT_EQ(variant.supports(fp8_problem(1, 1, 64, 64, 64), device, Pass::backward).why,
            "attention in fp8 has no backward: ask for forward alone (--pass forward)");
  EXPECT_EQ(choose(in_16_bits(fp8_problem(1, 1, 64, 64, 64)), device).name, "flash_sm90") << "bf16 does not become fp8 by itself";
}

}  // namespace
}  // namespace headroom::attention
