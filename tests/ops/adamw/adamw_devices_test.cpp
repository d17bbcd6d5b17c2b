#include "ops/adamw/adamw.h"

#include "ops/copy/split.h"
#include "tests/ops/on_devices.h"

namespace headroom::adamw {
namespace {

using namespace on_card;

struct Parameter {
  Twin grad, master, m, v, copy;
  bool decay;
};

struct Model {
  std::vector<Parameter> parameters;
  Twin state{DType::f64, {state_size}};

  Model(const std::vector<std::int64_t>& sizes, DType compute) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t shift = i % 5 == 4 ? 1 : 0;
      Parameter p{.grad = {DType::f32, {sizes[i]}, shift},
                  .master = {DType::f32, {sizes[i]}},
                  .m = {DType::f32, {sizes[i]}},
                  .v = {DType::f32, {sizes[i]}},
                  .copy = {},
                  .decay = i % 2 == 0};
      if (compute != DType::f32 && i % 3 != 0) p.copy = Twin(compute, {sizes[i]});
      if (p.copy && i % 2 == 1) p.grad = Twin(compute, {sizes[i]}, shift);  // some are narrow, some FP32
      p.grad.normal(10 * i);
      p.master.normal(10 * i + 1);
      p.m.normal(0, 0);
      p.v.normal(0, 0);
      parameters.push_back(std::move(p));
    }
  }
  std::vector<Update> updates(const On& at) {
    std::vector<Update> out;
    for (Parameter& p : parameters)
      out.push_back({.grad = at(p.grad),
                     .master = at(p.master),
                     .m = at(p.m),
                     .v = at(p.v),
                     .copy = p.copy ? at(p.copy) : Tensor(),
                     .decay = p.decay});
    return out;
  }
  std::vector<Twin*> all() {
    std::vector<Twin*> out{&state};
    for (Parameter& p : parameters)
      for (Twin* t : {&p.grad, &p.master, &p.m, &p.v, &p.copy})
        if (*t) out.push_back(t);
    return out;
  }
};

struct Weights {
  std::vector<double> w, m, v, copy;
};

// `steps` updates by the formula of the paper, with the same gradient each time.
template <class Real>
Weights textbook(Parameter& p, const Hyper& h, double factor, int steps) {
  Weights o{p.master.values(), p.m.values(), p.v.values(), {}};
  const auto g = p.grad.values();
  for (int step = 1; step <= steps; ++step) {
    const double lr = 1e-2 / step, correct1 = 1 - std::pow(h.beta1, step), correct2 = 1 - std::pow(h.beta2, step);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const Real x = Real(g[i]) * Real(factor);
      const Real m = Real(h.beta1) * Real(o.m[i]) + Real(1 - h.beta1) * x, v = Real(h.beta2) * Real(o.v[i]) + Real(1 - h.beta2) * x * x;
      const Real w = Real(o.w[i]) * Real(p.decay ? 1 - lr * h.decay : 1);
      o.m[i] = double(m);
      o.v[i] = double(v);
      o.w[i] = double(w - Real(lr) * (m / Real(correct1)) / (std::sqrt(v / Real(correct2)) + Real(h.eps)));
    }
  }
  o.copy = o.w;
  if (std::is_same_v<Real, float> && p.copy)
    for (double& x : o.copy) x = stored_as(p.copy.here().dtype, x);
  return o;
}

