#include "ops/head_norm/head_norm.h"

#include "ops/rope/rope.h"
#include "tests/ops/on_devices.h"

namespace headroom::head_norm {
namespace {

using namespace on_card;

struct Tensors {  // the heads are the first of each row of a wider matrix, as q or k are in the product of q, k and v
  std::int64_t batch, len, heads, dim;
  Twin x, y, d, weight, table, dweight;

  Tensors(DType type, std::int64_t b, std::int64_t l, std::int64_t h, std::int64_t n, double size = 2)
      : batch(b),
        len(l),
        heads(h),
        dim(n),
        x(type, {b * l, (h + 1) * n}),
        y(type, {b * l, (h + 1) * n}),
        d(type, {b * l, (h + 1) * n}),
        weight(DType::f32, {n}),
        table(DType::f32, {l, n}),
        dweight(DType::f32, {n}) {
    x.normal(1, size);
    weight.normal(2);
    d.normal(3);
    y.normal(5);
  }
  std::vector<Twin*> all() { return {&x, &y, &d, &weight, &table, &dweight}; }
  Tensor view(Tensor matrix) const {
    const auto row = matrix.stride[0];
    matrix.shape = {batch, len, heads, dim};
    matrix.stride = {len * row, row, dim, 1};
    return matrix;
  }
};

struct Results {
  std::vector<double> y, d, dweight;
};

template <class Real>
Results textbook(Tensors& t, DType type, Gradient into) {
  Results o{t.y.values(), t.d.values(), into == Gradient::accumulate ? t.dweight.values() : std::vector<double>(std::size_t(t.dim))};
  const auto x = t.x.values(), w = t.weight.values(), table = t.table.values();
  const auto stored = [&](Real v) { return std::is_same_v<Real, double> ? double(v) : stored_as(type, double(v)); };
  const auto n = std::size_t(t.dim), half = n / 2, heads = std::size_t(t.heads), all = std::size_t(t.batch * t.len) * heads;
  std::vector<Real> products(all * n);  // terms of the weight's gradient, one for every head
  for (std::size_t head = 0; head < all; ++head) {
    const std::size_t row = head / heads, at = row * (heads + 1) * n + head % heads * n, p = row % std::size_t(t.len) * n;
    const Real squares = sum_in_lanes<Real>(n, [&](std::size_t i) { return Real(x[at + i]) * Real(x[at + i]); });
    const Real r = 1 / std::sqrt(squares / Real(n) + Real(1e-6f));
    std::vector<Real> g(n);
    for (std::size_t i = 0; i < half; ++i) {
      const Real c = Real(table[p + i]), s = Real(table[p + half + i]);
      const Real u = Real(x[at + i]) * r * Real(w[i]), v = Real(x[at + half + i]) * r * Real(w[half + i]);
      o.y[at + i] = stored(u * c - v * s);
      o.y[at + half + i] = stored(v * c + u * s);
      const Real first = Real(o.d[at + i]), second = Real(o.d[at + half + i]);
      g[i] = first * c + second * s;
      g[half + i] = second * c - first * s;
    }
    const Real mean = sum_in_lanes<Real>(n, [&](std::size_t i) { return Real(w[i]) * g[i] * Real(x[at + i]); }) * r / Real(n);
    for (std::size_t i = 0; i < n; ++i) {
      products[head * n + i] = g[i] * Real(x[at + i]) * r;
      o.d[at + i] = stored(r * (Real(w[i]) * g[i] - Real(x[at + i]) * r * mean));
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    Real sum = 0;  // one head after another, as the CPU does within a part
    for (std::size_t head = 0; head < all; ++head) sum += products[head * n + i];
    o.dweight[i] = double(Real(o.dweight[i]) + sum);
  }
  return o;
}

class HeadNorm : public OnDevices {
 protected:
  void check(DType type, std::int64_t batch, std::int64_t len, std::int64_t heads, std::int64_t dim, Gradient into, double size = 2) {
    SCOPED_TRACE(fmt::format("{} batch {} len {} heads {} dim {} {} size {}", name_of(type), batch, len, heads, dim, int(into), size));
    Tensors inputs(type, batch, len, heads, dim, size);
    if (into == Gradient::accumulate) inputs.dweight.normal(4);
    run(Where::cpu, {&inputs.table}, [&](Context& ctx, const On& at) { rope::fill(at(inputs.table), 10000, ctx); });
    const Results oracle = textbook<double>(inputs, type, into);
    Results honest = textbook<float>(inputs, type, into);
    for (Where where : devices()) {
      Tensors t = inputs;
      run(where, t.all(), [&](Context& ctx, const On& at) {
        forward({.x = t.view(at(t.x)), .weight = at(t.weight), .table = at(t.table), .y = t.view(at(t.y))}, ctx);
        backward({.x = t.view(at(t.x)),
                  .weight = at(t.weight),
                  .table = at(t.table),
                  .d = t.view(at(t.d)),
                  .dweight = at(t.dweight),
                  .into_dweight = into},
                 ctx);
      });
      hold("y", t.y, honest.y, oracle.y, type);
      hold("d", t.d, honest.d, oracle.d, type);
      hold("dweight", t.dweight, honest.dweight, oracle.dweight, DType::f32);
    }
  }
};
HEADROOM_ON_DEVICES(HeadNorm);

TEST_P(HeadNorm, EveryTypeAndDimension) {
  for (DType type : float_types)
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
      for (std::int64_t dim : {2, 6, 40, 64, 80, 128, 256}) {
        check(type, 2, 5, 3, dim, into);
        check(type, 1, 1, 1, dim, into);
        check(type, 0, 4, 2, dim, into);
        check(type, 3, 200, 2, dim, into);
      }
}

TEST_P(HeadNorm, HeadsFarAboveAndBelowOne) {
  for (double size : {1e-20, 1e-4, 1e15}) check(DType::f32, 2, 5, 3, 64, Gradient::overwrite, size);
  check(DType::bf16, 2, 5, 3, 64, Gradient::overwrite, 1e15);
  check(DType::f16, 2, 5, 3, 64, Gradient::overwrite, 1e4);
}

TEST_P(HeadNorm, RowsMayHavePositionsOfTheirOwn) {
  constexpr std::int64_t rows = 2 * 9, dim = 40;
  for (Where where : devices())
    for (DType type : float_types) {
      Tensors t(type, 2, 9, 3, dim), other(type, 1, rows, 3, dim);  // the same numbers, as one sequence whose table is in their order
      Twin positions(DType::i32, {rows});
      run(Where::cpu, {&t.table}, [&](Context& ctx, const On& at) { rope::fill(at(t.table), 10000, ctx); });
      for (std::int64_t row = 0; row < rows; ++row) {
        positions.here().as<std::int32_t>()[row] = std::int32_t(row * 7 % 9);
        std::copy_n(t.table.here().as<float>() + row * 7 % 9 * dim, dim, other.table.here().as<float>() + row * dim);
      }
      const auto go = [&](Tensors& of, Twin& where_rows_are) {
        std::vector<Twin*> all = of.all();
        if (where_rows_are) all.push_back(&where_rows_are);
        run(where, all, [&](Context& ctx, const On& at) {
          const Tensor its = where_rows_are ? at(where_rows_are) : Tensor();
          forward({.x = of.view(at(of.x)), .weight = at(of.weight), .table = at(of.table), .y = of.view(at(of.y)), .positions = its}, ctx);
          backward({.x = of.view(at(of.x)),
                    .weight = at(of.weight),
                    .table = at(of.table),
                    .d = of.view(at(of.d)),
                    .dweight = at(of.dweight),
                    .positions = its},
                   ctx);
        });
      };
      Twin none;
      go(t, positions);
      go(other, none);
      EXPECT_TRUE(t.y.bytes() == other.y.bytes() && t.d.bytes() == other.d.bytes() && t.dweight.bytes() == other.dweight.bytes());
    }
}

TEST_P(HeadNorm, SameBitsEveryTime) {
  Tensors t(DType::bf16, 2, 350, 3, 128);
  t.table.normal(6);
  expect_same_bits(t.all(), [&](Context& ctx, const On& at) {
    forward({.x = t.view(at(t.x)), .weight = at(t.weight), .table = at(t.table), .y = t.view(at(t.y))}, ctx);
    backward({.x = t.view(at(t.x)), .weight = at(t.weight), .table = at(t.table), .d = t.view(at(t.d)), .dweight = at(t.dweight)}, ctx);
  });
}

}  // namespace
}  // namespace headroom::head_norm
