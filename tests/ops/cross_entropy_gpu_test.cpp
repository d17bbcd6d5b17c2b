#include "ops/cross_entropy/cross_entropy.h"

#include "tests/ops/on_card.h"

namespace headroom::cross_entropy {
namespace {

using namespace on_card;

enum class Place { none, apart, inside };  // of the gradient

class CrossEntropyGpu : public OnCard {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t vocab, Place place, double size = 3, std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} rows {} vocab {} place {} size {} shift {}", name_of(type), rows, vocab, int(place), size, shift));
    Twin logits(DType::f32, {rows, vocab}, shift), targets(DType::i32, {rows}), losses(DType::f32, {rows}), d(type, {rows, vocab}),
        scale(DType::f64, {1});
    logits.normal(1, size);
    *scale.here().as<double>() = 512;
    for (std::int64_t i = 0; i < rows; ++i)
      targets.here().as<std::int32_t>()[i] = std::int32_t(i % 3 == 0 ? 0 : i % 3 == 1 ? vocab - 1 : vocab / 2);
    const float share = 1 / 7.0f;
    const auto x = logits.values();
    std::vector<double> loss, gradient(x.size());
    const auto n = std::size_t(vocab);
    for (std::size_t row = 0; row < std::size_t(rows); ++row) {
      const auto target = std::size_t(targets.here().as<std::int32_t>()[row]);
      double top = -INFINITY, sum = 0;
      for (std::size_t v = 0; v < n; ++v) top = std::max(top, x[row * n + v]);
      for (std::size_t v = 0; v < n; ++v) sum += std::exp(x[row * n + v] - top);
      loss.push_back(std::log(sum) + top - x[row * n + target]);
      for (std::size_t v = 0; v < n; ++v)
        gradient[row * n + v] = double(share) * 512 * (std::exp(x[row * n + v] - top) / sum - (v == target ? 1 : 0));
    }
    const auto rows_of = [&](Twin& l, Twin& t, Twin& o, Twin& g, Twin& s, auto&& of) {
      return Rows{of(l), of(t),
                  of(o), place == Place::none ? Tensor() : place == Place::inside ? gradient_inside(of(l), type) : of(g),
                  share, of(s).template as<double>()};
    };
    Twin gpu_logits = logits, gpu_losses = losses, gpu_d = d;
    on_cpu([&](Context& ctx) { run(rows_of(logits, targets, losses, d, scale, [](Twin& t) { return t.here(); }), ctx); });
    up({&gpu_logits, &targets, &gpu_losses, &gpu_d, &scale});
    on_gpu([&](Context& ctx) { run(rows_of(gpu_logits, targets, gpu_losses, gpu_d, scale, [](Twin& t) { return t.there(); }), ctx); });
    down({&gpu_logits, &targets, &gpu_losses, &gpu_d});
    expect_honest("loss", gpu_losses.values(), losses.values(), loss, DType::f32);
    if (place == Place::none) return;
    const auto values = [&](Twin& apart, Twin& inside) {
      if (place == Place::apart) return apart.values();
      const Tensor view = gradient_inside(inside.here(), type);
      std::vector<double> all;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t v = 0; v < vocab; ++v) all.push_back(load_element(view.data, type, row * view.stride[0] + v));
      return all;
    };
    expect_honest("dlogits", values(gpu_d, gpu_logits), values(d, logits), gradient, type);
  }
};

TEST_F(CrossEntropyGpu, EveryTypeSizeAndPlace) {
  for (DType type : float_types)
    for (Place place : {Place::none, Place::apart, Place::inside})
      for (std::int64_t vocab : {1, 7, 100, 1000, 1001, 10000})
        for (std::int64_t rows : {0, 1, 5}) check(type, rows, vocab, place);
}

TEST_F(CrossEntropyGpu, RowsThatSharedMemoryDoesNotHold) {
  for (DType type : float_types)
    for (Place place : {Place::none, Place::apart, Place::inside})
      for (std::int64_t vocab : {16384, 16388, 49152, 49156, 50257, 53248, 98307, 151936}) check(type, 3, vocab, place);
}

TEST_F(CrossEntropyGpu, LogitsFarAboveAndBelow) {
  for (Place place : {Place::apart, Place::inside})
    for (double size : {1e-3, 300.0, 1e30}) check(DType::f32, 3, 1000, place, size), check(DType::f32, 3, 60001, place, size);
}

TEST_F(CrossEntropyGpu, PointersOffTheSixteenByteBoundary) {
  for (DType type : float_types) check(type, 3, 1024, Place::inside, 3, 1), check(type, 3, 65536, Place::apart, 3, 3);
}

TEST_F(CrossEntropyGpu, WordsThatAreForbiddenHaveNoShare) {
  Twin logits(DType::f32, {1, 1000}), targets(DType::i32, {1}), losses(DType::f32, {1}), d(DType::f32, {1, 1000});
  for (int v = 0; v < 1000; ++v) logits.set(v, v == 3 || v == 900 ? 1.0f : -INFINITY);
  *targets.here().as<std::int32_t>() = 900;
  up({&logits, &targets, &losses, &d});
  on_gpu([&](Context& ctx) { run({logits.there(), targets.there(), losses.there(), d.there()}, ctx); });
  down({&losses, &d});
  EXPECT_NEAR(losses.values()[0], std::log(2.0), 1e-6);
  const auto g = d.values();
  for (std::size_t v = 0; v < g.size(); ++v) EXPECT_NEAR(g[v], v == 3 ? 0.5 : v == 900 ? -0.5 : 0.0, 1e-6) << v;
}

TEST_F(CrossEntropyGpu, LossesAreAddedUpInFp64) {
  for (std::int64_t count : {0, 1, 1000, 100001}) {
    Twin losses(DType::f32, {count}), total(DType::f64, {1});
    losses.normal(1, 10);
    const auto all = losses.values();
    double sum = 0;
    for (double x : all) sum += x;
    *total.here().as<double>() = 5;
    up({&losses, &total});
    on_gpu([&](Context& ctx) {
      add_up(losses.there(), 0.25, true, total.there(), ctx);
      add_up(losses.there(), 0.25, true, total.there(), ctx);
    });
    down({&total});
    EXPECT_NEAR(*total.here().as<double>(), 5 + 0.5 * sum, 1e-12 * (10 * double(count) + 5));
    on_gpu([&](Context& ctx) { add_up(losses.there(), 2, false, total.there(), ctx); });
    down({&total});
    EXPECT_NEAR(*total.here().as<double>(), 2 * sum, 1e-12 * (10 * double(count) + 5));
  }
}

TEST_F(CrossEntropyGpu, SameBitsEveryTimeAndInAGraph) {
  for (std::int64_t vocab : {10000, 60000}) {
    Twin logits(DType::f32, {150, vocab}), targets(DType::i32, {150}), losses(DType::f32, {150}), total(DType::f64, {1});
    logits.normal(1);
    for (int i = 0; i < 150; ++i) targets.here().as<std::int32_t>()[i] = 61 * i;
    const auto before = logits.bytes();
    expect_same_bits(
        [&](Context& ctx) {
          run({logits.there(), targets.there(), losses.there(), gradient_inside(logits.there(), DType::bf16)}, ctx);
          add_up(losses.there(), 1, false, total.there(), ctx);
        },
        [&] {
          logits.bytes() = before, up({&logits, &targets, &losses, &total});
        },
        {&logits, &losses, &total});
  }
}

}  // namespace
}  // namespace headroom::cross_entropy