class Adamw : public OnDevices {
 protected:
  void check(const std::vector<std::int64_t>& sizes, DType compute, const Hyper& h, double scale, int steps) {
    SCOPED_TRACE(fmt::format("{} tensors, {}, clip {}, scale {}", sizes.size(), name_of(compute), h.clip, scale));
    Model inputs(sizes, compute);
    double squares = 0;
    for (Parameter& p : inputs.parameters)
      for (double x : p.grad.values()) squares += x * x;
    const double norm = std::sqrt(squares) / scale, share = (h.clip > 0 && norm > h.clip ? h.clip / norm : 1) / scale;
    std::vector<Weights> oracle, honest;
    for (Parameter& p : inputs.parameters) {
      oracle.push_back(textbook<double>(p, h, share, steps));
      honest.push_back(textbook<float>(p, h, share, steps));
    }
    for (Where where : devices()) {
      Model model = inputs;
      run(where, model.all(), [&](Context& ctx, const On& at) { start(at(model.state), scale, ctx); });
      for (int step = 1; step <= steps; ++step)
        run(where, model.all(), [&](Context& ctx, const On& at) {
          set_rate(at(model.state), 1e-2 / step, ctx);
          update(model.updates(at), at(model.state), h, ctx);
        });
      for (std::size_t i = 0; i < oracle.size(); ++i) {
        Parameter& p = model.parameters[i];
        hold("weight", p.master, honest[i].w, oracle[i].w, DType::f32);
        hold("m", p.m, honest[i].m, oracle[i].m, DType::f32);
        hold("v", p.v, honest[i].v, oracle[i].v, DType::f32);
        if (p.copy) hold("copy", p.copy, honest[i].copy, oracle[i].copy, compute);
      }
      const auto s = model.state.values();
      EXPECT_EQ(s[loss_scale], scale);
      EXPECT_EQ(s[updates], steps);
      EXPECT_EQ(s[skipped], 0);
      EXPECT_EQ(s[rate], 1e-2 / steps);
      EXPECT_NEAR(s[grad_norm], norm, 1e-6 * norm);
      EXPECT_NEAR(s[factor], share, 1e-6 * share);
    }
  }
};
HEADROOM_ON_DEVICES(Adamw);

TEST_P(Adamw, IsTheTextbooksForEveryTypeAndSize) {
  const std::vector<std::int64_t> sizes{1, 7, 0, 4096, 4099, 3, 16384, 70001, 100, 8192};
  for (DType compute : float_types)
    for (double clip : {0.0, 1.0, 1e9}) check(sizes, compute, {.clip = clip}, compute == DType::f16 ? 1024 : 1, 5);
  check({65536, 65537, 131073}, DType::bf16, {.decay = 0}, 1, 3);
}

TEST_P(Adamw, ManySmallTensors) {  // more than one launch on a GPU holds
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < 1700; ++i) sizes.push_back(i % 13 + 1);
  check(sizes, DType::bf16, {}, 1, 2);
}

TEST_P(Adamw, AGradientThatIsNotFiniteChangesNothingAndHalvesTheScale) {
  for (Where where : devices())
    for (float bad : {INFINITY, -INFINITY, NAN}) {
      Model model({5000, 7, 70000}, DType::bf16);
      model.parameters[2].grad.set(69999, bad);
      Model before = model;
      run(where, model.all(), [&](Context& ctx, const On& at) {
        start(at(model.state), 1024, ctx);
        set_rate(at(model.state), 1e-2, ctx);
        update(model.updates(at), at(model.state), {.dynamic_scale = true}, ctx);
      });
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(model.parameters[i].master.bytes() == before.parameters[i].master.bytes());
        EXPECT_TRUE(model.parameters[i].m.bytes() == before.parameters[i].m.bytes());
        EXPECT_TRUE(model.parameters[i].v.bytes() == before.parameters[i].v.bytes());
        EXPECT_TRUE(model.parameters[i].copy.bytes() == before.parameters[i].copy.bytes());
      }
      const auto s = model.state.values();
      EXPECT_EQ(s[skipped], 1);
      EXPECT_EQ(s[updates], 0);
      EXPECT_EQ(s[loss_scale], 512);
    }
}

