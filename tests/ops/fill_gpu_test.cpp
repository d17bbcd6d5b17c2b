#include "ops/fill/fill.h"

#include "ops/copy/copy.h"
#include "tests/ops/on_card.h"

namespace headroom {
namespace {

using namespace on_card;

class FillGpu : public OnCard {};
class CopyGpu : public OnCard {};

TEST_F(FillGpu, NormalNumbersHaveTheCpusBits) {
  for (std::int64_t count : {0, 1, 77, 5000011}) {
    Twin cpu(DType::f32, {count}), gpu(DType::f32, {count});
    const Random random = Random{11}.stream(3);
    gpu.up(*stream);
    on_cpu([&](Context& ctx) { fill::normal(cpu.here(), random, 0.25, 0.02, ctx); });
    on_gpu([&](Context& ctx) { fill::normal(gpu.there(), random, 0.25, 0.02, ctx); });
    down({&gpu});
    EXPECT_TRUE(cpu.bytes() == gpu.bytes()) << count;
  }
}

TEST_F(FillGpu, Constants) {
  Twin gpu(DType::f32, {1001});
  gpu.up(*stream);
  on_gpu([&](Context& ctx) { fill::constant(gpu.there(), 0.1, ctx); });
  down({&gpu});
  for (double x : gpu.values()) ASSERT_EQ(x, double(0.1f));
}

TEST_F(CopyGpu, EveryPairOfTypesRoundsAsTheCpuDoes) {
  for (DType from : float_types)
    for (DType to : float_types)
      for (std::int64_t count : {0, 1, 8, 1001, 40000}) {
        Twin source(from, {count}), cpu(to, {count}), gpu(to, {count});
        source.normal(1, 1e-3);
        for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 6); ++i)  // limits: overflow, subnormals, infinities, ties
          source.set(i, std::array{65519.0f, 65520.0f, -1e-7f, INFINITY, 1.00390625f, -0.0f}[std::size_t(i)]);
        on_cpu([&](Context& ctx) { copy::copy(source.here(), cpu.here(), ctx); });
        source.up(*stream), gpu.up(*stream);
        on_gpu([&](Context& ctx) { copy::copy(source.there(), gpu.there(), ctx); });
        down({&gpu});
        EXPECT_TRUE(cpu.bytes() == gpu.bytes()) << name_of(from) << " to " << name_of(to) << " " << count;
      }
}

}  // namespace
}  // namespace headroom
