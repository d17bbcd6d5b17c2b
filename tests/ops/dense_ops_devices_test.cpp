// What dense models beside Llama need, against FP64: activations, LayerNorm, RMSNorm of rows that lie apart and into a residual, capped
// logits, scaled embeddings.
#include <cmath>

#include "ops/activation/activation.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/layernorm/layernorm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "tests/ops/on_devices.h"

namespace headroom {
namespace {

using namespace on_card;

double ulp(DType type) { return 2 * unit_of(type); }

Twin filled(DType type, Shape shape, std::uint64_t stream, double scale = 1, std::int64_t shift = 0) {
  Twin t(type, shape, shift);
  t.normal(stream, scale);
  return t;
}

class DenseOps : public OnDevices {
 protected:
  void run_here(const Twins& all, const DeviceWork& work) { run(GetParam(), all, work); }
};
HEADROOM_ON_DEVICES(DenseOps);

struct Bent {
  double value, slope;
};
Bent bent(activation::Function f, double x) {
  using activation::Function;
  const double root = std::sqrt(2 / 3.14159265358979324), s = 1 / (1 + std::exp(-x));
  switch (f) {
    case Function::silu: return {x * s, s * (1 + x * (1 - s))};
    case Function::gelu: {
      const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
      return {x * below, below + x * std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979324)};
    }
    case Function::gelu_tanh: {
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)};
    }
    case Function::relu: return {x > 0 ? x : 0, x > 0 ? 1.0 : 0.0};
  }
  return {};
}

TEST_P(DenseOps, ActivationsAndTheirGradients) {
  using activation::Function;
  for (const Function f : {Function::silu, Function::gelu, Function::gelu_tanh, Function::relu})
    for (const DType type : float_types)
      for (const std::int64_t n : {1, 333, 2048, 4104})
        for (const std::int64_t gates : {1, 2})
          for (const bool in_place : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {} width {} gates {} in place {}", names_of<Function>.of(f), name_of(type), n, gates, in_place));
            constexpr std::int64_t rows = 3;
            const std::int64_t shift = n == 2048 && in_place;  // off the 16-byte boundary
            Twin in = filled(type, {rows, gates * n}, 1, 3, shift), dact = filled(type, {rows, n}, 2), act(type, {rows, n}),
                 din(type, {rows, gates * n}), again(type, {rows, n});
            const auto given = in.values(), gradient = dact.values();
            Twin &out = in_place ? in : din, &second = in_place ? dact : again;
            run_here({&in, &dact, &act, &din, &again}, [&](Context& ctx, const On& at) {
              activation::forward({at(in), at(act), f}, ctx);
              activation::backward({at(in), at(dact), at(out), at(second), f}, ctx);
            });
            EXPECT_EQ(act.values(), second.values()) << "made again to the same bits";
            const auto acts = act.values(), outs = out.values();
            for (std::size_t row = 0; row < rows; ++row)
              for (std::size_t i = 0; i < std::size_t(n); ++i) {
                const std::size_t at = row * std::size_t(gates * n) + i, up_at = at + std::size_t(n), act_at = row * std::size_t(n) + i;
                const Bent b = bent(f, given[at]);
                const double up = gates == 2 ? given[up_at] : 1, d = gradient[act_at];
                // FP32 knows 1 − s to two of its units; the slope multiplies that with x and, of tanh's argument, 1 + 3 · 0.0447 · x².
                const double x = std::abs(given[at]), lost = 0x1p-22 * (1 + 1.6 * x * (1 + 0.135 * x * x));
                const auto near = [&](double got, double expected, double scale) {
                  ASSERT_NEAR(got, expected, ulp(type) * std::abs(expected) + lost * scale + 1e-7) << i;
                };
                near(acts[act_at], b.value * up, std::abs(up));
                near(outs[at], d * up * b.slope, std::abs(d * up));
                if (gates == 2) near(outs[up_at], d * b.value, std::abs(d));
              }
          }
}

TEST_P(DenseOps, ActivationsFarOutAreFinite) {
  for (const auto f : {activation::Function::gelu, activation::Function::gelu_tanh, activation::Function::silu}) {
    SCOPED_TRACE(names_of<activation::Function>.of(f));
    constexpr int count = 6;
    Twin in(DType::f32, {1, count}), act(DType::f32, {1, count}), d = filled(DType::f32, {1, count}, 3), din(DType::f32, {1, count});
    const float far[count] = {-1e4f, 1e4f, -60, 60, -1e30f, 1e30f};
    for (int i = 0; i < count; ++i) in.set(i, far[i]);
    run_here({&in, &act, &d, &din}, [&](Context& ctx, const On& at) {
      activation::forward({at(in), at(act), f}, ctx);
      activation::backward({at(in), at(d), at(din), {}, f}, ctx);
    });
    for (int i = 0; i < count; ++i) {
      EXPECT_NEAR(act.values()[std::size_t(i)], far[i] > 0 ? double(far[i]) : 0, 1e-6 * std::abs(far[i])) << far[i];
      EXPECT_NEAR(din.values()[std::size_t(i)], far[i] > 0 ? d.values()[std::size_t(i)] : 0, 1e-6) << far[i];
    }
  }
}

