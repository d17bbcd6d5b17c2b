// What dense models beside Llama need, against FP64: activations, LayerNorm, RMSNorm of strided rows and into a residual, capped logits,
// scaled embeddings. On the CPU, where they are served; a GPU refuses each by its name.
#include <gtest/gtest.h>

#include <cmath>

#include "base/convert.h"
#include "base/random.h"
#include "ops/activation/activation.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/layernorm/layernorm.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom {
namespace {

struct Numbers {  // a tensor with memory of its own
  std::vector<char> bytes;
  Tensor t;
  Numbers(DType type, Shape shape, std::uint64_t seed = 0, double size = 1) : bytes(std::size_t(shape.count()) * size_of(type)) {
    t = Tensor(bytes.data(), type, shape);
    if (seed == 0) return;
    const Random random{seed};
    for (std::int64_t i = 0; i < t.count(); ++i)
      with_float(type, [&]<class T>() { t.as<T>()[i] = narrow<T>(float(size * random.normal(std::uint64_t(i)))); });
  }
  Numbers(const Numbers& other) : bytes(other.bytes), t(other.t) { t.data = bytes.data(); }
  double at(std::int64_t i) const { return double(load_element(bytes.data(), t.dtype, i)); }
};

class DenseOps : public testing::Test {
 protected:
  template <class Body>
  void run(Body&& body) {  // in exactly what the dry run asked for
    Arena dry;
    Context counting{dry, cpu_};
    counting.dry_workers = threads_.count();
    body(counting);
    std::vector<char> memory(dry.peak() + 256);
    auto* aligned = memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) % 256;
    Arena arena(aligned, dry.peak());
    Context ctx{arena, cpu_, &threads_};
    body(ctx);
    EXPECT_EQ(arena.peak(), dry.peak());
  }
  static double ulp(DType type) { return type == DType::f32 ? 0x1p-23 : type == DType::bf16 ? 0x1p-8 : 0x1p-11; }

  Device cpu_;
  Threads threads_{3};
};

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

TEST_F(DenseOps, ActivationsAndTheirGradients) {
  using activation::Function;
  constexpr std::int64_t rows = 5, n = 333;
  for (const Function f : {Function::silu, Function::gelu, Function::gelu_tanh, Function::relu})
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t gates : {1, 2})
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} in place {}", names_of<Function>.of(f), name_of(type), gates, in_place));
          const Numbers given(type, {rows, gates * n}, 1, 3), gradient(type, {rows, n}, 2);
          Numbers in = given, dact = gradient, act(type, {rows, n}), din(type, {rows, gates * n}), again(type, {rows, n});
          Numbers &out = in_place ? in : din, &second = in_place ? dact : again;
          run([&](Context& ctx) {
            activation::forward({in.t, act.t, f}, ctx);
            activation::backward({in.t, dact.t, out.t, second.t, f}, ctx);
          });
          EXPECT_EQ(act.bytes, second.bytes) << "made again to the same bits";
          for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t i = 0; i < n; ++i) {
              const Bent b = bent(f, given.at(row * gates * n + i));
              const double up = gates == 2 ? given.at(row * gates * n + n + i) : 1, d = gradient.at(row * n + i);
              // FP32 knows 1 − s to two of its units; the slope multiplies that with x and, of tanh's argument, 1 + 3 · 0.0447 · x².
              const double x = std::abs(given.at(row * gates * n + i)), lost = 0x1p-22 * (1 + 1.6 * x * (1 + 0.135 * x * x));
              const auto near = [&](double got, double expected, double scale) {
                ASSERT_NEAR(got, expected, ulp(type) * std::abs(expected) + lost * scale + 1e-7) << i;
              };
              near(act.at(row * n + i), b.value * up, std::abs(up));
              near(out.at(row * gates * n + i), d * up * b.slope, std::abs(d * up));
              if (gates == 2) near(out.at(row * gates * n + n + i), d * b.value, std::abs(d));
            }
        }
}

