#include "ops/swiglu/swiglu.h"

#include "tests/ops/on_devices.h"

namespace headroom::swiglu {
namespace {

using namespace on_card;

enum class Place : std::uint8_t { apart, inside };  // where backward writes: into tensors of its own, or over its inputs
enum class Again : std::uint8_t { no, yes };        // whether backward writes act once more

struct Results {
  std::vector<double> act, dgate_up;
};

template <class Real>
Results textbook(Twin& gate_up, Twin& dact, DType type, std::size_t rows, std::size_t n) {
  const auto x = gate_up.values(), dy = dact.values();
  const auto stored = [&](Real v) { return std::is_same_v<Real, double> ? double(v) : stored_as(type, double(v)); };
  Results o{std::vector<double>(dy.size()), std::vector<double>(x.size())};
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < n; ++i) {
      const auto at_gate = 2 * row * n + i, at_up = at_gate + n;
      const Real g = Real(x[at_gate]), u = Real(x[at_up]), s = 1 / (1 + std::exp(-g)), d = Real(dy[row * n + i]);
      o.act[row * n + i] = stored(g * s * u);
      o.dgate_up[at_gate] = stored(d * u * s * (1 + g * (1 - s)));
      o.dgate_up[at_up] = stored(d * g * s);
    }
  return o;
}

class Swiglu : public OnDevices {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t width, Place place, Again again = Again::no, std::int64_t shift = 0,
             double size = 4) {
    SCOPED_TRACE(fmt::format("{} rows {} width {} inside {} again {} shift {} size {}", name_of(type), rows, width, int(place), int(again),
                             shift, size));
    Twin inputs(type, {rows, 2 * width}, shift), gradient(type, {rows, width});
    inputs.normal(1, size);
    gradient.normal(2);
    const auto oracle = textbook<double>(inputs, gradient, type, std::size_t(rows), std::size_t(width));
    Results honest = textbook<float>(inputs, gradient, type, std::size_t(rows), std::size_t(width));
    for (Where where : devices()) {
      Twin gate_up = inputs, dact = gradient, act(type, {rows, width}), act_again(type, {rows, width}), dgate_up(type, {rows, 2 * width});
      Twin& out = place == Place::inside ? gate_up : dgate_up;
      Twin& second = place == Place::inside ? dact : act_again;
      run(where, {&gate_up, &dact, &act, &act_again, &dgate_up}, [&](Context& ctx, const On& at) {
        forward({.gate_up = at(gate_up), .act = at(act)}, ctx);
        backward({.gate_up = at(gate_up), .dact = at(dact), .dgate_up = at(out), .act = again == Again::yes ? at(second) : Tensor()}, ctx);
      });
      Results before = honest;
      hold("act", act, honest.act, oracle.act, type);
      hold("dgate_up", out, honest.dgate_up, oracle.dgate_up, type);
      if (again == Again::yes) hold("act again", second, before.act, oracle.act, type);
    }
  }
};
HEADROOM_ON_DEVICES(Swiglu);

TEST_P(Swiglu, EveryTypeAndWidth) {
  for (DType type : float_types)
    for (Place place : {Place::apart, Place::inside})
      for (Again again : {Again::no, Again::yes})
        for (std::int64_t width : {1, 7, 100, 1000, 4096, 4104, 10240})
          for (std::int64_t rows : {0, 1, 5}) check(type, rows, width, place, again);
}

TEST_P(Swiglu, PointersOffTheSixteenByteBoundary) {
  for (DType type : float_types) check(type, 3, 1024, Place::inside, Again::no, 1);
}

TEST_P(Swiglu, SmallGates) {
  for (double size : {1e-6, 1e-3, 0.1}) check(DType::f32, 3, 1000, Place::apart, Again::yes, 0, size);
}

TEST_P(Swiglu, FarGatesAreOpenOrShut) {
  for (Where where : devices()) {
    Twin gate_up(DType::f32, {1, 8}), act(DType::f32, {1, 4}), dact(DType::f32, {1, 4}), dgate_up(DType::f32, {1, 8});
    const float gates[] = {-300, 300, -1e30f, 88};
    for (int i = 0; i < 4; ++i) {
      gate_up.set(i, gates[i]);
      gate_up.set(4 + i, 2);
      dact.set(i, 3);
    }
    run(where, {&gate_up, &act, &dact, &dgate_up}, [&](Context& ctx, const On& at) {
      forward({.gate_up = at(gate_up), .act = at(act)}, ctx);
      backward({.gate_up = at(gate_up), .dact = at(dact), .dgate_up = at(dgate_up)}, ctx);
    });
    EXPECT_EQ(act.values(), (std::vector<double>{0, 600, 0, 176}));
    EXPECT_EQ(dgate_up.values(), (std::vector<double>{0, 6, 0, 6, 0, 900, 0, 264}));
  }
}

TEST_P(Swiglu, SameBitsEveryTime) {
  Twin gate_up(DType::bf16, {130, 2560}), act(DType::bf16, {130, 1280});
  gate_up.normal(1);
  expect_same_bits({&gate_up, &act}, [&](Context& ctx, const On& at) {
    forward({.gate_up = at(gate_up), .act = at(act)}, ctx);
    backward({.gate_up = at(gate_up), .dact = at(act), .dgate_up = at(gate_up)}, ctx);
  });
}

}  // namespace
}  // namespace headroom::swiglu