TEST_P(DenseOps, ActivationsOfNoRows) {
  Twin in(DType::bf16, {0, 16}), act(DType::bf16, {0, 8});
  run_here({&in, &act}, [&](Context& ctx, const On& at) {
    activation::forward({at(in), at(act), activation::Function::gelu}, ctx);
    activation::backward({at(in), at(act), at(in), {}, activation::Function::gelu}, ctx);
  });
}

struct LayerNorm {
  std::size_t rows, width;
  Twin x, w, b, dy, y, mean, rstd, dx, dw, db;

  LayerNorm(DType type, std::int64_t r, std::int64_t n, std::int64_t shift = 0, double size = 1)
      : rows(std::size_t(r)),
        width(std::size_t(n)),
        x(filled(type, {r, n}, 1, 2 * size, shift)),
        w(filled(DType::f32, {n}, 2)),
        b(filled(DType::f32, {n}, 3)),
        dy(filled(type, {r, n}, 4)),
        y(type, {r, n}, shift),
        mean(DType::f32, {r}),
        rstd(DType::f32, {r}),
        dx(filled(type, {r, n}, 5, 1, shift)),
        dw(filled(DType::f32, {n}, 6)),
        db(filled(DType::f32, {n}, 7)) {}
  std::vector<Twin*> all() { return {&x, &w, &b, &dy, &y, &mean, &rstd, &dx, &dw, &db}; }
  void both(Gradient into, Context& ctx, const On& at) {
    layernorm::forward({at(x), at(w), at(b), at(y), at(mean), at(rstd), 1e-5f}, ctx);
    layernorm::backward({at(x), at(w), at(mean), at(rstd), at(dy), at(dx), at(dw), at(db), into, into}, ctx);
  }
};

TEST_P(DenseOps, LayerNormAndItsGradients) {
  for (const DType type : float_types)
    for (const std::int64_t n : {1, 16, 100, 1031, 1600, 4096, 8200})
      for (const std::int64_t rows : {1, 70, 600})
        for (const Gradient into : {Gradient::overwrite, Gradient::accumulate}) {
          if (rows > 70 && n > 100) continue;
          SCOPED_TRACE(fmt::format("{} width {} rows {} {}", name_of(type), n, rows, int(into)));
          LayerNorm t(type, rows, n, n == 1600 ? 1 : 0);
          const auto x = t.x.values(), w = t.w.values(), b = t.b.values(), dy = t.dy.values(), before = t.dx.values(),
                     before_w = t.dw.values(), before_b = t.db.values();
          run_here(t.all(), [&](Context& ctx, const On& at) { t.both(into, ctx, at); });
          const auto y = t.y.values(), dx = t.dx.values(), dw = t.dw.values(), db = t.db.values();
          const double old = into == Gradient::accumulate ? 1 : 0, step = ulp(type);
          std::vector<double> sum_w(t.width), sum_b(t.width), size_w(t.width), size_b(t.width);
          for (std::size_t r = 0; r < t.rows; ++r) {
            const std::size_t row = r * t.width;
            double m = 0, v = 0, plain = 0, along = 0;
            for (std::size_t i = 0; i < t.width; ++i) m += x[row + i] / double(n);
            for (std::size_t i = 0; i < t.width; ++i) v += (x[row + i] - m) * (x[row + i] - m) / double(n);
            const double s = 1 / std::sqrt(v + 1e-5);
            for (std::size_t i = 0; i < t.width; ++i) {
              const double g = w[i] * dy[row + i], unit = (x[row + i] - m) * s;
              plain += g / double(n), along += g * unit / double(n);
            }
            for (std::size_t i = 0; i < t.width; ++i) {
              const double unit = (x[row + i] - m) * s, g = dy[row + i];
              const double expected = unit * w[i] + b[i], slope = s * (w[i] * g - plain - unit * along) + old * before[row + i];
              ASSERT_NEAR(y[row + i], expected, step * std::abs(expected) + 4e-6 * (1 + std::abs(expected)));
              ASSERT_NEAR(dx[row + i], slope, step * std::abs(slope) + 4e-6 * s * (1 + std::abs(g) + std::abs(unit)));
              sum_w[i] += g * unit, sum_b[i] += g;
              size_w[i] += std::abs(g * unit), size_b[i] += std::abs(g);
            }
          }
          for (std::size_t i = 0; i < t.width; ++i) {
            ASSERT_NEAR(dw[i], sum_w[i] + old * before_w[i], 2e-6 * (1 + size_w[i]));
            ASSERT_NEAR(db[i], sum_b[i] + old * before_b[i], 1e-6 * (1 + size_b[i]));
          }
        }
}