TEST_F(DenseOps, ActivationsFarOutAreFinite) {
  for (const auto f : {activation::Function::gelu, activation::Function::gelu_tanh, activation::Function::silu}) {
    Numbers in(DType::f32, {1, 4}), act(DType::f32, {1, 4}), d(DType::f32, {1, 4}, 3), din(DType::f32, {1, 4});
    const float far[] = {-1e4f, 1e4f, -60, 60};
    std::copy(far, far + 4, in.t.as<float>());
    run([&](Context& ctx) {
      activation::forward({in.t, act.t, f}, ctx);
      activation::backward({in.t, d.t, din.t, {}, f}, ctx);
    });
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(act.at(i), far[i] > 0 ? double(far[i]) : 0, 1e-6 * std::abs(far[i]));
      EXPECT_NEAR(din.at(i), far[i] > 0 ? d.at(i) : 0, 1e-6);
    }
  }
}

TEST_F(DenseOps, LayerNormAndItsGradients) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t n : {1, 16, 100, 1031})
      for (const Gradient into : {Gradient::overwrite, Gradient::accumulate}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(type), n, int(into)));
        constexpr std::int64_t rows = 70;
        const Numbers x(type, {rows, n}, 1, 2), w(DType::f32, {n}, 2), b(DType::f32, {n}, 3), dy(type, {rows, n}, 4),
            before(type, {rows, n}, 5), before_w(DType::f32, {n}, 6), before_b(DType::f32, {n}, 7);
        Numbers y(type, {rows, n}), mean(DType::f32, {rows}), rstd(DType::f32, {rows}), dx(type, {rows, n}), dw(DType::f32, {n}),
            db(DType::f32, {n});
        run([&](Context& ctx) {
          std::copy(before.bytes.begin(), before.bytes.end(), dx.bytes.begin());
          std::copy(before_w.bytes.begin(), before_w.bytes.end(), dw.bytes.begin());
          std::copy(before_b.bytes.begin(), before_b.bytes.end(), db.bytes.begin());
          layernorm::forward({x.t, w.t, b.t, y.t, mean.t, rstd.t, 1e-5f}, ctx);
          layernorm::backward({x.t, w.t, mean.t, rstd.t, dy.t, dx.t, dw.t, db.t, into, into}, ctx);
        });
        const double old = into == Gradient::accumulate ? 1 : 0, step = ulp(type);
        std::vector<double> sum_w(std::size_t(n), 0.0), sum_b(std::size_t(n), 0.0);
        for (std::int64_t r = 0; r < rows; ++r) {
          double m = 0, v = 0, plain = 0, along = 0;
          for (std::int64_t i = 0; i < n; ++i) m += x.at(r * n + i) / double(n);
          for (std::int64_t i = 0; i < n; ++i) v += (x.at(r * n + i) - m) * (x.at(r * n + i) - m) / double(n);
          const double s = 1 / std::sqrt(v + 1e-5);
          for (std::int64_t i = 0; i < n; ++i) {
            const double g = w.at(i) * dy.at(r * n + i), unit = (x.at(r * n + i) - m) * s;
            plain += g / double(n), along += g * unit / double(n);
          }
          for (std::int64_t i = 0; i < n; ++i) {
            const double unit = (x.at(r * n + i) - m) * s, g = dy.at(r * n + i);
            const double expected = unit * w.at(i) + b.at(i), slope = s * (w.at(i) * g - plain - unit * along) + old * before.at(r * n + i);
            ASSERT_NEAR(y.at(r * n + i), expected, step * std::abs(expected) + 4e-6 * (1 + std::abs(expected)));
            ASSERT_NEAR(dx.at(r * n + i), slope, step * std::abs(slope) + 4e-6 * s * (1 + std::abs(g) + std::abs(unit)));
            sum_w[std::size_t(i)] += g * unit, sum_b[std::size_t(i)] += g;
          }
        }
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_NEAR(dw.at(i), sum_w[std::size_t(i)] + old * before_w.at(i), 1e-4);
          ASSERT_NEAR(db.at(i), sum_b[std::size_t(i)] + old * before_b.at(i), 1e-4);
        }
      }
}

