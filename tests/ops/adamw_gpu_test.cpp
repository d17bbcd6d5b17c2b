#include "ops/adamw/adamw.h"

#include "tests/ops/on_card.h"

namespace headroom::adamw {
namespace {

using namespace on_card;

struct Parameter {
  Twin grad, master, m, v, copy;
  bool decay;
};

struct Model {
  std::vector<Parameter> all;
  Twin state{DType::f64, {state_size}};

  Model(const std::vector<std::int64_t>& sizes, DType compute) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t shift = i % 5 == 4 ? 1 : 0;
      Parameter p{
          {DType::f32, {sizes[i]}, shift}, {DType::f32, {sizes[i]}}, {DType::f32, {sizes[i]}}, {DType::f32, {sizes[i]}}, {}, i % 2 == 0};
      if (compute != DType::f32 && i % 3 != 0) p.copy = Twin(compute, {sizes[i]});
      if (p.copy && i % 2 == 1) p.grad = Twin(compute, {sizes[i]}, shift);  // some are narrow, some FP32
      p.grad.normal(10 * i), p.master.normal(10 * i + 1);
      for (std::int64_t e = 0; e < sizes[i]; ++e) p.m.set(e, 0), p.v.set(e, 0);
      all.push_back(std::move(p));
    }
  }
  template <class Of>
  std::vector<Update> updates(Of&& of) {
    std::vector<Update> out;
    for (Parameter& p : all) out.push_back({of(p.grad), of(p.master), of(p.m), of(p.v), p.copy ? of(p.copy) : Tensor(), p.decay});
    return out;
  }
  std::vector<Twin*> twins() {
    std::vector<Twin*> out{&state};
    for (Parameter& p : all)
      for (Twin* t : {&p.grad, &p.master, &p.m, &p.v, &p.copy})
        if (*t) out.push_back(t);
    return out;
  }
};

Tensor here(Twin& t) { return t.here(); }
Tensor there(Twin& t) { return t.there(); }

class AdamwGpu : public OnCard {
 protected:
  void up(Model& m) {
    for (Twin* t : m.twins()) t->up(*stream);
  }
  void down(Model& m) {
    for (Twin* t : m.twins()) {
      t->down(*stream);
      EXPECT_TRUE(t->guards_intact());
    }
  }
  // FP64 from the CPU's inputs, step by step beside both.
  void check(const std::vector<std::int64_t>& sizes, DType compute, Hyper h, double loss_scale, int steps) {
    SCOPED_TRACE(fmt::format("{} tensors, {}, clip {}, scale {}", sizes.size(), name_of(compute), h.clip, loss_scale));
    Model cpu(sizes, compute);
    Model gpu = cpu;
    for (Parameter& p : gpu.all)  // poison of its own
      if (p.copy) std::fill(p.copy.bytes().begin(), p.copy.bytes().end(), std::byte{0xff});
    std::vector<std::vector<double>> w, m, v, g;
    double squares = 0;
    for (Parameter& p : cpu.all) {
      g.push_back(p.grad.values()), w.push_back(p.master.values());
      m.emplace_back(w.back().size()), v.emplace_back(w.back().size());
      for (double x : g.back()) squares += x * x;
    }
    const double norm = std::sqrt(squares) / loss_scale, factor = (h.clip > 0 && norm > h.clip ? h.clip / norm : 1) / loss_scale;
    on_cpu([&](Context& ctx) { start(cpu.state.here(), loss_scale, ctx); });
    up(gpu);
    on_gpu([&](Context& ctx) { start(gpu.state.there(), loss_scale, ctx); });
    for (int step = 1; step <= steps; ++step) {
      const double lr = 1e-2 / step;
      on_cpu([&](Context& ctx) { set_rate(cpu.state.here(), lr, ctx), update(cpu.updates(here), cpu.state.here(), h, ctx); });
      on_gpu([&](Context& ctx) { set_rate(gpu.state.there(), lr, ctx), update(gpu.updates(there), gpu.state.there(), h, ctx); });
      const double correct1 = 1 - std::pow(h.beta1, step), correct2 = 1 - std::pow(h.beta2, step);
      for (std::size_t i = 0; i < w.size(); ++i)
        for (std::size_t e = 0; e < w[i].size(); ++e) {
          const double x = g[i][e] * factor;
          m[i][e] = h.beta1 * m[i][e] + (1 - h.beta1) * x, v[i][e] = h.beta2 * v[i][e] + (1 - h.beta2) * x * x;
          w[i][e] =
              w[i][e] * (cpu.all[i].decay ? 1 - lr * h.decay : 1) - lr * (m[i][e] / correct1) / (std::sqrt(v[i][e] / correct2) + h.eps);
        }
    }
    down(gpu);
    for (std::size_t i = 0; i < w.size(); ++i) {
      expect_honest("weight", gpu.all[i].master.values(), cpu.all[i].master.values(), w[i], DType::f32);
      expect_honest("m", gpu.all[i].m.values(), cpu.all[i].m.values(), m[i], DType::f32);
      expect_honest("v", gpu.all[i].v.values(), cpu.all[i].v.values(), v[i], DType::f32);
      if (gpu.all[i].copy) expect_honest("copy", gpu.all[i].copy.values(), cpu.all[i].copy.values(), w[i], compute);
    }
    const auto a = cpu.state.values(), b = gpu.state.values();
    for (int f = 0; f <= rate; ++f) EXPECT_NEAR(a[std::size_t(f)], b[std::size_t(f)], 1e-6 * std::fabs(a[std::size_t(f)])) << "field " << f;
    EXPECT_NEAR(b[grad_norm], norm, 1e-6 * norm);
  }
};

