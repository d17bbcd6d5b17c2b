// Packed documents on a card: the losses and weights of the CPU, with one recorded graph for borders that change every step.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/pass/recorded.h"
#include "gpu/device.h"
#include "tests/engine/dense.h"

namespace headroom::engine::documents_gpu_test {
namespace {

class DocumentsGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "needs a CUDA device";
  }
};

constexpr std::int64_t most = 9;

// Documents of lengths that change with the seed, some empty, some of one token; the last positions of a row belong to none.
void feed_documents(Training& t, std::uint64_t seed, int micro = 0) {
  const Recipe& r = t.recipe();
  const Random random = Random{17}.stream(seed);
  std::vector<std::int32_t> tokens(std::size_t(r.batch * r.len)), targets(tokens.size(), -1), borders;
  double predicted = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = std::int32_t(random.below(i, std::uint64_t(r.model.vocab)));
  for (std::int64_t b = 0; b < r.batch; ++b) {
    std::int64_t at = 0;
    borders.push_back(0);
    for (std::int64_t d = 0; d < most; ++d) {
      const auto n = std::int64_t(random.below(std::uint64_t(5000 + b * most + d), std::uint64_t(d % 4 == 3 ? 2 : r.len / 3)));
      at = std::min(at + n, r.len - 1);
      borders.push_back(std::int32_t(at));
    }
    for (std::int64_t i = 0; i < at; ++i) targets[std::size_t(b * r.len + i)] = tokens[std::size_t((b * r.len + i * 5 + 3) % r.len)];
    predicted += double(at);
  }
  t.feed(micro, tokens, targets, {borders, predicted});
}

void make_lively(Workshop& w) {
  const Random random{99};
  std::uint64_t i = 0;
  for (const Param& p : w.training.store().params()) {
    std::vector<float> values(std::size_t(p.master.count()));
    for (float& x : values) x = float(p.spec.mean) + 0.2f * random.normal(i++);
    write(values.data(), p.master, w.ctx);
  }
  w.training.store().refresh_copies();
  auto state = values_of<double>(w.training.state_tensor(), w.ctx);
  state[adamw::loss_scale] = std::min(state[adamw::loss_scale], 256.0);
  write(state.data(), w.training.state_tensor(), w.ctx);
}

struct Steps {
  std::vector<double> losses;
  std::vector<float> weights;
  friend bool operator==(const Steps&, const Steps&) = default;
};

Steps steps_of(const Recipe& r, const Device& d, bool recorded) {
  Workshop w(r, 2, d);
  make_lively(w);
  adamw::Hyper hyper = r.hyper();
  hyper.lr = 1e-3;
  if (recorded) w.training.warm();
  const auto record = [&] { return recorded ? std::make_unique<Recorded>([&] { w.training.passes(hyper); }, w.ctx) : nullptr; };
  const auto graph = record();
  Steps s;
  for (std::uint64_t step = 0; step < 4; ++step) {
    feed_documents(w.training, step);
    w.training.set_rate(hyper.lr);
    graph ? (*graph)() : w.training.passes(hyper);
    s.losses.push_back(w.training.loss());
  }
  s.weights = w.weights();
  EXPECT_EQ(w.arena.peak(), w.predicted);
  return s;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference += (double(a[i]) - double(b[i])) * (double(a[i]) - double(b[i])), size += double(a[i]) * double(a[i]);
  return std::sqrt(difference / size);
}

Decoder small_model(std::int64_t head_dim, bool qk_norm = false) {
  return decoder_of({.name = "small",
                     .vocab = 97,
                     .width = 64,
                     .layers = 2,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = head_dim,
                     .ffn = 96,
                     .qk_norm = qk_norm});
}

void expect_as_on_a_cpu(const Decoder& model, std::int64_t len, const char* precision) {
  Recipe r{model, 2, len, *precision_named(precision)};
  r.documents = {.most = most, .lengths = {{20, most}}};
  SCOPED_TRACE(fmt::format("{} {} head dim {} norms {}", model.name, precision, model.first().attention.head_dim, sizes_of(model).qk_norm));
  const Device card = cuda_device(0);
  const Steps on_cpu = steps_of(r, {}, false), recorded = steps_of(r, card, true), called = steps_of(r, card, false);
  const bool small = size_of(r.precision.dtype) == 2;
  for (std::size_t i = 0; i < on_cpu.losses.size(); ++i)
    EXPECT_NEAR(recorded.losses[i], on_cpu.losses[i], (small ? 0x1p-6 : 1e-5) * on_cpu.losses[i]) << "step " << i;
  EXPECT_LT(distance(on_cpu.weights, recorded.weights), small ? 5e-3 : 1e-3);
  EXPECT_TRUE(recorded == called) << "a graph that was recorded before the borders were known";
}

TEST_F(DocumentsGpu, ARecordedStepTrainsAsTheCpuDoesWhileBordersChange) {
  for (const std::int64_t head_dim : {16, 64, 128})
    for (const char* precision : {"fp32", "bf16", "fp16"})
      for (const bool norms : {false, true}) { expect_as_on_a_cpu(small_model(head_dim, norms), 200, precision); }
}

TEST_F(DocumentsGpu, EveryDenseFamilyTrainsAsOnTheCpu) {
  for (const DenseModel& m : dense_models(small_model(64)))
    for (const char* precision : {"fp32", "bf16"}) expect_as_on_a_cpu(m.model, 60, precision);
}

TEST_F(DocumentsGpu, EveryKeepLevelHasTheSameBits) {
  const Device card = cuda_device(0);
  for (const char* precision : {"fp32", "bf16"}) {
    Recipe r{decoder_of({.name = "small", .vocab = 97, .width = 64, .layers = 3, .heads = 4, .kv_heads = 2, .head_dim = 64, .ffn = 96}), 2,
             200, *precision_named(precision)};
    r.documents = {.most = most, .lengths = {{20, most}}};
    const Steps everything = steps_of(r, card, true);
    for (const Keeping& keep : {Keeping{Keep::no_product}, Keeping{Keep::no_cheap}, Keeping{Keep::no_attention_inputs},
                                Keeping{Keep::input}, Keeping{Keep::input, 2}, Keeping{Keep::everything, 3}}) {
      SCOPED_TRACE(fmt::format("{} {}", precision, WordsOf<Keeping>::to(keep)));
      r.keep = keep;
      EXPECT_TRUE(steps_of(r, card, true) == everything);
    }
  }
}

}  // namespace
}  // namespace headroom::engine::documents_gpu_test