// Rows that lie apart, a residual, and a gradient in the place of its input give the bits of the plain op.
TEST_F(DenseOps, RmsNormOfRowsThatLieApart) {
  constexpr std::int64_t rows = 9, n = 50, wide = 120;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Numbers matrix(type, {rows, wide}, 1), gradient(type, {rows, wide}, 2), w(DType::f32, {n}, 3), residual(type, {rows, n}, 4);
    const auto part = [&](const Numbers& m) {
      Tensor t(const_cast<char*>(m.bytes.data()) + 7 * size_of(type), type, {rows, n});
      t.stride[0] = wide;
      return t;
    };
    const auto packed = [&](const Numbers& m) {
      Numbers p(type, {rows, n});
      for (std::int64_t r = 0; r < rows; ++r)
        std::memcpy(p.bytes.data() + std::size_t(r * n) * size_of(type), m.bytes.data() + std::size_t(r * wide + 7) * size_of(type),
                    n * size_of(type));
      return p;
    };
    Numbers x = packed(matrix), dy = packed(gradient), y(type, {rows, n}), rstd(DType::f32, {rows}), dx(type, {rows, n}),
            dw(DType::f32, {n});
    Numbers y_apart(type, {rows, wide}), rstd_apart(DType::f32, {rows}), dw_apart(DType::f32, {n}), d_apart = gradient,
                                                                                                    added(type, {rows, n});
    run([&](Context& ctx) {
      rmsnorm::forward({x.t, w.t, y.t, rstd.t, 1e-5f}, ctx);
      rmsnorm::backward({x.t, w.t, rstd.t, dy.t, dx.t, dw.t}, ctx);
      rmsnorm::forward({part(matrix), w.t, part(y_apart), rstd_apart.t, 1e-5f}, ctx);
      rmsnorm::backward({part(matrix), w.t, rstd_apart.t, part(d_apart), part(d_apart), dw_apart.t}, ctx);
      rmsnorm::forward({x.t, w.t, added.t, rstd.t, 1e-5f, residual.t}, ctx);
    });
    EXPECT_EQ(packed(y_apart).bytes, y.bytes);
    EXPECT_EQ(packed(d_apart).bytes, dx.bytes);
    EXPECT_EQ(dw_apart.bytes, dw.bytes);
    for (std::int64_t i = 0; i < rows * n; ++i) {
      const double exact = x.at(i) * double(rstd.t.as<float>()[i / n]) * w.at(i % n) + residual.at(i);
      ASSERT_NEAR(added.at(i), exact, ulp(type) * std::abs(exact) + 1e-6);
    }
  }
}