TEST_F(AdamwGpu, IsTheTextbooksForEveryTypeAndSize) {
  const std::vector<std::int64_t> sizes{1, 7, 0, 4096, 4099, 3, 16384, 70001, 100, 8192};
  for (DType compute : float_types)
    for (double clip : {0.0, 1.0, 1e9}) check(sizes, compute, {.clip = clip}, compute == DType::f16 ? 1024 : 1, 5);
}

TEST_F(AdamwGpu, MoreTensorsThanOneLaunchHolds) {
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 1700; ++i) sizes.push_back(i % 13 + 1);
  check(sizes, DType::bf16, {}, 1, 2);
}

TEST_F(AdamwGpu, AGradientThatIsNotFiniteChangesNothingAndHalvesTheScale) {
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    Model gpu({5000, 7, 70000}, DType::bf16);
    gpu.all[2].grad.set(69999, bad);
    up(gpu);
    on_gpu([&](Context& ctx) {
      start(gpu.state.there(), 1024, ctx);
      set_rate(gpu.state.there(), 1e-2, ctx);
      update(gpu.updates(there), gpu.state.there(), {.dynamic_scale = true}, ctx);
    });
    Model before({5000, 7, 70000}, DType::bf16);
    down(gpu);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(gpu.all[i].master.bytes() == before.all[i].master.bytes());
      EXPECT_TRUE(gpu.all[i].m.bytes() == before.all[i].m.bytes());
      EXPECT_TRUE(gpu.all[i].copy.bytes() == before.all[i].copy.bytes());
    }
    const auto s = gpu.state.values();
    EXPECT_EQ(s[skipped], 1);
    EXPECT_EQ(s[updates], 0);
    EXPECT_EQ(s[loss_scale], 512);
  }
}

TEST_F(AdamwGpu, TheScaleGrowsAfterGoodUpdates) {
  Model gpu({100}, DType::f16);
  up(gpu);
  on_gpu([&](Context& ctx) { start(gpu.state.there(), 8, ctx); });
  for (int i = 0; i < 5; ++i)
    on_gpu([&](Context& ctx) { update(gpu.updates(there), gpu.state.there(), {.dynamic_scale = true, .growth_interval = 2}, ctx); });
  down(gpu);
  EXPECT_EQ(gpu.state.values()[loss_scale], 32);
  EXPECT_EQ(gpu.state.values()[good_updates], 1);
}

TEST_F(AdamwGpu, SameBitsEveryTimeAndInAGraphAtTheRateThatWasSet) {
  Model model({5000, 7, 70001, 300000}, DType::bf16);
  Model before = model;
  auto outputs = model.twins();
  expect_same_bits([&](Context& ctx) { update(model.updates(there), model.state.there(), {}, ctx); },
                   [&] {
                     for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i]->bytes() = before.twins()[i]->bytes();
                     up(model);
                     on_gpu([&](Context& ctx) { start(model.state.there(), 1, ctx), set_rate(model.state.there(), 3e-3, ctx); });
                   },
                   outputs);
}

}  // namespace
}  // namespace headroom::adamw
