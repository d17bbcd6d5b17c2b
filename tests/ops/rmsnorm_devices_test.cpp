#include "ops/rmsnorm/rmsnorm.h"

#include "tests/ops/on_devices.h"

namespace headroom::rmsnorm {
namespace {

using namespace on_card;

struct Tensors {
  std::int64_t rows, width;
  Twin x, weight, y, rstd, dy, dx, dweight;

  Tensors(DType type, std::int64_t r, std::int64_t w, std::int64_t shift = 0, double size = 3)
      : rows(r),
        width(w),
        x(type, {r, w}, shift),
        weight(DType::f32, {w}),
        y(type, {r, w}, shift),
        rstd(DType::f32, {r}),
        dy(type, {r, w}, shift),
        dx(type, {r, w}, shift),
        dweight(DType::f32, {w}) {
    x.normal(1, size);
    weight.normal(2);
    dy.normal(3);
  }
  std::vector<Twin*> all() { return {&x, &weight, &y, &rstd, &dy, &dx, &dweight}; }
};

struct Results {
  std::vector<double> y, rstd, dx, dweight;
  double slope = 0;  // the largest r·w·dy: in a narrow row dx is what is left of it
};

template <class Real>
Results textbook(Tensors& t, DType type, float eps, Gradient into) {
  const auto x = t.x.values(), w = t.weight.values(), dy = t.dy.values();
  Results o{x, std::vector<double>(std::size_t(t.rows)), std::vector<double>(x.size()), std::vector<double>(w.size()), 0};
  if (into == Gradient::accumulate) {
    o.dx = t.dx.values();
    o.dweight = t.dweight.values();
  }
  const auto stored = [&](Real v) { return std::is_same_v<Real, double> ? double(v) : stored_as(type, double(v)); };
  const auto n = std::size_t(t.width);
  for (std::size_t row = 0; row < std::size_t(t.rows); ++row) {
    const auto at = row * n;
    const Real squares = sum_in_lanes<Real>(n, [&](std::size_t i) { return Real(x[at + i]) * Real(x[at + i]); });
    const Real r = 1 / std::sqrt(squares / Real(n) + Real(eps));
    const Real mean = sum_in_lanes<Real>(n, [&](std::size_t i) { return Real(w[i]) * Real(dy[at + i]) * Real(x[at + i]); }) * r / Real(n);
    o.rstd[row] = double(r);
    for (std::size_t i = 0; i < n; ++i) {
      o.slope = std::max(o.slope, std::fabs(double(r) * w[i] * dy[at + i]));
      o.y[at + i] = stored(Real(x[at + i]) * r * Real(w[i]));
      o.dx[at + i] = stored(Real(o.dx[at + i]) + r * (Real(w[i]) * Real(dy[at + i]) - Real(x[at + i]) * r * mean));
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    o.dweight[i] = double(Real(o.dweight[i]) + sum_in_lanes<Real>(std::size_t(t.rows), [&](std::size_t row) {
                            return Real(dy[row * n + i]) * Real(x[row * n + i]) * Real(o.rstd[row]);
                          }));
  return o;
}

class Rmsnorm : public OnDevices {
 protected:
  static void work(Tensors& t, Gradient into, Context& ctx, const On& at) {
    forward({.x = at(t.x), .weight = at(t.weight), .y = at(t.y), .rstd = at(t.rstd)}, ctx);
    backward({.x = at(t.x),
              .weight = at(t.weight),
              .rstd = at(t.rstd),
              .dy = at(t.dy),
              .dx = at(t.dx),
              .dweight = at(t.dweight),
              .into_dx = into,
              .into_dweight = into},
             ctx);
  }
  void check(DType type, std::int64_t rows, std::int64_t width, Gradient into, std::int64_t shift = 0, double size = 3) {
    SCOPED_TRACE(fmt::format("{} rows {} width {} {} shift {} size {}", name_of(type), rows, width, int(into), shift, size));
    Tensors inputs(type, rows, width, shift, size);
    if (into == Gradient::accumulate) {
      inputs.dx.normal(4);
      inputs.dweight.normal(5);
    }
    const Results oracle = textbook<double>(inputs, type, 1e-5f, into);
    Results honest = textbook<float>(inputs, type, 1e-5f, into);
    for (Where where : devices()) {
      Tensors t = inputs;
      run(where, t.all(), [&](Context& ctx, const On& at) { work(t, into, ctx, at); });
      hold("y", t.y, honest.y, oracle.y, type);
      hold("rstd", t.rstd, honest.rstd, oracle.rstd, DType::f32);
      hold("dx", t.dx, honest.dx, oracle.dx, type, oracle.slope);
      hold("dweight", t.dweight, honest.dweight, oracle.dweight, DType::f32);
    }
  }
};
HEADROOM_ON_DEVICES(Rmsnorm);

TEST_P(Rmsnorm, EveryTypeWidthAndMode) {
  for (DType type : float_types)
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
      for (std::int64_t width : {1, 7, 100, 1000, 2560, 4096, 4104, 8192, 12296, 16384})
        for (std::int64_t rows : {0, 1, 5}) check(type, rows, width, into);
}

TEST_P(Rmsnorm, MoreRowsThanParts) {
  for (DType type : float_types)
    for (std::int64_t rows : {64, 65, 512, 513, 1537}) {
      check(type, rows, 72, Gradient::accumulate);
      check(type, rows, 33, Gradient::overwrite);
    }
  check(DType::bf16, 17000, 72, Gradient::accumulate);  // parts of more rows than a warp has lanes
}

TEST_P(Rmsnorm, PointersOffTheSixteenByteBoundary) {
  for (DType type : float_types) {
    check(type, 9, 1280, Gradient::accumulate, 1);
    check(type, 3, 8192, Gradient::overwrite, 3);
  }
}

TEST_P(Rmsnorm, RowsFarAboveAndBelowOne) {
  for (std::int64_t width : {1, 17, 1000})
    for (double size : {1e-20, 1e-4, 1e16}) check(DType::f32, 4, width, Gradient::overwrite, 0, size);
  check(DType::bf16, 4, 1000, Gradient::overwrite, 0, 1e16);
  check(DType::f16, 4, 1000, Gradient::overwrite, 0, 1e4);
}

TEST_P(Rmsnorm, ARowOfZerosGivesZerosAndAGradient) {
  for (Where where : devices()) {
    Tensors t(DType::f32, 1, 50, 0, 0);
    run(where, t.all(), [&](Context& ctx, const On& at) { work(t, Gradient::overwrite, ctx, at); });
    const double r = t.rstd.values()[0];
    EXPECT_NEAR(r, 1 / std::sqrt(1e-5), 1e-4);
    for (double y : t.y.values()) ASSERT_EQ(y, 0);
    for (double d : t.dweight.values()) ASSERT_EQ(d, 0);
    for (std::size_t i = 0; i < 50; ++i) ASSERT_NEAR(t.dx.values()[i], r * t.weight.values()[i] * t.dy.values()[i], 1e-3);
  }
}

TEST_P(Rmsnorm, WithoutYRstdHasTheSameBits) {
  for (DType type : float_types)
    for (std::int64_t width : {1, 100, 2560, 4104, 16384}) {
      Tensors with(type, 5, width), without(type, 5, width);
      run(GetParam(), with.all(), [&](Context& ctx, const On& at) {
        forward({at(with.x), at(with.weight), at(with.y), at(with.rstd)}, ctx);
      });
      run(GetParam(), without.all(), [&](Context& ctx, const On& at) {
        forward({at(without.x), at(without.weight), {}, at(without.rstd)}, ctx);
      });
      EXPECT_TRUE(with.rstd.bytes() == without.rstd.bytes()) << name_of(type) << " " << width;
    }
}

TEST_P(Rmsnorm, ANanStaysInItsRow) {
  for (Where where : devices()) {
    Tensors t(DType::bf16, 3, 40);
    t.x.set(40 + 5, NAN);
    run(where, t.all(), [&](Context& ctx, const On& at) { work(t, Gradient::overwrite, ctx, at); });
    const auto y = t.y.values(), dx = t.dx.values();
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
      ASSERT_EQ(std::isnan(dx[i]), i / 40 == 1) << i;
    }
  }
}

TEST_P(Rmsnorm, OnlyAGpuRefusesRowsThatAreTooWide) {
  for (Where where : devices()) {
    Tensors t(DType::f32, 1, widest_on_gpu + 1);
    const auto ask = [&] {
      scratch_of(device_of(where),
                 [&](Context& ctx) { forward({.x = t.x.here(), .weight = t.weight.here(), .y = t.y.here(), .rstd = t.rstd.here()}, ctx); });
    };
    if (where == Where::gpu)
      EXPECT_THROW(ask(), Error);
    else
      EXPECT_NO_THROW(ask());
  }
  if (GetParam() == Where::cpu) check(DType::bf16, 2, widest_on_gpu + 1, Gradient::overwrite);
}

TEST_P(Rmsnorm, SameBitsEveryTime) {
  Tensors t(DType::bf16, 1500, 1280);
  t.dx.normal(4);
  t.dweight.normal(5);
  expect_same_bits(t.all(), [&](Context& ctx, const On& at) { work(t, Gradient::accumulate, ctx, at); });
}

}  // namespace
}  // namespace headroom::rmsnorm
