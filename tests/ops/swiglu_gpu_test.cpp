#include "ops/swiglu/swiglu.h"

#include "tests/ops/on_card.h"

namespace headroom::swiglu {
namespace {

using namespace on_card;

class SwigluGpu : public OnCard {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t width, bool in_place, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} rows {} width {} in place {} shift {}", name_of(type), rows, width, in_place, shift));
    Twin gate_up(type, {rows, 2 * width}, shift), act(type, {rows, width}), dact(type, {rows, width}), dgate_up(type, {rows, 2 * width});
    gate_up.normal(1, 4), dact.normal(2);
    const auto n = std::size_t(width);
    const auto x = gate_up.values(), dy = dact.values();
    std::vector<double> y(dy.size()), dx(x.size());
    for (std::size_t row = 0; row < std::size_t(rows); ++row)
      for (std::size_t i = 0; i < n; ++i) {
        const double g = x[2 * row * n + i], u = x[(2 * row + 1) * n + i], s = 1 / (1 + std::exp(-g)), d = dy[row * n + i];
        y[row * n + i] = g * s * u;
        dx[2 * row * n + i] = d * u * s * (1 + g * (1 - s)), dx[(2 * row + 1) * n + i] = d * g * s;
      }
    Twin gpu_gate_up = gate_up, gpu_act = act, gpu_dgate_up = dgate_up;
    on_cpu([&](Context& ctx) {
      forward({gate_up.here(), act.here()}, ctx);
      backward({gate_up.here(), dact.here(), dgate_up.here()}, ctx);
    });
    up({&gpu_gate_up, &gpu_act, &dact, &gpu_dgate_up});
    Twin& out = in_place ? gpu_gate_up : gpu_dgate_up;
    on_gpu([&](Context& ctx) {
      forward({gpu_gate_up.there(), gpu_act.there()}, ctx);
      backward({gpu_gate_up.there(), dact.there(), out.there()}, ctx);
    });
    down({&gpu_gate_up, &gpu_act, &dact, &gpu_dgate_up});
    expect_honest("act", gpu_act.values(), act.values(), y, type);
    expect_honest("dgate_up", out.values(), dgate_up.values(), dx, type);
  }
};

TEST_F(SwigluGpu, EveryTypeAndWidth) {
  for (DType type : float_types)
    for (bool in_place : {false, true})
      for (std::int64_t width : {1, 7, 100, 1000, 4096, 4104, 10240})
        for (std::int64_t rows : {0, 1, 5}) check(type, rows, width, in_place);
}

TEST_F(SwigluGpu, PointersOffTheSixteenByteBoundary) {
  for (DType type : float_types) check(type, 3, 1024, true, 1);
}

TEST_F(SwigluGpu, FarGatesAreOpenOrShut) {
  Twin gate_up(DType::f32, {1, 8}), act(DType::f32, {1, 4});
  for (int i = 0; i < 4; ++i) gate_up.set(i, i % 2 ? 300.0f : -300.0f), gate_up.set(4 + i, 2.0f);
  up({&gate_up, &act});
  on_gpu([&](Context& ctx) { forward({gate_up.there(), act.there()}, ctx); });
  down({&act});
  EXPECT_EQ(act.values(), (std::vector<double>{0, 600, 0, 600}));
}

TEST_F(SwigluGpu, SameBitsEveryTimeAndInAGraph) {
  Twin gate_up(DType::bf16, {130, 2560}), act(DType::bf16, {130, 1280});
  gate_up.normal(1);
  const auto before = gate_up.bytes();
  expect_same_bits(
      [&](Context& ctx) {
        forward({gate_up.there(), act.there()}, ctx);
        backward({gate_up.there(), act.there(), gate_up.there()}, ctx);
      },
      [&] {
        gate_up.bytes() = before, up({&gate_up, &act});
      },
      {&act, &gate_up});
}

}  // namespace
}  // namespace headroom::swiglu
