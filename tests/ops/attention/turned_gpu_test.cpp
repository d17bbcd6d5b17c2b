// dQ and dK turned back by backward itself, against those of backward turned back afterwards, number by number.
#include <cmath>
#include <limits>

#include "ops/rope/rope.h"
#include "tests/ops/attention/on_gpu.h"

namespace headroom::attention {
namespace {

class TurnedGpu : public OnGpu {};

struct Gradients {
  std::vector<double> dq, dk, dv;
};
Gradients gradients_of(const Variant& v, const Case& c, const Device& device, const Stream& stream, const Tensor& turned_by) {
  Tensors x = tensors_of(c);
  Wet wet(v, c, x, device, stream);
  wet.turned_by = turned_by;
  wet.forward(), wet.backward();
  wet.t.back();
  EXPECT_TRUE(x.dq.guards_intact() && x.dk.guards_intact() && x.dv.guards_intact());
  return {x.dq.values(), x.dk.values(), x.dv.values()};
}

// x [batch, len, heads, dim] was rounded before it is turned here, and y after it was turned there.
void expect_turned_back(const std::vector<double>& x, const std::vector<double>& y, const std::vector<float>& table, std::int64_t len,
                        std::int64_t heads, std::int64_t dim, double rounding) {
  const std::int64_t half = dim / 2;
  double worst = 0;
  for (std::int64_t at = 0; at < std::int64_t(x.size()); ++at) {
    const std::int64_t i = at % dim, row = at / (heads * dim) % len, pair = i % half;
    if (i >= half) continue;
    const double c = table[std::size_t(row * dim + pair)], s = table[std::size_t(row * dim + half + pair)];
    const double p = x[std::size_t(at)], q = x[std::size_t(at + half)], size = rounding * (std::abs(p) + std::abs(q)) + 1e-6;
    for (const double error : {y[std::size_t(at)] - (p * c + q * s), y[std::size_t(at + half)] - (q * c - p * s)})
      worst = std::isfinite(error) ? std::max(worst, std::abs(error) / size) : std::numeric_limits<double>::infinity();
  }
  EXPECT_LE(worst, 2);
}

TEST_F(TurnedGpu, AsTurnedAfterwards) {
  int ran = 0;
  for (const Variant& v : variants())
    for (const std::int64_t dim : {64, 80, 96, 128})
      for (const Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(200)})
        for (const bool deterministic : {false, true})
          for (const auto& [heads, kv_heads, len, layout] :
               {std::tuple{4, 4, 768, Layout::rows}, {6, 2, 500, Layout::heads_first}, {2, 1, 77, Layout::rows}}) {
            const Precision precision = precisions[ran % 2];
            Case c{problem(heads, kv_heads, len, len, dim, mask, precision), layout, Values::normal, false, 21};
            c.problem.deterministic = deterministic;
            if (!serves(v, c.problem, Pass::backward) || !turns_back(v, c.problem)) continue;
            SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
            const auto table = rope::table_of(rope::frequencies({}, dim, len), len);
            Buffer there(table.size() * sizeof(float));
            copy_to_device(there.data(), table.data(), there.bytes(), *stream);
            const Gradients plain = gradients_of(v, c, device, *stream, {}),
                            turned = gradients_of(v, c, device, *stream, Tensor(there.data(), DType::f32, {len, dim}));
            const double rounding = precision.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
            expect_turned_back(plain.dq, turned.dq, table, len, heads, dim, rounding);
            expect_turned_back(plain.dk, turned.dk, table, len, kv_heads, dim, rounding);
            EXPECT_EQ(plain.dv, turned.dv);
            ++ran;
          }
  if (device.sm == 90 && only.empty())
    EXPECT_EQ(ran, 72);
  else if (ran == 0)
    GTEST_SKIP() << "no variant of " << device.name << " turns gradients back";
}

}  // namespace
}  // namespace headroom::attention