TEST_P(DenseOps, LayerNormOfNoRowsClearsItsGradients) {
  LayerNorm t(DType::bf16, 0, 24);
  run_here(t.all(), [&](Context& ctx, const On& at) { t.both(Gradient::overwrite, ctx, at); });
  EXPECT_EQ(t.dw.values(), std::vector<double>(24));
  EXPECT_EQ(t.db.values(), std::vector<double>(24));
}

TEST_P(DenseOps, LayerNormOfEqualNumbersIsItsBias) {
  LayerNorm t(DType::f32, 2, 1000);
  for (int i = 0; i < 2000; ++i) t.x.set(i, 4);
  run_here(t.all(), [&](Context& ctx, const On& at) { t.both(Gradient::overwrite, ctx, at); });
  for (std::size_t i = 0; i < 2000; ++i) ASSERT_EQ(t.y.values()[i], t.b.values()[i % 1000]);
}

TEST_P(DenseOps, LayerNormHasTheSameBitsEveryTime) {
  LayerNorm t(DType::bf16, 1030, 768);
  expect_same_bits(t.all(), [&](Context& ctx, const On& at) { t.both(Gradient::accumulate, ctx, at); });
}

// Rows that lie apart, a residual, and a gradient in the place of its input give the bits of the plain op.
TEST_P(DenseOps, RmsNormOfRowsThatLieApart) {
  for (const DType type : float_types)
    for (const auto& [n, gap] : {std::pair<std::int64_t, std::int64_t>{50, 70}, {64, 64}, {2048, 1024}, {8192, 8}, {9000, 1}}) {
      SCOPED_TRACE(fmt::format("{} width {} gap {}", name_of(type), n, gap));
      constexpr std::int64_t rows = 9;
      Twin w = filled(DType::f32, {n}, 3), rstd(DType::f32, {rows}), rstd_apart(DType::f32, {rows}), dw(DType::f32, {n}),
           dw_apart(DType::f32, {n});
      Twin x = filled(type, {rows, n}, 1), y(type, {rows, n}), dy = filled(type, {rows, n}, 2), dx(type, {rows, n}),
           residual = filled(type, {rows, n}, 4), added(type, {rows, n}), over = residual;
      Twin x_apart(type, {rows, n}, 0, n + gap), y_apart(type, {rows, n}, 0, n + gap), d_apart(type, {rows, n}, 0, n + gap);
      x_apart.normal(1), d_apart.normal(2);
      run_here({&w, &rstd, &rstd_apart, &dw, &dw_apart, &x, &y, &dy, &dx, &residual, &added, &over, &x_apart, &y_apart, &d_apart},
               [&](Context& ctx, const On& at) {
                 rmsnorm::forward({at(x), at(w), at(y), at(rstd), 1e-5f}, ctx);
                 rmsnorm::backward({at(x), at(w), at(rstd), at(dy), at(dx), at(dw)}, ctx);
                 rmsnorm::forward({at(x_apart), at(w), at(y_apart), at(rstd_apart), 1e-5f}, ctx);
                 rmsnorm::backward({at(x_apart), at(w), at(rstd_apart), at(d_apart), at(d_apart), at(dw_apart)}, ctx);
                 rmsnorm::forward({at(x), at(w), at(added), at(rstd), 1e-5f, at(residual)}, ctx);
                 rmsnorm::forward({at(x), at(w), at(over), at(rstd), 1e-5f, at(over)}, ctx);
               });
      const bool same =
          GetParam() == Where::cpu;  // on a GPU rows that lie apart are shared out otherwise, and may be rounded to the neighbour
      const auto alike = [&](const char* what, Twin& a, Twin& b, DType of) {
        const auto u = a.values(), v = b.values();
        for (std::size_t i = 0; i < u.size(); ++i)
          ASSERT_NEAR(u[i], v[i], same ? 0 : 2 * ulp(of) * std::abs(v[i]) + 4e-6) << what << " " << i;
      };
      alike("y", y_apart, y, type);
      alike("dx", d_apart, dx, type);
      alike("dweight", dw_apart, dw, DType::f32);
      EXPECT_EQ(over.values(), added.values()) << "in the place of the residual";
      const auto given = x.values(), roots = rstd.values(), weight = w.values(), base = residual.values(), got = added.values();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double exact = given[i] * roots[i / std::size_t(n)] * weight[i % std::size_t(n)] + base[i];
        ASSERT_NEAR(got[i], exact, ulp(type) * std::abs(exact) + 2e-6);
      }
    }
}

