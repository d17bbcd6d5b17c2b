#include "ops/quantise/quantise.h"
#include "tests/ops/on_devices.h"

namespace headroom::quantise {
namespace {

using namespace on_card;

class Dequantise : public OnDevices {
 protected:
  void check(DType stored, ScaleKind kind, DType type, std::int64_t rows, std::int64_t columns, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} by {} to {}, {} x {}, shift {}", name_of(stored), name_of(kind), name_of(type), rows, columns, shift));
    Twin codes(stored, {rows, columns}, shift), scale(DType::f32, scale_shape(kind, rows, columns)), x(type, {rows, columns}, shift);
    const Random random{11};
    for (std::int64_t i = 0; i < rows * columns; ++i)
      codes.here().as<std::uint8_t>()[i] = std::uint8_t(random.below(std::uint64_t(i), 256));
    for (std::int64_t i = 0; i < scale.here().count(); ++i) scale.set(i, float(0.5 + random.stream(1).uniform(std::uint64_t(i))));
    const Scaled here(codes.here(), scale.here(), kind);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::uint8_t code = codes.here().as<std::uint8_t>()[i];
      const float value = stored == DType::e4m3 ? widen(e4m3{code}) : widen(e5m2{code});
      expected.push_back(stored_as(type, double(value * here.scale_at(i / columns, i % columns))));
    }
    for (const Where where : devices()) {
      Twin got = x;
      run(where, {&codes, &scale, &got}, [&](Context& ctx, const On& at) { dequantise({at(codes), at(scale), kind}, at(got), ctx); });
      const auto values = got.values();
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_TRUE(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])))
            << i << " " << values[i] << " " << expected[i];
    }
  }
};
HEADROOM_ON_DEVICES(Dequantise);

TEST_P(Dequantise, EveryCodeKindTypeAndEdge) {
  for (const DType stored : {DType::e4m3, DType::e5m2})
    for (const ScaleKind kind : {ScaleKind::one, ScaleKind::row, ScaleKind::run, ScaleKind::block})
      for (const DType type : float_types)
        for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 16}, {130, 272}, {7, 150}, {257, 128}})
          check(stored, kind, type, rows, columns);
  check(DType::e4m3, ScaleKind::run, DType::bf16, 5, 64, 3);
}

TEST_P(Dequantise, IsWhatQuantiseStored) {
  Twin x(DType::bf16, {200, 304}), codes(DType::e4m3, {200, 304}), scale(DType::f32, scale_shape(ScaleKind::run, 200, 304)),
      back(DType::bf16, {200, 304});
  x.normal(1);
  for (const Where where : devices()) {
    run(where, {&x, &codes, &scale, &back}, [&](Context& ctx, const On& at) {
      const Scaled y(at(codes), at(scale), ScaleKind::run);
      quantise({.x = at(x), .as_is = y}, ctx);
      dequantise(y, at(back), ctx);
    });
    const auto should = x.values(), got = back.values();
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], should[i], 0x1.1p-4 * std::fabs(should[i]) + 0x1p-8) << i;
  }
}

TEST_P(Dequantise, WhatDoesNotFitIsRefused) {
  Arena dry;
  Context ctx{dry, GetParam() == Where::gpu ? device : cpu};
  const Scaled y(Tensor(nullptr, DType::e4m3, {4, 256}), Tensor(nullptr, DType::f32, scale_shape(ScaleKind::run, 4, 256)), ScaleKind::run);
  dequantise(y, Tensor(nullptr, DType::bf16, {4, 256}), ctx);
  EXPECT_THROW(dequantise(y, Tensor(nullptr, DType::bf16, {4, 255}), ctx), Error);
  EXPECT_THROW(dequantise(y, Tensor(nullptr, DType::e4m3, {4, 256}), ctx), Error);
  EXPECT_THROW(dequantise({y.values, y.scale, ScaleKind::row}, Tensor(nullptr, DType::bf16, {4, 256}), ctx), Error);
}

}  // namespace
}  // namespace headroom::quantise
