#include "ops/cross_entropy/cross_entropy.h"

#include "tests/ops/on_devices.h"

namespace headroom::cross_entropy {
namespace {

using namespace on_card;

enum class Place : std::uint8_t {
  none,
  apart,
  inside
};  // where the gradient goes: not asked for, in its own tensor, in the logits' memory

constexpr float row_share = 1 / 7.0f;

struct Tensors {
  DType type;  // the gradient's
  Place place;
  Twin logits, targets, losses, dlogits, loss_scale;

  Tensors(DType t, Place p, std::int64_t rows, std::int64_t vocab, double size = 3, std::int64_t shift = 0, DType of_logits = DType::f32)
      : type(t),
        place(p),
        logits(of_logits, {rows, vocab}, shift),
        targets(DType::i32, {rows}),
        losses(DType::f32, {rows}),
        dlogits(t, {rows, vocab}),
        loss_scale(DType::f64, {1}) {
    logits.normal(1, size);
    *loss_scale.here().as<double>() = 512;
    for (std::int64_t i = 0; i < rows; ++i)
      targets.here().as<std::int32_t>()[i] = std::int32_t(i % 3 == 0 ? 0 : i % 3 == 1 ? vocab - 1 : vocab / 2);
  }
  std::vector<Twin*> all() { return {&logits, &targets, &losses, &dlogits, &loss_scale}; }
  Rows rows(const On& at) {
    Rows r{.logits = at(logits), .targets = at(targets), .losses = at(losses), .dlogits = {}, .scale = row_share};
    if (place == Place::apart) r.dlogits = at(dlogits);
    if (place == Place::inside) r.dlogits = gradient_inside(at(logits), type);
    r.loss_scale = at(loss_scale).as<double>();
    return r;
  }
  std::vector<double> gradient() {
    if (place == Place::apart) return dlogits.values();
    const Tensor view = gradient_inside(logits.here(), type);
    std::vector<double> out;
    for (std::int64_t row = 0; row < view.shape[0]; ++row)
      for (std::int64_t v = 0; v < view.shape[1]; ++v) out.push_back(load_element(view.data, type, row * view.stride[0] + v));
    return out;
  }
};

struct Results {
  std::vector<double> losses, gradient;
};

template <class Real>
Results textbook(Tensors& t) {
  const auto x = t.logits.values();
  Results o{{}, std::vector<double>(x.size())};
  const auto stored = [&](Real v) { return std::is_same_v<Real, double> ? double(v) : stored_as(t.type, double(v)); };
  const auto rows = std::size_t(t.targets.here().count()), n = std::size_t(t.logits.here().shape[1]);
  const Real scale = Real(row_share) * Real(512);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto target = std::size_t(t.targets.here().as<std::int32_t>()[row]);
    Real top = -std::numeric_limits<Real>::infinity();
    for (std::size_t v = 0; v < n; ++v) top = std::max(top, Real(x[row * n + v]));
    const auto power = [&](std::size_t v) { return std::exp(Real(x[row * n + v]) - top); };
    const Real sum = sum_in_lanes<Real>(n, power);
    o.losses.push_back(double(std::log(sum) + (top - Real(x[row * n + target]))));
    for (std::size_t v = 0; v < n; ++v) o.gradient[row * n + v] = stored(scale * power(v) / sum - (v == target ? scale : 0));
  }
  return o;
}

class CrossEntropy : public OnDevices {
 protected:
  void check(DType type, std::int64_t rows, std::int64_t vocab, Place place, double size = 3, std::int64_t shift = 0,
             DType of_logits = DType::f32) {
    SCOPED_TRACE(fmt::format("{} rows {} vocab {} place {} size {} shift {} logits {}", name_of(type), rows, vocab, int(place), size, shift,
                             name_of(of_logits)));
    Tensors inputs(type, place, rows, vocab, size, shift, of_logits);
    const Results oracle = textbook<double>(inputs);
    Results honest = textbook<float>(inputs);
    for (Where where : devices()) {
      Tensors t = inputs;
      run(where, t.all(), [&](Context& ctx, const On& at) { cross_entropy::run(t.rows(at), ctx); });
      hold("loss", t.losses, honest.losses, oracle.losses, DType::f32);
      if (place == Place::none) continue;
      const auto gradient = t.gradient();
      expect_honest("dlogits", gradient, honest.gradient, oracle.gradient, type);
      honest.gradient = gradient;
    }
  }
};
HEADROOM_ON_DEVICES(CrossEntropy);

TEST_P(CrossEntropy, EveryTypeSizeAndPlace) {
  for (DType type : float_types)
    for (Place place : {Place::none, Place::apart, Place::inside})
      for (std::int64_t vocab : {1, 7, 100, 255, 256, 257, 1000, 1001, 10000})
        for (std::int64_t rows : {0, 1, 5}) check(type, rows, vocab, place);
}

TEST_P(CrossEntropy, RowsThatSharedMemoryDoesNotHold) {
  for (DType type : float_types)
    for (Place place : {Place::none, Place::apart, Place::inside})
      for (std::int64_t vocab : {16384, 16388, 49152, 49156, 50257, 53248, 98307, 151936}) check(type, 3, vocab, place);
}

TEST_P(CrossEntropy, LogitsInSixteenBits) {
  for (DType type : {DType::bf16, DType::f16})
    for (Place place : {Place::none, Place::apart, Place::inside}) {
      for (std::int64_t vocab : {1, 7, 255, 256, 257, 1000, 1001, 10000, 16384, 16392, 50257, 50304, 98312, 151936})
        check(type, 5, vocab, place, 3, 0, type);
      for (double size : {0.01, 80.0}) check(type, 5, 5003, place, size, 0, type);
    }
}

TEST_P(CrossEntropy, AGradientLargerThanTheLogitsHasNoPlaceInsideThem) {
  Twin logits(DType::bf16, {2, 8});
  EXPECT_THROW((void)gradient_inside(logits.here(), DType::f32), Error);
}

TEST_P(CrossEntropy, LogitsFarAboveAndBelow) {
  for (Place place : {Place::apart, Place::inside})
    for (double size : {1e-3, 300.0, 1e30}) {
      check(DType::f32, 3, 1000, place, size);
      check(DType::f32, 3, 60001, place, size);
    }
}

TEST_P(CrossEntropy, PointersOffTheSixteenByteBoundary) {
  for (DType type : float_types) {
    check(type, 3, 1024, Place::inside, 3, 1);
    check(type, 3, 65536, Place::apart, 3, 3);
  }
}

TEST_P(CrossEntropy, AVocabularyOfOneWordHasNoLossAndNoGradient) {
  for (Where where : devices())
    for (Place place : {Place::none, Place::apart, Place::inside}) {
      Tensors t(DType::f32, place, 4, 1, 1e30);
      run(where, t.all(), [&](Context& ctx, const On& at) { cross_entropy::run(t.rows(at), ctx); });
      EXPECT_EQ(t.losses.values(), std::vector<double>(4));
      if (place == Place::none) continue;
      EXPECT_EQ(t.gradient(), std::vector<double>(4));
    }
}

TEST_P(CrossEntropy, WordsThatAreForbiddenHaveNoShare) {
  for (Where where : devices())
    for (Place place : {Place::none, Place::apart}) {
      Tensors t(DType::f32, place, 1, 1000);
      for (int v = 0; v < 1000; ++v) t.logits.set(v, v == 3 || v == 900 ? 1.0f : -INFINITY);
      *t.targets.here().as<std::int32_t>() = 900;
      run(where, t.all(), [&](Context& ctx, const On& at) {
        Rows rows = t.rows(at);
        rows.scale = 1;
        rows.loss_scale = nullptr;
        cross_entropy::run(rows, ctx);
      });
      EXPECT_NEAR(t.losses.values()[0], std::log(2.0), 1e-6);
      if (place == Place::none) continue;
      const auto g = t.gradient();
      for (std::size_t v = 0; v < g.size(); ++v) ASSERT_NEAR(g[v], v == 3 ? 0.5 : v == 900 ? -0.5 : 0.0, 1e-6) << v;
    }
}

TEST_P(CrossEntropy, ACertainAnswerCostsNothingAndAWrongOneItsDistance) {
  for (Where where : devices()) {
    Tensors t(DType::f32, Place::apart, 2, 1000);
    for (int v = 0; v < 2000; ++v) t.logits.set(v, v % 1000 == 7 ? 1e4f : -1e4f);
    t.targets.here().as<std::int32_t>()[0] = 7;
    t.targets.here().as<std::int32_t>()[1] = 8;
    run(where, t.all(), [&](Context& ctx, const On& at) { cross_entropy::run(t.rows(at), ctx); });
    EXPECT_EQ(t.losses.values(), (std::vector<double>{0, 2e4}));
    const auto g = t.gradient();
    const double scale = double(row_share) * 512;
    for (std::size_t v = 0; v < g.size(); ++v) ASSERT_NEAR(g[v], v == 1007 ? scale : v == 1008 ? -scale : 0.0, 1e-4) << v;
  }
}

// The other rows have the bits that they have alone, and what scale is divided by may be known only on the device.
TEST_P(CrossEntropy, RowsWithoutATargetHaveNoLossAndNoGradient) {
  for (Where where : devices())
    for (DType of_logits : float_types)
      for (Place place : {Place::none, Place::apart, Place::inside})
        for (std::int64_t vocab : {7, 1000, 5000, 9000, 16000, 60000}) {
          SCOPED_TRACE(fmt::format("{} vocab {} place {}", name_of(of_logits), vocab, int(place)));
          Tensors all(of_logits, place, 5, vocab, 3, 0, of_logits), some = all;
          Twin over(DType::f64, {1});
          *over.here().as<double>() = 4;
          const auto go = [&](Tensors& t, bool divided) {
            std::vector<Twin*> twins = t.all();
            twins.push_back(&over);
            run(where, twins, [&](Context& ctx, const On& at) {
              Rows rows = t.rows(at);
              rows.scale = divided ? 1 : 0.25f;
              if (divided) rows.over = at(over).as<double>();
              cross_entropy::run(rows, ctx);
            });
          };
          for (int row : {1, 4}) some.targets.here().as<std::int32_t>()[row] = -1;
          some.logits.set(vocab + 3, NAN), some.logits.set(5 * vocab - 1, INFINITY);  // no row that is asked about
          go(all, false);
          go(some, true);
          auto losses = all.losses.values();
          losses[1] = losses[4] = 0;
          EXPECT_EQ(some.losses.values(), losses);
          if (place == Place::none) continue;
          auto gradient = all.gradient();
          for (std::size_t row : {1, 4}) std::fill_n(gradient.begin() + std::ptrdiff_t(row) * vocab, vocab, 0.0);
          EXPECT_TRUE(some.gradient() == gradient);
        }
}

TEST_P(CrossEntropy, LossesAreAddedUpInFp64) {
  for (Where where : devices())
    for (std::int64_t count : {0, 1, 1000, 100001}) {
      Twin losses(DType::f32, {count}), total(DType::f64, {1}), over(DType::f64, {1});
      *over.here().as<double>() = 4;
      losses.normal(1, 10);
      double sum = 0;
      for (double x : losses.values()) sum += x;
      *total.here().as<double>() = 5;
      run(where, {&losses, &total}, [&](Context& ctx, const On& at) {
        add_up(at(losses), 0.25, true, at(total), ctx);
        add_up(at(losses), 0.25, true, at(total), ctx);
      });
      EXPECT_NEAR(*total.here().as<double>(), 5 + 0.5 * sum, 1e-12 * (10 * double(count) + 5));
      run(where, {&losses, &total, &over},
          [&](Context& ctx, const On& at) { add_up(at(losses), 2, false, at(total), ctx, at(over).as<double>()); });
      EXPECT_NEAR(*total.here().as<double>(), 0.5 * sum, 1e-12 * (10 * double(count) + 5));
      run(where, {&losses, &total}, [&](Context& ctx, const On& at) { add_up(at(losses), 2, false, at(total), ctx); });
      EXPECT_NEAR(*total.here().as<double>(), 2 * sum, 1e-12 * (10 * double(count) + 5));
    }
}

TEST_P(CrossEntropy, SameBitsEveryTime) {
  for (std::int64_t vocab : {10000, 60000}) {
    Tensors t(DType::bf16, Place::inside, 150, vocab);
    Twin total(DType::f64, {1});
    auto all = t.all();
    all.push_back(&total);
    expect_same_bits(all, [&](Context& ctx, const On& at) {
      cross_entropy::run(t.rows(at), ctx);
      add_up(at(t.losses), 1, false, at(total), ctx);
    });
  }
}

}  // namespace
}  // namespace headroom::cross_entropy
