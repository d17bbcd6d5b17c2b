#include "ops/rmsnorm/rmsnorm.h"

#include "tests/ops/on_card.h"

namespace headroom::rmsnorm {
namespace {

using namespace on_card;

struct Tensors {
  std::int64_t rows, width;
  Twin x, weight, y, rstd, dy, dx, dweight;

  Tensors(DType type, std::int64_t r, std::int64_t w, std::int64_t shift)
      : rows(r),
        width(w),
        x(type, {r, w}, shift),
        weight(DType::f32, {w}),
        y(type, {r, w}, shift),
        rstd(DType::f32, {r}),
        dy(type, {r, w}, shift),
        dx(type, {r, w}, shift),
        dweight(DType::f32, {w}) {
    x.normal(1, 3), weight.normal(2), dy.normal(3);
  }
};

struct Oracle {
  std::vector<double> y, rstd, dx, dweight;
  double slope = 0;  // the largest r·w·dy: in a narrow row dx is what is left of it
};

Oracle oracle_of(Tensors& t, double eps, const std::vector<double>& dx, const std::vector<double>& dweight) {
  const auto x = t.x.values(), w = t.weight.values(), dy = t.dy.values();
  Oracle o{x, std::vector<double>(std::size_t(t.rows)), dx, dweight, 0};
  const auto n = std::size_t(t.width);
  for (std::size_t row = 0; row < std::size_t(t.rows); ++row) {
    const auto at = row * n;
    double squares = 0, mean = 0;
    for (std::size_t i = 0; i < n; ++i) squares += x[at + i] * x[at + i];
    const double r = o.rstd[row] = 1 / std::sqrt(squares / double(n) + eps);
    for (std::size_t i = 0; i < n; ++i) o.y[at + i] = x[at + i] * r * w[i], mean += w[i] * dy[at + i] * x[at + i] * r / double(n);
    for (std::size_t i = 0; i < n; ++i) {
      o.slope = std::max(o.slope, std::fabs(r * w[i] * dy[at + i]));
      o.dx[at + i] += r * (w[i] * dy[at + i] - x[at + i] * r * mean);
      o.dweight[i] += dy[at + i] * x[at + i] * r;
    }
  }
  return o;
}

class RmsnormGpu : public OnCard {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t width, Gradient into, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} rows {} width {} {} shift {}", name_of(type), rows, width, int(into), shift));
    Tensors cpu(type, rows, width, shift);
    if (into == Gradient::accumulate) cpu.dx.normal(4), cpu.dweight.normal(5);
    const bool adds = into == Gradient::accumulate;
    const Oracle oracle = oracle_of(cpu, 1e-5, adds ? cpu.dx.values() : std::vector<double>(std::size_t(rows * width)),
                                    adds ? cpu.dweight.values() : std::vector<double>(std::size_t(width)));
    Tensors gpu = cpu;
    on_cpu([&](Context& ctx) {
      forward({cpu.x.here(), cpu.weight.here(), cpu.y.here(), cpu.rstd.here()}, ctx);
      backward({cpu.x.here(), cpu.weight.here(), cpu.rstd.here(), cpu.dy.here(), cpu.dx.here(), cpu.dweight.here(), into, into}, ctx);
    });
    up({&gpu.x, &gpu.weight, &gpu.y, &gpu.rstd, &gpu.dy, &gpu.dx, &gpu.dweight});
    on_gpu([&](Context& ctx) {
      forward({gpu.x.there(), gpu.weight.there(), gpu.y.there(), gpu.rstd.there()}, ctx);
      backward({gpu.x.there(), gpu.weight.there(), gpu.rstd.there(), gpu.dy.there(), gpu.dx.there(), gpu.dweight.there(), into, into}, ctx);
    });
    down({&gpu.x, &gpu.weight, &gpu.y, &gpu.rstd, &gpu.dy, &gpu.dx, &gpu.dweight});
    expect_honest("y", gpu.y.values(), cpu.y.values(), oracle.y, type);
    expect_honest("rstd", gpu.rstd.values(), cpu.rstd.values(), oracle.rstd, DType::f32);
    expect_honest("dx", gpu.dx.values(), cpu.dx.values(), oracle.dx, type, oracle.slope);
    expect_honest("dweight", gpu.dweight.values(), cpu.dweight.values(), oracle.dweight, DType::f32);
  }
};

TEST_F(RmsnormGpu, EveryTypeWidthAndMode) {
  for (DType type : float_types)
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
      for (std::int64_t width : {1, 7, 100, 1000, 2560, 4096, 4104, 8192, 12296, 16384})
        for (std::int64_t rows : {0, 1, 5}) check(type, rows, width, into);
}

TEST_F(RmsnormGpu, MoreRowsThanParts) {
  for (DType type : float_types)
    for (std::int64_t rows : {512, 513, 1537}) check(type, rows, 72, Gradient::accumulate), check(type, rows, 33, Gradient::overwrite);
  check(DType::bf16, 17000, 72, Gradient::accumulate);  // parts of more rows than a warp has lanes
}

TEST_F(RmsnormGpu, PointersOffTheSixteenByteBoundary) {
  for (DType type : float_types) check(type, 9, 1280, Gradient::accumulate, 1), check(type, 3, 8192, Gradient::overwrite, 3);
}

TEST_F(RmsnormGpu, RowsTooWideAreRefused) {
  Tensors t(DType::f32, 1, widest_on_gpu + 1, 0);
  EXPECT_THROW(scratch_of(device, [&](Context& ctx) { forward({t.x.here(), t.weight.here(), t.y.here(), t.rstd.here()}, ctx); }), Error);
}

TEST_F(RmsnormGpu, SameBitsEveryTimeAndInAGraph) {
  Tensors t(DType::bf16, 1500, 1280, 0);
  t.dx.normal(4);
  const auto poison = t.y.bytes();
  const auto dx = t.dx.bytes();
  expect_same_bits(
      [&](Context& ctx) {
        forward({t.x.there(), t.weight.there(), t.y.there(), t.rstd.there()}, ctx);
        backward({t.x.there(), t.weight.there(), t.rstd.there(), t.dy.there(), t.dx.there(), t.dweight.there(), Gradient::accumulate}, ctx);
      },
      [&] {
        t.y.bytes() = poison, t.dx.bytes() = dx;
        up({&t.x, &t.weight, &t.y, &t.rstd, &t.dy, &t.dx, &t.dweight});
      },
      {&t.y, &t.rstd, &t.dx, &t.dweight});
}

}  // namespace
}  // namespace headroom::rmsnorm