TEST_P(Adamw, TheScaleGrowsAfterGoodUpdates) {
  for (Where where : devices()) {
    Model model({100}, DType::f16);
    run(where, model.all(), [&](Context& ctx, const On& at) { start(at(model.state), 8, ctx); });
    for (int i = 0; i < 5; ++i)
      run(where, model.all(), [&](Context& ctx, const On& at) {
        update(model.updates(at), at(model.state), {.dynamic_scale = true, .growth_interval = 2}, ctx);
      });
    EXPECT_EQ(model.state.values()[loss_scale], 32);
    EXPECT_EQ(model.state.values()[good_updates], 1);
  }
}

TEST_P(Adamw, AWeightInTwoHalvesHasTheBitsOfAMaster) {
  for (Where where : devices()) {
    Model model({70001}, DType::bf16);
    Parameter& whole = model.parameters[0];
    Parameter halves = whole;
    Twin upper(DType::bf16, {70001}), rest(DType::u16, {70001}), state = model.state;
    const std::vector<Twin*> all{&model.state, &state,    &whole.grad, &whole.master, &whole.m, &whole.v,
                                 &halves.grad, &halves.m, &halves.v,   &upper,        &rest};
    run(where, all, [&](Context& ctx, const On& at) {
      copy::split(at(whole.master), at(upper), at(rest), ctx);
      for (Twin* s : {&model.state, &state}) {
        start(at(*s), 1, ctx);
        set_rate(at(*s), 1e-2, ctx);
      }
      const Update one{.grad = at(whole.grad), .master = at(whole.master), .m = at(whole.m), .v = at(whole.v), .copy = {}};
      const Update two{.grad = at(halves.grad), .master = {}, .m = at(halves.m), .v = at(halves.v), .copy = at(upper), .rest = at(rest)};
      for (int step = 0; step < 3; ++step) {
        update(std::span(&one, 1), at(model.state), {}, ctx);
        update(std::span(&two, 1), at(state), {}, ctx);
      }
    });
    for (std::int64_t i = 0; i < 70001; ++i) {
      const copy::Halves h{upper.here().as<bf16>()[i], rest.here().as<std::uint16_t>()[i]};
      ASSERT_EQ(bits_of(copy::join(h)), bits_of(whole.master.here().as<float>()[i])) << i;
    }
    EXPECT_TRUE(whole.v.bytes() == halves.v.bytes());
  }
}

TEST_P(Adamw, InPartsHasTheBitsOfTheWhole) {
  const Hyper no_norm{.clip = 0};
  for (Where where : devices()) {
    Model whole({5000, 7, 70001}, DType::bf16);
    Model parts = whole;
    run(where, whole.all(), [&](Context& ctx, const On& at) {
      start(at(whole.state), 1, ctx);
      set_rate(at(whole.state), 1e-2, ctx);
      update(whole.updates(at), at(whole.state), no_norm, ctx);
    });
    run(where, parts.all(), [&](Context& ctx, const On& at) {
      start(at(parts.state), 1, ctx);
      set_rate(at(parts.state), 1e-2, ctx);
      const Tensor numbers = begin(at(parts.state), no_norm, ctx);
      const auto all = parts.updates(at);
      for (std::size_t i : {2, 0, 1}) advance(std::span(&all[i], 1), numbers, ctx);
    });
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(whole.parameters[i].master.bytes() == parts.parameters[i].master.bytes()) << i;
      EXPECT_TRUE(whole.parameters[i].copy.bytes() == parts.parameters[i].copy.bytes()) << i;
    }
    EXPECT_EQ(parts.state.values()[updates], 1);
  }
}

TEST_P(Adamw, SameBitsEveryTimeAtTheRateThatWasSet) {
  Model model({5000, 7, 70001, 300000}, DType::bf16);
  run(GetParam(), model.all(), [&](Context& ctx, const On& at) {
    start(at(model.state), 1, ctx);
    set_rate(at(model.state), 3e-3, ctx);
  });
  expect_same_bits(model.all(), [&](Context& ctx, const On& at) { update(model.updates(at), at(model.state), {}, ctx); });
}

}  // namespace
}  // namespace headroom::adamw
