#include "studies/memory/attention.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "memory/block.h"
#include "report/render.h"

namespace headroom::studies {
namespace {

constexpr std::uint64_t mib = 1 << 20;

attention::Problem problem(std::int64_t dim, std::int64_t len) {
  attention::Problem p;
  p.batch = 8, p.head_dim = dim, p.len_q = p.len_k = len;
  return p;
}

Device cpu() {
  Device d;
  d.name = "a CPU", d.memory_bytes = 24ull << 30;
  return d;
}

std::uint64_t bytes_of(const Account& a, const std::string& name) {
  for (const Component& c : a.components)
    if (c.name == name) return c.bytes;
  ADD_FAILURE() << "no " << name;
  return 0;
}

TEST(MemoryAttention, ArithmeticOnPaper) {  // batch 8, one head, 16 384 × 16 384, dim 16, fp32
  const OnPaper sums = on_paper(problem(16, 16384));
  EXPECT_EQ(sums.naive(), 32824 * mib);
  EXPECT_EQ(sums.tiled() - sums.inputs_and_gradients - sums.lse, 16 * mib);
  EXPECT_EQ(sums.lse, mib / 2);
}

TEST(MemoryAttention, FlashHoldsInputsGradientsOutputAndLseAndItsScratchDoesNotGrow) {
  const auto p = problem(16, 16384);
  const Account a = attention_account(p, cpu(), "flash");
  const OnPaper sums = on_paper(p);
  std::uint64_t named = 0;
  for (auto name : {"q", "k", "v", "dQ", "dK", "dV"}) named += bytes_of(a, name);
  EXPECT_EQ(named, sums.inputs_and_gradients);
  EXPECT_EQ(bytes_of(a, "o") + bytes_of(a, "dO"), 16 * mib);
  EXPECT_EQ(bytes_of(a, "lse"), sums.lse);
  EXPECT_EQ(a.saved_bytes, 8 * mib + sums.lse);
  EXPECT_EQ(a.before_backward_bytes, 32 * mib + sums.lse);
  EXPECT_GE(a.peak_bytes, sums.tiled());
}

TEST(MemoryAttention, PlainKeepsPAndPeaksWithTwoMatrices) {
  const auto p = problem(16, 4096);
  const Account a = attention_account(p, cpu(), "plain");
  const std::uint64_t scores = 512 * mib, q = 2 * mib, lse = 8 * 4096 * 4;
  EXPECT_EQ(a.saved_bytes, scores + q + lse);
  EXPECT_EQ(a.forward_peak_bytes, 2 * scores + 4 * q + lse);
  EXPECT_EQ(a.backward_peak_bytes, 2 * scores + 8 * q + lse);
}

TEST(MemoryAttention, TheAccountIsWhatAWetRunTakes) {
  attention::Problem p = problem(24, 130);
  p.heads = 6, p.kv_heads = 2, p.mask = attention::Mask::causal();
  for (const std::string variant : {"plain", "flash"}) {
    const Account a = attention_account(p, cpu(), variant);
    Block block(a.peak_bytes);
    Arena arena(block.data(), block.bytes());
    const Device device = cpu();
    Context ctx{arena, device};
    const auto& v = attention::choose(p, device, variant);
    const auto make = [&](const char* name, Shape s, DType t = DType::f32) {
      const Tensor x = arena.make(name, t, s);
      std::fill_n(x.as<float>(), x.count(), 0.5f);
      return x;
    };
    attention::Forward f{make("q", p.q_shape()), make("k", p.k_shape()),     make("v", p.k_shape()),
                         make("o", p.q_shape()), make("lse", p.lse_shape()), {}};
    f.saved = make_saved(v, p, ctx);
    forward(v, p, f, ctx);
    EXPECT_EQ(arena.used(), a.before_backward_bytes) << variant;
    EXPECT_EQ(arena.peak(), a.forward_peak_bytes) << variant;
    const attention::Backward b{f.q,
                                f.k,
                                f.v,
                                f.o,
                                f.lse,
                                make("dO", p.q_shape()),
                                {},
                                make("dQ", p.q_shape()),
                                make("dK", p.k_shape()),
                                make("dV", p.k_shape()),
                                f.saved};
    backward(v, p, b, ctx);
    EXPECT_EQ(arena.peak(), a.peak_bytes) << variant;
  }
}

TEST(MemoryAttention, ComponentsFormulasAndTimelineAddUp) {
  for (const std::string variant : {"plain", "flash"}) {
    const Account a = attention_account(problem(64, 1000), cpu(), variant);
    std::uint64_t at_peak = 0;
    double share = 0;
    for (const Component& c : a.components) {
      if (c.at_peak) at_peak += c.taken;
      share += c.share;
      std::uint64_t product = 1;  // the numbers behind the equals sign; those alone where no size has a name
      const auto equals = c.formula.find("= ");
      const std::string numbers = (equals == std::string::npos ? c.formula : c.formula.substr(equals + 2)) + "·";
      for (std::size_t from = 0, dot; (dot = numbers.find("·", from)) != std::string::npos; from = dot + std::string("·").size())
        product *= std::stoull(numbers.substr(from, dot - from));
      EXPECT_EQ(product, c.bytes) << c.name << " " << c.formula;
    }
    EXPECT_EQ(at_peak, a.peak_bytes) << variant;
    EXPECT_NEAR(share, 1, 1e-9);
    EXPECT_EQ(a.timeline.at(a.peak_moment).live, a.peak_bytes);
    EXPECT_EQ(a.components.front().formula, "B·N·H·D·4 = 8·1000·1·64·4");
  }
}

TEST(MemoryAttention, EdgeIsExactToOneToken) {
  for (const std::string variant : {"plain", "flash"}) {
    AttentionMemory asked;
    asked.device = cpu(), asked.dims = {64}, asked.lens = {1024, 2048, 4096}, asked.variants = {variant};
    const auto json = nlohmann::json::parse(render_json(memory_attention(asked).record));
    const auto& line = json.at("analysis").at(0);
    const std::int64_t len = line.at("largest_len"), batch = line.at("largest_batch");
    const std::uint64_t memory = asked.device.memory_bytes;
    EXPECT_LE(attention_peak_bytes(problem(64, len), cpu(), variant), memory);
    EXPECT_GT(attention_peak_bytes(problem(64, len + 1), cpu(), variant), memory);
    auto p = problem(64, 4096);
    p.batch = batch;
    EXPECT_LE(attention_peak_bytes(p, cpu(), variant), memory);
    p.batch = batch + 1;
    EXPECT_GT(attention_peak_bytes(p, cpu(), variant), memory);
    if (variant == "flash")
      EXPECT_NEAR(double(line.at("peak_exponent")), 1, 0.02);
    else
      EXPECT_NEAR(double(line.at("peak_exponent")), 2, 0.15);
  }
}

TEST(MemoryAttention, RowsCarryWhatTheSpecificationNames) {
  AttentionMemory asked;
  asked.device = cpu(), asked.dims = {16, 32}, asked.lens = {256}, asked.precisions = {{}, *precision_named("fp8")},
  asked.variants = {"flash"};
  const auto json = nlohmann::json::parse(render_json(memory_attention(asked).record));
  ASSERT_EQ(json.at("rows").size(), 4u);
  for (const auto& row : json.at("rows"))
    for (auto key : {"dim", "len", "dtype", "variant", "saved_bytes", "before_backward_bytes", "peak_bytes", "components", "status", "why"})
      EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(json["rows"][0]["status"], "ok");
  for (auto key : {"name", "shape", "dtype", "bytes", "formula", "phase"})
    EXPECT_TRUE(json["rows"][0]["components"][0].contains(key)) << key;
  EXPECT_EQ(json["rows"][2]["status"], "refused");  // fp8, never left out
  EXPECT_TRUE(json["rows"][2]["peak_bytes"].is_null());
  EXPECT_NE(json["rows"][2]["why"], "");
}

}  // namespace
}  // namespace headroom::studies
