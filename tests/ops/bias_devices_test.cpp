#include "ops/bias/bias.h"

#include "tests/ops/on_devices.h"

namespace headroom::bias {
namespace {

using namespace on_card;

class Bias : public OnDevices {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t width, Gradient into, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} rows {} width {} {} shift {}", name_of(type), rows, width, int(into), shift));
    Twin inputs(type, {rows, width}, shift), bias(DType::f32, {width}), dy(type, {rows, width}, shift), before(DType::f32, {width});
    inputs.normal(1);
    bias.normal(2);
    dy.normal(3);
    const bool adds = into == Gradient::accumulate;
    if (adds) before.normal(4);
    const auto n = std::size_t(width);
    const auto b = bias.values(), d = dy.values(), x = inputs.values();
    std::vector<double> sums(x.size()), oracle = adds ? before.values() : std::vector<double>(n), honest = oracle;
    for (std::size_t i = 0; i < x.size(); ++i) sums[i] = stored_as(type, double(float(x[i]) + float(b[i % n])));
    for (std::size_t i = 0; i < n; ++i) {
      const auto term = [&](std::size_t row) { return d[row * n + i]; };
      oracle[i] += sum_in_lanes<double>(std::size_t(rows), term);
      honest[i] = double(float(honest[i]) + sum_in_lanes<float>(std::size_t(rows), term));
    }
    for (Where where : devices()) {
      Twin y = inputs, dbias = before;
      run(where, {&y, &bias, &dy, &dbias}, [&](Context& ctx, const On& at) {
        add(at(y), at(bias), ctx);
        backward(at(dy), at(dbias), into, ctx);
      });
      EXPECT_TRUE(y.values() == sums) << "one sum and one rounding: every device's bits";
      hold("dbias", dbias, honest, oracle, DType::f32);
    }
  }
};
HEADROOM_ON_DEVICES(Bias);

TEST_P(Bias, EveryTypeWidthAndMode) {
  for (DType type : float_types)
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
      for (std::int64_t rows : {0, 1, 5, 64, 65, 1027})
        for (std::int64_t width : {1, 7, 100, 1000}) check(type, rows, width, into);
  for (std::int64_t rows : {5, 1027}) check(DType::bf16, rows, 3840, Gradient::accumulate);
  for (DType type : float_types) check(type, 9, 1280, Gradient::accumulate, 1);
}

TEST_P(Bias, SameBitsEveryTime) {
  Twin dy(DType::bf16, {2000, 384}), dbias(DType::f32, {384});
  dy.normal(1);
  expect_same_bits({&dy, &dbias}, [&](Context& ctx, const On& at) { backward(at(dy), at(dbias), Gradient::overwrite, ctx); });
}

}  // namespace
}  // namespace headroom::bias
