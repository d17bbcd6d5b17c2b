// Gradients against finite differences, NaN where the inputs hold one and nowhere else, and views past 2^31 elements.
#include <sys/mman.h>

#include "tests/attention_run.h"

namespace headroom::attention {
namespace {

using namespace cases;

double loss(const std::vector<double>& o, const std::vector<double>& lse, const std::vector<double>& d_o, const std::vector<double>& dlse) {
  double sum = 0;
  for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
  for (std::size_t i = 0; i < lse.size(); ++i)
    if (std::isfinite(lse[i])) sum += lse[i] * dlse[i];
  return sum;
}

TEST(AttentionGradient, TheOracleAgreesWithFiniteDifferences) {
  for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(2)}) {
    Problem p = problem_of(2, 1, 5, 4, 3, mask);
    const Random random{3};
    const auto fill = [&](std::int64_t n, std::uint64_t stream) {
      std::vector<double> x(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.stream(stream).normal(i);
      return x;
    };
    std::vector<double> inputs[] = {fill(p.q_shape().count(), 1), fill(p.k_shape().count(), 2), fill(p.k_shape().count(), 3)};
    auto d_o = fill(p.q_shape().count(), 4), dlse = fill(p.lse_shape().count(), 5);
    std::vector<float> dlse32(dlse.begin(), dlse.end());
    const auto forward64 = [&](bool gradients) {
      return reference(p, {inputs[0].data(), DType::f64, p.q_shape()}, {inputs[1].data(), DType::f64, p.k_shape()},
                       {inputs[2].data(), DType::f64, p.k_shape()}, gradients ? Tensor(d_o.data(), DType::f64, p.q_shape()) : Tensor(),
                       gradients ? Tensor(dlse32.data(), DType::f32, p.lse_shape()) : Tensor());
    };
    const Reference exact = forward64(true);
    const std::vector<double>* gradients[] = {&exact.dq, &exact.dk, &exact.dv};
    for (int which = 0; which < 3; ++which)
      for (std::size_t i = 0; i < inputs[which].size(); ++i) {
        const double at = inputs[which][i], h = 1e-5;
        inputs[which][i] = at + h;
        const Reference above = forward64(false);
        inputs[which][i] = at - h;
        const Reference below = forward64(false);
        inputs[which][i] = at;
        const double slope = (loss(above.o, above.lse, d_o, dlse) - loss(below.o, below.lse, d_o, dlse)) / (2 * h);
        ASSERT_NEAR((*gradients[which])[i], slope, 2e-7) << "input " << which << " element " << i << " " << name_of(mask);
      }
  }
}

TEST(AttentionGradient, EveryVariantAgreesWithADirectionalDifference) {
  const Case c{problem_of(2, 2, 70, 70, 16, Mask::causal()), Layout::rows, Values::normal, true, 5};
  for (const Variant& v : variants()) {
    if (!serves(v, c.problem)) continue;
    Tensors x = tensors_of(c);
    run(v, c, x, nullptr);
    const double h = 1e-2;
    double along = 0, size = 0;
    double ends[2] = {0, 0};
    for (int end = 0; end < 2; ++end) {
      Tensors moved = tensors_of(c);
      std::uint64_t stream = 100;
      for (const auto& pair : {std::pair{&moved.q, &x.dq}, {&moved.k, &x.dk}, {&moved.v, &x.dv}}) {
        Guarded& input = *pair.first;
        const Random r = Random{c.seed}.stream(stream++);
        const auto values = input.values(), slopes = pair.second->values();
        input.each([&](std::int64_t flat, std::int64_t offset) {
          const float direction = r.normal(std::uint64_t(flat));
          input.set(offset, float(values[std::size_t(flat)] + (end ? -h : h) * direction));
          if (end) return;
          along += slopes[std::size_t(flat)] * direction, size += std::abs(slopes[std::size_t(flat)] * direction);
        });
      }
      run(v, c, moved, nullptr);
      ends[end] = loss(moved.o.values(), moved.lse.values(), x.d_o.values(), x.dlse.values());
    }
    EXPECT_NEAR(along, (ends[0] - ends[1]) / (2 * h), 1e-3 * size) << v.name;
  }
}

TEST(AttentionNan, StaysWhereTheInputsHaveOne) {
  Case c{problem_of(1, 1, 90, 90, 16, Mask::causal()), Layout::rows, Values::normal, false, 6};
  for (const Variant& v : variants()) {
    if (!serves(v, c.problem)) continue;
    Tensors x = tensors_of(c);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    x.q.set(40 * 16 + 3, nan);
    run(v, c, x, nullptr);
    auto o = x.o.values(), lse = x.lse.values();
    for (std::size_t row = 0; row < 180; ++row) {
      ASSERT_EQ(std::isnan(lse[row]), row == 40) << v.name << " row " << row;
      for (std::size_t d = 0; d < 16; ++d) ASSERT_EQ(std::isnan(o[row * 16 + d]), row == 40) << v.name << " row " << row;
    }
    x = tensors_of(c);
    x.k.set(50 * 16, nan);  // rows 50 … 89 of the first batch see it
    run(v, c, x, nullptr);
    lse = x.lse.values();
    for (std::size_t row = 0; row < 180; ++row) ASSERT_EQ(std::isnan(lse[row]), row >= 50 && row < 90) << v.name << " row " << row;
    x = tensors_of(c);
    x.v.set(30 * 16 + 2, float_of(0x7fc00001));  // a payload must not be mistaken for an exponent
    run(v, c, x, nullptr);
    o = x.o.values();
    for (std::size_t row = 30; row < 90; ++row) ASSERT_TRUE(std::isnan(o[row * 16 + 2])) << v.name << " row " << row;
    for (std::size_t at = 90 * 16; at < o.size(); ++at) ASSERT_FALSE(std::isnan(o[at])) << v.name;
  }
}

TEST(AttentionSize, RowsPastTwoToThe31Elements) {
  // Rows are 2^30 elements apart, so the last ones lie past 2^31; only the pages that are touched exist.
  const Case c{problem_of(2, 2, 4, 4, 8, Mask::causal()), Layout::rows, Values::normal, true, 7};
  const std::int64_t apart = 1ll << 30;
  const std::size_t bytes = std::size_t(4 * apart) * sizeof(float);
  std::vector<void*> maps;
  Tensors x = tensors_of(c);
  Views near = views_of(c, x), far = near;
  for (Tensor* t : {&far.q, &far.k, &far.v, &far.d_o, &far.o, &far.dq, &far.dk, &far.dv}) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) break;
    maps.push_back(at);
    t->data = at;
    t->stride = {64, apart, 8, 1};
  }
  const bool enough = maps.size() == 8;
  const auto copy = [&](const Tensor& from, const Tensor& to) {
    for (std::int64_t b = 0; b < from.shape[0]; ++b)
      for (std::int64_t row = 0; row < from.shape[1]; ++row)
        for (std::int64_t h = 0; h < from.shape[2]; ++h)
          for (std::int64_t d = 0; d < from.shape[3]; ++d)
            to.as<float>()[b * to.stride[0] + row * to.stride[1] + h * to.stride[2] + d] =
                from.as<float>()[b * from.stride[0] + row * from.stride[1] + h * from.stride[2] + d];
  };
  if (enough)
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem)) continue;
      copy(near.q, far.q), copy(near.k, far.k), copy(near.v, far.v), copy(near.d_o, far.d_o);
      run(v, c, far, nullptr);
      copy(far.o, near.o), copy(far.dq, near.dq), copy(far.dk, near.dk), copy(far.dv, near.dv);
      judge(c, x, v.family == "plain");
    }
  for (void* at : maps) munmap(at, bytes);
  if (!enough) GTEST_SKIP() << "the system grants no 16 GiB of address space at a time";
}

}  // namespace
}  // namespace headroom::attention
