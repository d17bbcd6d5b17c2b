#include "ops/gated_product/gated_product.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/matmul/matmul.h"
#include "ops/swiglu/swiglu.h"
#include "tests/ops/on_card.h"

namespace headroom::gated_product {
namespace {

using on_card::Twin;

const Device cpu;
const Device& h200() {
  static const Device d = device_described("h200");
  return d;
}
Tensor shaped(Shape s, DType t = DType::bf16) { return {nullptr, t, s}; }

struct Factors {
  Twin x, w, dy, down;
  Factors(DType type, const Sizes& s)
      : x(type, {s.rows, s.terms}), w(type, {2 * s.width, s.terms}), dy(type, {s.rows, s.terms}), down(type, {s.terms, s.width}) {
    x.normal(1), w.normal(2), dy.normal(3), down.normal(4);
  }
};
struct Results {
  Twin gate_up, act, again;
  Results(DType type, const Sizes& s) : gate_up(type, {s.rows, 2 * s.width}), act(type, {s.rows, s.width}), again(act) {}
};

class GatedProduct : public testing::Test {
 protected:
  Block memory{8 << 20};
  Threads pool{2};
  void on_cpu(const std::function<void(Context&)>& work) {
    Arena arena(memory.data(), memory.bytes());
    Context ctx{arena, cpu, &pool};
    work(ctx);
  }
};

TEST_F(GatedProduct, IsMatmulAndSwigluToTheBit) {
  for (const DType type : on_card::float_types)
    for (const Sizes& s : {Sizes{17, 24, 40}, {1, 1, 1}, {64, 100, 72}})
      for (const bool with_act : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} x {} x {}, act {}", name_of(type), s.rows, s.terms, s.width, with_act));
        Factors f(type, s);
        Results one(type, s), two(type, s);
        on_cpu([&](Context& ctx) {
          const auto given = [&](Twin& t) { return with_act ? t.here() : Tensor(); };
          forward({.x = f.x.here(), .w = f.w.here(), .gate_up = one.gate_up.here(), .act = given(one.act)}, ctx);
          matmul::multiply({f.x.here(), matmul::transposed(f.w.here()), two.gate_up.here()}, ctx);
          if (with_act) swiglu::forward({two.gate_up.here(), two.act.here()}, ctx);
          EXPECT_EQ(one.gate_up.bytes(), two.gate_up.bytes());
          backward({.dy = f.dy.here(), .w = f.down.here(), .gate_up = one.gate_up.here(), .act = given(one.again)}, ctx);
          const Tensor dact = ctx.arena.make("dact", type, {s.rows, s.width});
          matmul::multiply({f.dy.here(), f.down.here(), dact}, ctx);
          swiglu::backward({two.gate_up.here(), dact, two.gate_up.here(), given(two.again)}, ctx);
        });
        EXPECT_EQ(one.gate_up.bytes(), two.gate_up.bytes());
        EXPECT_EQ(one.act.bytes(), two.act.bytes());
        EXPECT_EQ(one.again.bytes(), two.again.bytes());
        if (with_act) { EXPECT_EQ(one.again.bytes(), one.act.bytes()) << "act again is act"; }
      }
}

Walk walk_of(const Device& d, std::size_t* scratch, bool with_act) {
  Arena dry;
  Walk walk;
  Context ctx{dry, d};
  ctx.walk = &walk;
  const Tensor x = shaped({4096, 1280}), gate_up = shaped({4096, 10240}), act = with_act ? shaped({4096, 5120}) : Tensor();
  forward({.x = x, .w = shaped({10240, 1280}), .gate_up = gate_up, .act = act}, ctx, {"ffn.gate_up", 3});
  backward({.dy = x, .w = shaped({1280, 5120}), .gate_up = gate_up, .act = act}, ctx, {"ffn.down.dx", 3});
  *scratch = dry.peak();
  return walk;
}

TEST(GatedProductDry, AGpuNeedsNoScratchAndNotesOneOp) {
  for (const bool with_act : {true, false}) {
    std::size_t scratch = 0;
    const Walk walk = walk_of(h200(), &scratch, with_act);
    EXPECT_EQ(scratch, 0);
    ASSERT_EQ(walk.steps.size(), 2);
    const OpCall &f = walk.steps[0], &b = walk.steps[1];
    EXPECT_EQ(f.op.full(), "block 3 gated_product.forward");
    EXPECT_EQ(b.op.full(), "block 3 gated_product.backward");
    const double act = with_act ? 2.0 * 4096 * 5120 : 0, x = 2.0 * 4096 * 1280, w = 2.0 * 1280 * 5120, gate_up = 4.0 * 4096 * 5120;
    EXPECT_EQ(f.cost.bytes, x + 2 * w + gate_up + act);
    EXPECT_EQ(b.cost.bytes, x + w + 2 * gate_up + act) << "the product's gradient is not stored";
    EXPECT_EQ(f.cost.sides.n, 10240);
    EXPECT_EQ(b.cost.sides.n, 5120);
    EXPECT_EQ(f.making, Making::values);
    EXPECT_EQ(b.making, Making::gradients);
  }
}

TEST(GatedProductDry, ACpuNotesBothOpsAndTakesTheGradientWhereActHasNoPlace) {
  std::size_t with = 0, without = 0;
  const Walk walk = walk_of(cpu, &with, true);
  std::vector<std::string> names;
  for (const OpCall& op : walk.steps) names.push_back(op.op.text);
  EXPECT_EQ(names, (std::vector<std::string>{"ffn.gate_up", "swiglu.forward", "ffn.down.dx", "swiglu.backward"}));
  walk_of(cpu, &without, false);
  EXPECT_EQ(without - with, 2 * 4096 * 5120);
}

TEST(GatedProductDry, SaysWhyNot) {
  const Sizes large{4096, 1280, 5120};
  EXPECT_TRUE(supports(large, DType::bf16, h200()).ok);
  EXPECT_TRUE(supports(large, DType::f32, cpu).ok);
  EXPECT_NE(supports(large, DType::f16, h200()).why.find("bf16"), std::string::npos);
  EXPECT_NE(supports({4096, 1284, 5120}, DType::bf16, h200()).why.find("8 must divide"), std::string::npos);
  EXPECT_NE(supports({4096, 1280, 5124}, DType::bf16, h200()).why.find("8 must divide"), std::string::npos);
  EXPECT_NE(supports({64, 1280, 5120}, DType::bf16, h200()).why.find("fewer tiles"), std::string::npos);
  EXPECT_NE(supports(large, DType::bf16, device_described("a100")).why.find("sm_90"), std::string::npos);
}

TEST(GatedProductDry, RefusesWhatDoesNotFitTogether) {
  Arena dry;
  Context ctx{dry, h200()};
  const Tensor x = shaped({4096, 1280}), gate_up = shaped({4096, 10240});
  EXPECT_THROW(forward({.x = x, .w = shaped({5120, 1280}), .gate_up = gate_up}, ctx), Error);
  EXPECT_THROW(forward({.x = x, .w = shaped({10240, 1280}), .gate_up = gate_up, .act = shaped({4096, 10240})}, ctx), Error);
  EXPECT_THROW(backward({.dy = x, .w = shaped({5120, 1280}), .gate_up = gate_up}, ctx), Error);
  EXPECT_THROW(backward({.dy = x, .w = shaped({1280, 5120}, DType::f32), .gate_up = gate_up}, ctx), Error);
}

}  // namespace
}  // namespace headroom::gated_product
