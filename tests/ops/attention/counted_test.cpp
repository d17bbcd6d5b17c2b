// What no row of attention's table serves on a card: a step is refused with what serves it, a server's pass is counted and does not run.
#include <gtest/gtest.h>

#include "base/device.h"
#include "memory/block.h"
#include "ops/attention/choose_dry.h"

namespace headroom::attention {
namespace {

Problem wide() {  // absorbed latents of DeepSeek: one key head of 576 numbers, values of 512
  Problem p;
  p.batch = 2, p.heads = 16, p.kv_heads = 1, p.len_q = 1, p.len_k = 300, p.head_dim = 576, p.dim_v = 512;
  p.precision = {DType::bf16};
  return p;
}

TEST(CountedAttention, AStepIsRefusedWithWhatServesIt) {
  const Device card = device_described("h100");
  try {
    choose_dry(wide(), card, "flash");
    FAIL() << "flash does not serve 576";
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::unsupported);
    const std::string said = e.what();
    EXPECT_NE(said.find("flash_sm90: serves head_dim up to 256, it is 576"), std::string::npos) << said;
    EXPECT_TRUE(said.ends_with("; plain attention serves it")) << said;
  }
  EXPECT_EQ(choose_dry(wide(), card, "plain").name, "plain_cuda");
  EXPECT_EQ(choose_dry(wide(), Device{}, "flash").name, "flash") << "a CPU serves it";
}

TEST(CountedAttention, AServersPassIsCountedWithoutScratchAndDoesNotRun) {
  const Device card = device_described("h100");
  const Problem p = wide();
  const Variant& v = choose_for_server(p, card, "flash");
  EXPECT_EQ(v.name, "counted");
  EXPECT_FALSE(v.supports(p, card, Pass::forward));
  EXPECT_EQ(workspace_bytes(v, p, card, Pass::forward, 1), 0u);
  const Tensor q(nullptr, DType::bf16, p.q_shape()), k(nullptr, DType::bf16, p.k_shape()), values(nullptr, DType::bf16, p.v_shape()),
      o(nullptr, DType::bf16, p.o_shape()), lse(nullptr, DType::f32, p.lse_shape());
  const Forward call{.q = q, .k = k, .v = values, .o = o, .lse = lse, .saved = {}, .with = {}};
  Walk walk;
  Arena dry;
  Context counting{dry, card};
  counting.walk = &walk;
  forward(v, p, call, counting);
  ASSERT_EQ(walk.steps.size(), 1u);
  EXPECT_EQ(int(walk.steps[0].work), int(Work::attention));
  EXPECT_DOUBLE_EQ(walk.steps[0].cost.flops, 2.0 * (576 + 512) * 2 * 16 * 300);
  const Block memory(4096);
  Arena wet(memory.data(), memory.bytes());
  Context running{wet, card};
  EXPECT_THROW(forward(v, p, call, running), Error);
  Problem served = p;
  served.head_dim = 128, served.dim_v = 128;
  EXPECT_EQ(choose_for_server(served, card, "flash").name, choose(served, card, "flash").name) << "what a kernel serves is its own";
}

TEST(FamilyOfAttention, IsTheTablesAndNotThatOfAName) {
  for (const Variant& v : variants()) EXPECT_EQ(family_of(v.name), v.family) << v.name;
  EXPECT_EQ(family_of("flash"), "flash");
  EXPECT_EQ(family_of("plain"), "plain");
  EXPECT_EQ(family_of("flashy"), "");
}

}  // namespace
}  // namespace headroom::attention