TEST_P(DenseOps, CappedLogitsLoseAndTheirGradients) {
  constexpr double cap = 3;
  for (const DType type : float_types)
    for (const std::int64_t vocab : {7, 700, 3000, 40000})
      for (const bool inside : {false, true}) {
        SCOPED_TRACE(fmt::format("{} vocab {} inside {}", name_of(type), vocab, inside));
        constexpr std::int64_t rows = 4;
        Twin logits = filled(type, {rows, vocab}, 1, 5), targets(DType::i32, {rows}), losses(DType::f32, {rows}), alone(DType::f32, {rows}),
             apart(type, {rows, vocab});
        const auto given = logits.values();
        for (int r = 0; r < rows; ++r) targets.here().as<std::int32_t>()[r] = r == 2 ? -1 : int((r * 150 + 3) % vocab);
        const auto before = logits.bytes();
        run_here({&logits, &targets, &alone}, [&](Context& ctx, const On& at) {
          cross_entropy::run({at(logits), at(targets), at(alone), {}, 1, nullptr, float(cap)}, ctx);
        });
        EXPECT_EQ(logits.bytes(), before) << "without a gradient nothing is overwritten";
        run_here({&logits, &targets, &losses, &apart}, [&](Context& ctx, const On& at) {
          cross_entropy::run({at(logits), at(targets), at(losses), inside ? at(logits) : at(apart), 0.5f, nullptr, float(cap)}, ctx);
        });
        const auto d = (inside ? logits : apart).values(), loss = losses.values();
        EXPECT_EQ(alone.values(), loss);
        for (std::size_t r = 0; r < rows; ++r) {
          const std::size_t row = r * std::size_t(vocab);
          const std::int64_t target = targets.here().as<std::int32_t>()[r];
          double sum = 0;
          const auto capped = [&](std::size_t v) { return cap * std::tanh(given[row + v] / cap); };
          for (std::size_t v = 0; v < std::size_t(vocab); ++v) sum += std::exp(capped(v));
          EXPECT_NEAR(loss[r], target < 0 ? 0 : std::log(sum) - capped(std::size_t(target)), 3e-6);
          for (std::size_t v = 0; v < std::size_t(vocab); ++v) {
            const double t = std::tanh(given[row + v] / cap);
            const double expected = target < 0 ? 0 : 0.5 * (std::exp(capped(v)) / sum - (std::int64_t(v) == target ? 1 : 0)) * (1 - t * t);
            ASSERT_NEAR(d[row + v], expected, ulp(type) * std::abs(expected) + 3e-7) << v;
          }
        }
      }
  Twin plain(DType::f32, {1, 3});
  const float x[] = {-30, 0.5, 1e4};
  for (int i = 0; i < 3; ++i) plain.set(i, x[i]);
  run_here({&plain}, [&](Context& ctx, const On& at) { cross_entropy::cap(at(plain), 3, ctx); });
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(plain.values()[std::size_t(i)], 3 * std::tanh(double(x[i]) / 3), 1e-6);
}

// As without a scale: sums in one order, so the bits are those of this loop on every device.
TEST_P(DenseOps, AScaledEmbedding) {
  for (const float scale : {2.5f, 39.191834f})
    for (const std::int64_t width : {7, 64}) {
      constexpr std::int64_t vocab = 5, rows = 40;
      Twin table = filled(DType::f32, {vocab, width}, 1), dx = filled(DType::f32, {rows, width}, 2), tokens(DType::i32, {rows}),
           x(DType::f32, {rows, width}), dtable(DType::f32, {vocab, width});
      for (int r = 0; r < rows; ++r) tokens.here().as<std::int32_t>()[r] = r % 3 + 1;
      run_here({&table, &dx, &tokens, &x, &dtable}, [&](Context& ctx, const On& at) {
        embedding::forward(at(table), at(tokens), at(x), ctx, scale);
        embedding::backward(at(tokens), at(dx), at(dtable), Gradient::overwrite, ctx, scale);
      });
      const auto words = table.values(), slopes = dx.values(), got = x.values();
      std::vector<double> sums(words.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t word = (i / std::size_t(width) % 3 + 1) * std::size_t(width) + i % std::size_t(width);
        ASSERT_EQ(got[i], double(scale * float(words[word])));
        const volatile float share = scale * float(slopes[i]);  // rounded before it is added
        sums[word] = double(float(sums[word]) + share);
      }
      EXPECT_EQ(dtable.values(), sums);
    }
}

}  // namespace
}  // namespace headroom