TEST_F(DenseOps, CappedLogitsLoseAndTheirGradients) {
  constexpr std::int64_t rows = 4, vocab = 700;
  constexpr double cap = 3;
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (const bool inside : {false, true}) {
      SCOPED_TRACE(fmt::format("{} inside {}", name_of(type), inside));
      const Numbers given(type, {rows, vocab}, 1, 5);
      Numbers logits(type, {rows, vocab}), targets(DType::i32, {rows}), losses(DType::f32, {rows}), alone(DType::f32, {rows}),
          apart(type, {rows, vocab});
      for (int r = 0; r < rows; ++r) targets.t.as<std::int32_t>()[r] = r * 150 + 3;
      run([&](Context& ctx) {
        std::copy(given.bytes.begin(), given.bytes.end(), logits.bytes.begin());
        cross_entropy::run({logits.t, targets.t, alone.t, {}, 1, nullptr, float(cap)}, ctx);
        EXPECT_EQ(logits.bytes, given.bytes) << "without a gradient nothing is overwritten";
        cross_entropy::run({logits.t, targets.t, losses.t, inside ? logits.t : apart.t, 0.5f, nullptr, float(cap)}, ctx);
      });
      const Numbers& d = inside ? logits : apart;
      EXPECT_EQ(alone.bytes, losses.bytes);
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        const auto capped = [&](std::int64_t v) { return cap * std::tanh(given.at(r * vocab + v) / cap); };
        for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(capped(v));
        const std::int64_t target = targets.t.as<std::int32_t>()[r];
        EXPECT_NEAR(losses.at(r), std::log(sum) - capped(target), 3e-6);
        for (std::int64_t v = 0; v < vocab; ++v) {
          const double t = std::tanh(given.at(r * vocab + v) / cap);
          const double expected = 0.5 * (std::exp(capped(v)) / sum - (v == target ? 1 : 0)) * (1 - t * t);
          ASSERT_NEAR(d.at(r * vocab + v), expected, ulp(type) * std::abs(expected) + 3e-7) << v;
        }
      }
    }
  Numbers plain(DType::f32, {1, 3});
  const float x[] = {-30, 0.5, 1e4};
  std::copy(x, x + 3, plain.t.as<float>());
  run([&](Context& ctx) { cross_entropy::cap(plain.t, 3, ctx); });
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(plain.at(i), 3 * std::tanh(double(x[i]) / 3), 1e-6);
}

TEST_F(DenseOps, AScaledEmbedding) {
  const Numbers table(DType::f32, {5, 8}, 1), dx(DType::f32, {3, 8}, 2);
  Numbers tokens(DType::i32, {3}), x(DType::f32, {3, 8}), dtable(DType::f32, {5, 8});
  const std::int32_t which[] = {4, 1, 4};
  std::copy(which, which + 3, tokens.t.as<std::int32_t>());
  run([&](Context& ctx) {
    embedding::forward(table.t, tokens.t, x.t, ctx, 2.5f);
    embedding::backward(tokens.t, dx.t, dtable.t, Gradient::overwrite, ctx, 2.5f);
  });
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(x.at(i), 2.5 * table.at(4 * 8 + i), 1e-6);
    EXPECT_NEAR(dtable.at(4 * 8 + i), 2.5 * (dx.at(i) + dx.at(2 * 8 + i)), 1e-5);
    EXPECT_EQ(dtable.at(i), 0);
  }
}

TEST_F(DenseOps, AGpuRefusesEachByItsName) {
  Device gpu;
  gpu.kind = DeviceKind::cuda;
  std::vector<char> memory(1 << 20);
  Arena arena(memory.data(), memory.size());
  Context ctx{arena, gpu};
  const Numbers a(DType::f32, {2, 8}), w(DType::f32, {8}), s(DType::f32, {2}), tokens(DType::i32, {2});
  const auto refused = [&](const char* who, const auto& body) {
    try {
      body();
      ADD_FAILURE() << who << " ran";
    } catch (const Error& e) {
      EXPECT_EQ(e.at.code, Code::unsupported);
      EXPECT_NE(std::string(e.what()).find(who), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("--device cpu"), std::string::npos) << e.what();
    }
  };
  refused("activation", [&] { activation::forward({a.t, a.t, activation::Function::gelu}, ctx); });
  refused("layernorm", [&] { layernorm::forward({a.t, w.t, w.t, a.t, s.t, s.t}, ctx); });
  refused("rmsnorm", [&] { rmsnorm::forward({a.t, w.t, a.t, s.t, 1e-5f, a.t}, ctx); });
  refused("cross_entropy", [&] { cross_entropy::run({a.t, tokens.t, s.t, {}, 1, nullptr, 3}, ctx); });
  refused("embedding", [&] { embedding::forward(a.t, tokens.t, a.t, ctx, 2); });
}

}  // namespace
}  // namespace headroom
