// What is quantised as it is made: the bits, scales and counts of two ops one after the other.
#include "ops/quantise/quantise.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/swiglu/swiglu.h"
#include "tests/ops/on_devices.h"

namespace headroom::quantise {
namespace {

using namespace on_card;

struct Copies {
  ScaledFormat format;
  std::int64_t rows, columns;
  Twin as_is{format.dtype, {rows, columns}}, transposed{format.dtype, {columns, rows}};
  Twin as_is_scale{DType::f32, scale_shape(format.scale, rows, columns)},
      transposed_scale{DType::f32, scale_shape(format.scale, columns, rows)};
  Twin counts{DType::i64, {count_size}};

  std::vector<Twin*> all() { return {&as_is, &transposed, &as_is_scale, &transposed_scale, &counts}; }
  void into(Request& r, const On& at) {
    r.as_is = {at(as_is), at(as_is_scale), format.scale}, r.transposed = {at(transposed), at(transposed_scale), format.scale};
    r.counts = at(counts);
  }
  std::vector<float> scales_read() {  // those that pad a row of scales are not
    std::vector<float> all;
    for (const Scaled& s :
         {Scaled(as_is.here(), as_is_scale.here(), format.scale), Scaled(transposed.here(), transposed_scale.here(), format.scale)})
      for (std::int64_t line = 0; line < s.values.shape[0]; ++line)
        for (std::int64_t k = 0; k < s.values.shape[1]; k += scale_block) all.push_back(s.scale_at(line, k));
    return all;
  }
};

class QuantisedAsMade : public OnDevices {
 protected:
  void check(Of of, std::int64_t rows, std::int64_t columns, ScaledFormat format,
             float special) {  // columns: of gate, and of a norm's rows
    SCOPED_TRACE(fmt::format("{} {}x{} {} {} {}", int(of), rows, columns, name_of(format.dtype), name_of(format.scale), special));
    const bool norm = of == Of::rmsnorm;
    const std::int64_t wide = of == Of::swiglu_gradient ? 2 * columns : columns;  // columns of what is made
    Twin x(DType::bf16, {rows, norm ? columns : 2 * columns}), dact(DType::bf16, {rows, columns}), made(DType::bf16, {rows, wide});
    Twin weight(DType::f32, {columns}), rstd(DType::f32, {rows});
    x.normal(1, 2), dact.normal(2, 0.01), weight.normal(3);
    x.set(std::min<std::int64_t>(1000, rows * columns - 1), special);
    Copies two{format, rows, wide}, one{format, rows, wide};
    std::vector<Twin*> all{&x, &dact, &made, &weight, &rstd};
    for (Copies* c : {&two, &one})
      for (Twin* t : c->all()) all.push_back(t);
    run(GetParam(), all, [&](Context& ctx, const On& at) {
      if (norm)
        rmsnorm::forward({at(x), at(weight), at(made), at(rstd)}, ctx);
      else if (of == Of::swiglu)
        swiglu::forward({at(x), at(made)}, ctx);
      else
        swiglu::backward({at(x), at(dact), at(made), {}}, ctx);
      Request stored{.x = at(made)}, as_made{.x = at(x), .of = of};
      if (of == Of::swiglu_gradient) as_made.dact = at(dact);
      if (norm) as_made.weight = at(weight), as_made.rstd = at(rstd);
      two.into(stored, at), one.into(as_made, at);
      quantise(stored, ctx);
      quantise(as_made, ctx);
    });
    EXPECT_TRUE(one.as_is.bytes() == two.as_is.bytes());
    EXPECT_TRUE(one.transposed.bytes() == two.transposed.bytes());
    EXPECT_EQ(one.scales_read(), two.scales_read());
    EXPECT_TRUE(one.counts.bytes() == two.counts.bytes());
    EXPECT_NE(one.as_is.here().as<std::uint8_t>()[0], 0xff) << "nothing was written";
  }
  const Device& here() const { return device_of(GetParam()); }
};
HEADROOM_ON_DEVICES(QuantisedAsMade);

TEST_P(QuantisedAsMade, HasTheBitsOfTwoOps) {
  int served = 0;
  for (const Of of : {Of::swiglu, Of::swiglu_gradient, Of::rmsnorm})
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{272, 384}, {144, 208}, {131, 259}, {1, 5}}) {
      if (!supports(of, rows, of == Of::swiglu_gradient ? 2 * columns : columns, DType::bf16, here())) continue;
      ++served;
      for (const ScaleKind kind : {ScaleKind::one, ScaleKind::row, ScaleKind::run, ScaleKind::block})
        for (const DType to : {DType::e4m3, DType::e5m2})
          for (const float special : {1.0f, INFINITY, NAN}) {
            check(of, rows, columns, {to, kind}, special);
            if (HasFailure()) return;
          }
    }
  EXPECT_EQ(served, GetParam() == Where::cpu ? 4 : 5);
}

TEST_P(QuantisedAsMade, WhatDoesNotFitIsRefused) {
  Twin x(DType::bf16, {32, 64}), weight(DType::f32, {64}), rstd(DType::f32, {32}), narrow(DType::f32, {48});
  Copies copies{{DType::e4m3, ScaleKind::run}, 32, 64};
  const auto refused = [&](Tensor w, Tensor r) {
    Request q{.x = x.here(), .of = Of::rmsnorm, .weight = w, .rstd = r};
    copies.into(q, [](Twin& t) { return t.here(); });
    try {
      scratch_of(here(), [&](Context& ctx) { quantise(q, ctx); });
    } catch (const Error& e) { return std::string(e.what()).find("quantise: weight must be fp32 [64] and rstd fp32 [32]") == 0; }
    return false;
  };
  EXPECT_FALSE(refused(weight.here(), rstd.here()));
  EXPECT_TRUE(refused(narrow.here(), rstd.here()));
  EXPECT_TRUE(refused(weight.here(), narrow.here()));
  EXPECT_TRUE(refused({}, rstd.here()));
  EXPECT_TRUE(refused(weight.here(), {}));
  const Device h200 = device_described("h200");
  EXPECT_NE(supports(Of::rmsnorm, 31, 64, DType::bf16, h200).why.find("rows that 16"), std::string::npos);
  EXPECT_FALSE(supports(Of::rmsnorm, 32, 64, DType::f16, h200));
}

}  // namespace
}  // namespace headroom::quantise
