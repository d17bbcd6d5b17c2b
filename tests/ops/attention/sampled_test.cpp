// The sampled oracle is itself held against the whole one, and must not let a wrong result pass.
#include "ops/attention/sampled/sampled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "ops/attention/reference.h"

namespace headroom::attention {
namespace {

struct Inputs {
  std::vector<float> q, k, v, d_o;
  Tensor tq, tk, tv, td;
  explicit Inputs(const Problem& p) {
    const auto fill = [](std::vector<float>& x, Tensor& t, const Shape& shape, std::uint64_t stream) {
      x.resize(std::size_t(shape.count()));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{7}.stream(stream).normal(i);
      t = Tensor(x.data(), DType::f32, shape);
    };
    fill(q, tq, p.q_shape(), 1), fill(k, tk, p.k_shape(), 2), fill(v, tv, p.k_shape(), 3), fill(d_o, td, p.q_shape(), 4);
  }
};

// Tensors whose data are numbers of another memory: only the reader knows where that is.
TEST(SampledOracle, ReadsThroughWhoeverKeepsTheTensors) {
  Threads threads(2);
  const Problem p{.batch = 2, .heads = 4, .kv_heads = 2, .len_q = 9, .len_k = 70, .head_dim = 5, .mask = Mask::causal(), .precision = {}};
  Inputs in(p);
  const Reference whole = reference(p, in.tq, in.tk, in.tv, in.td);
  constexpr std::ptrdiff_t away = 1 << 20;
  const auto elsewhere = [](Tensor t) { return t.data = reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(t.data) ^ away), t; };
  const ReadHead read = [&](const Tensor& t, std::int64_t batch, std::int64_t head) { return head_in_memory(elsewhere(t), batch, head); };
  std::vector<float> o(whole.o.begin(), whole.o.end()), lse(whole.lse.begin(), whole.lse.end()), dk(whole.dk.begin(), whole.dk.end());
  const SampledOracle oracle(p, elsewhere(in.tq), elsewhere(in.tk), elsewhere(in.tv), elsewhere(in.td), threads, 3, read);
  const auto judged = [&] {
    return oracle.judge(elsewhere({o.data(), DType::f32, p.q_shape()}), elsewhere({lse.data(), DType::f32, p.lse_shape()}), {},
                        elsewhere({dk.data(), DType::f32, p.k_shape()}), {});
  };
  const Verdict right = judged();
  for (const Judged& j : {right.o, right.lse, right.dk}) EXPECT_LE(j.worst, 0.5);
  EXPECT_GT(right.o.max_error, 0);
  lse[lse.size() - 2] += 1e-2f, o.back() += 1e-2f;  // the last head, which is always judged
  EXPECT_GT(judged().lse.worst, 1);
  EXPECT_GT(judged().o.worst, 1);
}

std::vector<float> rounded(const std::vector<double>& x) { return {x.begin(), x.end()}; }

TEST(SampledOracle, AgreesWithTheWholeOneAndCatchesAWrongElement) {
  Threads threads(2);
  for (auto mask : {Mask::full(), Mask::causal(), Mask::sliding(5, Align::top_left)})
    for (auto [len_q, len_k] : {std::pair{33, 47}, {70, 9}, {1, 1}}) {
      const Problem p{.batch = 2, .heads = 4, .kv_heads = 2, .len_q = len_q, .len_k = len_k, .head_dim = 19, .mask = mask, .precision = {}};
      Inputs in(p);
      const Reference whole = reference(p, in.tq, in.tk, in.tv, in.td);
      auto o = rounded(whole.o), lse = rounded(whole.lse), dq = rounded(whole.dq), dk = rounded(whole.dk), dv = rounded(whole.dv);
      const Tensor to(o.data(), DType::f32, p.q_shape()), tl(lse.data(), DType::f32, p.lse_shape()),
          tdq(dq.data(), DType::f32, p.q_shape()), tdk(dk.data(), DType::f32, p.k_shape()), tdv(dv.data(), DType::f32, p.k_shape());
      const SampledOracle oracle(p, in.tq, in.tk, in.tv, in.td, threads, 3);
      const auto judged = [&] { return oracle.judge(to, tl, tdq, tdk, tdv); };
      const Verdict right = judged();
      for (const Judged& j : {right.o, right.lse, right.dq, right.dk, right.dv}) {
        EXPECT_LE(j.worst, 0.5) << name_of(mask) << " " << len_q << "x" << len_k;  // one rounding to FP32 is well within
        EXPECT_LE(j.max_error, 1e-5);
      }
      // The last head is always judged, and so is its last key; a key that no row sees has gradient 0 exactly.
      dk.back() += 1e-2f, dv.back() += 1e-2f, o.back() += 1e-2f, dq.back() += 1e-2f;
      const Verdict wrong = judged();
      for (const Judged& j : {wrong.o, wrong.dq, wrong.dk, wrong.dv}) EXPECT_GT(j.worst, 1) << name_of(mask);
      o.back() = std::nanf("");
      EXPECT_TRUE(std::isinf(judged().o.worst));
    }
}

// Dropout drops what the kernels drop: every element of a small problem is judged, and another seed is not taken for this one.
TEST(SampledOracle, KnowsWhichProbabilitiesWereDropped) {
  Threads threads(2);
  for (const Mask& mask : {Mask::full(), Mask::causal()}) {
    const Problem p{
        .batch = 2, .heads = 4, .kv_heads = 2, .len_q = 33, .len_k = 47, .head_dim = 19, .mask = mask, .precision = {}, .dropout = 0.3f};
    Inputs in(p);
    const Extras with{.seed = 5, .offset = 9};
    const Reference whole = reference(p, in.tq, in.tk, in.tv, in.td, {}, with);
    const auto o = rounded(whole.o), lse = rounded(whole.lse), dq = rounded(whole.dq), dk = rounded(whole.dk), dv = rounded(whole.dv);
    const auto tensor = [](const std::vector<float>& x, const Shape& shape) {
      return Tensor(const_cast<float*>(x.data()), DType::f32, shape);
    };
    const auto judged = [&](const Extras& asked) {
      return SampledOracle(p, in.tq, in.tk, in.tv, in.td, threads, 3, head_in_memory, nullptr, asked)
          .judge(tensor(o, p.q_shape()), tensor(lse, p.lse_shape()), tensor(dq, p.q_shape()), tensor(dk, p.k_shape()),
                 tensor(dv, p.k_shape()));
    };
    const Verdict right = judged(with), wrong = judged({.seed = 5, .offset = 10});
    for (const Judged& j : {right.o, right.lse, right.dq, right.dk, right.dv}) {
      EXPECT_LE(j.worst, 0.5) << name_of(mask);
      EXPECT_LE(j.max_error, 1e-5) << name_of(mask);
    }
    for (const Judged& j : {wrong.o, wrong.dq, wrong.dk, wrong.dv}) EXPECT_GT(j.worst, 1000) << name_of(mask);
    EXPECT_LE(wrong.lse.worst, 0.5) << "LSE does not include dropout";
  }
}

}  // namespace
}  // namespace headroom::attention
