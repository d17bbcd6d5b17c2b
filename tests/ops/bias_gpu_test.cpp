#include "ops/bias/bias.h"

#include "tests/ops/on_card.h"

namespace headroom::bias {
namespace {

using namespace on_card;

class BiasGpu : public OnCard {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t width, Gradient into, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} rows {} width {} {} shift {}", name_of(type), rows, width, int(into), shift));
    Twin y(type, {rows, width}, shift), bias(DType::f32, {width}), dy(type, {rows, width}, shift), dbias(DType::f32, {width});
    y.normal(1), bias.normal(2), dy.normal(3);
    if (into == Gradient::accumulate) dbias.normal(4);
    auto sum = y.values(), gradient = into == Gradient::accumulate ? dbias.values() : std::vector<double>(std::size_t(width));
    const auto b = bias.values(), d = dy.values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i % std::size_t(width)], gradient[i % std::size_t(width)] += d[i];
    Twin gpu_y = y, gpu_dbias = dbias;
    on_cpu([&](Context& ctx) { add(y.here(), bias.here(), ctx), backward(dy.here(), dbias.here(), into, ctx); });
    up({&gpu_y, &bias, &dy, &gpu_dbias});
    on_gpu([&](Context& ctx) { add(gpu_y.there(), bias.there(), ctx), backward(dy.there(), gpu_dbias.there(), into, ctx); });
    down({&gpu_y, &gpu_dbias});
    EXPECT_TRUE(gpu_y.bytes() == y.bytes()) << "one sum and one rounding: the CPU's bits";
    expect_honest("y", gpu_y.values(), y.values(), sum, type);
    expect_honest("dbias", gpu_dbias.values(), dbias.values(), gradient, DType::f32);
  }
};

TEST_F(BiasGpu, EveryTypeWidthAndMode) {
  for (DType type : float_types)
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
      for (std::int64_t width : {1, 7, 100, 1000, 3840})
        for (std::int64_t rows : {0, 1, 5, 1027}) check(type, rows, width, into);
  for (DType type : float_types) check(type, 9, 1280, Gradient::accumulate, 1);
}

TEST_F(BiasGpu, SameBitsEveryTimeAndInAGraph) {
  Twin dy(DType::bf16, {2000, 384}), dbias(DType::f32, {384});
  dy.normal(1);
  expect_same_bits([&](Context& ctx) { backward(dy.there(), dbias.there(), Gradient::overwrite, ctx); },
                   [&] {
                     up({&dy, &dbias});
                   },
                   {&dbias});
}

}  // namespace
}  // namespace headroom::bias
