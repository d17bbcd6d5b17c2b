#include "ops/head_norm/head_norm.h"

#include "ops/rope/rope.h"
#include "tests/ops/on_card.h"

namespace headroom::head_norm {
namespace {

using namespace on_card;

// `heads` of each row of a wider matrix, as q or k lie in q, k and v.
Tensor heads_in(Tensor matrix, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim) {
  const auto row = matrix.stride[0];
  matrix.shape = {batch, len, heads, dim};
  matrix.stride = {len * row, row, dim, 1};
  return matrix;
}

class HeadNormGpu : public OnCard {
 protected:
  void check(DType type, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim, Gradient into) {
    SCOPED_TRACE(fmt::format("{} batch {} len {} heads {} dim {} {}", name_of(type), batch, len, heads, dim, int(into)));
    const std::int64_t rows = batch * len, wide = (heads + 1) * dim;
    Twin x(type, {rows, wide}), y(type, {rows, wide}), d(type, {rows, wide}), weight(DType::f32, {dim}), table(DType::f32, {len, dim}),
        dweight(DType::f32, {dim});
    x.normal(1, 2), weight.normal(2), d.normal(3), y.normal(5);
    if (into == Gradient::accumulate) dweight.normal(4);
    on_cpu([&](Context& ctx) { rope::fill(table.here(), 10000, ctx); });
    auto oy = y.values(), od = d.values(), ow = into == Gradient::accumulate ? dweight.values() : std::vector<double>(std::size_t(dim));
    const auto vx = x.values(), w = weight.values(), t = table.values();
    const auto n = std::size_t(dim), half = n / 2;
    for (std::size_t row = 0; row < std::size_t(rows); ++row)
      for (std::size_t h = 0; h < std::size_t(heads); ++h) {
        const std::size_t at = row * std::size_t(wide) + h * n, p = row % std::size_t(len) * n;
        double squares = 0, mean = 0;
        for (std::size_t i = 0; i < n; ++i) squares += vx[at + i] * vx[at + i];
        const double r = 1 / std::sqrt(squares / double(n) + 1e-6);
        std::vector<double> g(n);
        for (std::size_t i = 0; i < half; ++i) {
          const double c = t[p + i], s = t[p + half + i], u = vx[at + i] * r * w[i], v = vx[at + half + i] * r * w[half + i];
          oy[at + i] = u * c - v * s, oy[at + half + i] = v * c + u * s;
          g[i] = od[at + i] * c + od[at + half + i] * s, g[half + i] = od[at + half + i] * c - od[at + i] * s;
        }
        for (std::size_t i = 0; i < n; ++i) mean += w[i] * g[i] * vx[at + i] * r / double(n);
        for (std::size_t i = 0; i < n; ++i) ow[i] += g[i] * vx[at + i] * r, od[at + i] = r * (w[i] * g[i] - vx[at + i] * r * mean);
      }
    const auto view = [&](const Tensor& m) { return heads_in(m, batch, len, heads, dim); };
    Twin gpu_y = y, gpu_d = d, gpu_dweight = dweight;
    on_cpu([&](Context& ctx) {
      forward({view(x.here()), weight.here(), table.here(), view(y.here())}, ctx);
      backward({view(x.here()), weight.here(), table.here(), view(d.here()), dweight.here(), into}, ctx);
    });
    up({&x, &weight, &table, &gpu_y, &gpu_d, &gpu_dweight});
    on_gpu([&](Context& ctx) {
      forward({view(x.there()), weight.there(), table.there(), view(gpu_y.there())}, ctx);
      backward({view(x.there()), weight.there(), table.there(), view(gpu_d.there()), gpu_dweight.there(), into}, ctx);
    });
    down({&gpu_y, &gpu_d, &gpu_dweight});
    expect_honest("y", gpu_y.values(), y.values(), oy, type);
    expect_honest("d", gpu_d.values(), d.values(), od, type);
    expect_honest("dweight", gpu_dweight.values(), dweight.values(), ow, DType::f32);
  }
};

TEST_F(HeadNormGpu, EveryTypeAndDimension) {
  for (DType type : float_types)
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
      for (std::int64_t dim : {2, 6, 40, 64, 80, 128, 256}) {
        check(type, 2, 5, 3, dim, into);
        check(type, 1, 1, 1, dim, into);
        check(type, 0, 4, 2, dim, into);
        check(type, 3, 200, 2, dim, into);
      }
}

TEST_F(HeadNormGpu, SameBitsEveryTimeAndInAGraph) {
  Twin x(DType::bf16, {700, 512}), d(DType::bf16, {700, 512}), weight(DType::f32, {128}), table(DType::f32, {350, 128}),
      dweight(DType::f32, {128});
  x.normal(1), d.normal(2), weight.normal(3), table.normal(4);
  const auto before = d.bytes();
  expect_same_bits(
      [&](Context& ctx) {
        backward({heads_in(x.there(), 2, 350, 4, 128), weight.there(), table.there(), heads_in(d.there(), 2, 350, 4, 128), dweight.there()},
                 ctx);
      },
      [&] {
        d.bytes() = before, up({&x, &d, &weight, &table, &dweight});
      },
      {&d, &dweight});
}

}  // namespace
}  // namespace headroom::head_norm
