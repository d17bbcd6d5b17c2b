#include "base/policy.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/error.h"

namespace headroom {
namespace {

std::string refusal(const std::string& table) {
  Policy p = headroom_policy();
  try {
    p.override_with(table, "mine.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::bad_argument);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(Policy, MastersGradientsAndOptimiserAreFp32AndMatmulsLow) {
  const Policy p = headroom_policy();
  for (auto tensor : {"parameters", "gradients", "optimizer"}) EXPECT_EQ(p.tensor(tensor).dtype, Cast::fp32) << tensor;
  EXPECT_EQ(p.tensor("weight_copy").dtype, Cast::low);
  for (auto op : {"linear", "matmul", "attention"}) {
    EXPECT_EQ(p.rule_for(op).inputs, Cast::low) << op;
    EXPECT_EQ(p.rule_for(op).math, Cast::fp32) << op;
    EXPECT_EQ(p.rule_for(op).output, Cast::low) << op;
  }
  for (auto op : {"layer_norm", "softmax", "cross_entropy"}) EXPECT_EQ(p.rule_for(op).output, Cast::fp32) << op;
  for (auto op : {"rms_norm", "rope", "swiglu", "add"}) EXPECT_EQ(p.rule_for(op).math, Cast::fp32) << op;
  EXPECT_TRUE(p.rule_for("cross_entropy").loss);
  for (const auto& rule : p.ops) EXPECT_FALSE(rule.why.empty()) << rule.op;
}

TEST(Policy, PytorchDiffersInTheLanguageModelsResidualStreamOnly) {
  const Policy ours = headroom_policy(), theirs = pytorch_policy();
  for (const auto& rule : theirs.ops) {
    const bool differs = ours.rule_for(rule.op).output != rule.output || ours.rule_for(rule.op).inputs != rule.inputs;
    EXPECT_EQ(differs, rule.op.ends_with("embedding") || rule.op == "linear_add" || rule.op == "rms_norm" || rule.op == "head") << rule.op;
    EXPECT_EQ(rule.source, differs ? "pytorch" : "headroom");
  }
}

TEST(Policy, AFileOverridesRowsAndAddsOthers) {
  Policy p = headroom_policy();
  const auto before = p.ops.size();
  p.override_with(R"({"tensors": {"gradients": {"dtype": "low"}}, "ops": {"linear": {"inputs": "fp32", "output": "fp32", "why": "a test"},
                      "fourier": {"inputs": "fp32", "output": "fp32"}}})",
                  "mine.json");
  EXPECT_EQ(p.ops.size(), before + 1);
  EXPECT_EQ(p.rule_for("linear").inputs, Cast::fp32);
  EXPECT_EQ(p.rule_for("linear").why, "a test");
  EXPECT_EQ(p.rule_for("linear").source, "mine.json");
  EXPECT_EQ(p.rule_for("matmul").source, "headroom");
  EXPECT_EQ(p.rule_for("fourier").output, Cast::fp32);
  EXPECT_EQ(p.tensor("gradients").dtype, Cast::low);
  EXPECT_EQ(p.rule_for("no such op").op, "otherwise");
  EXPECT_EQ(p.joined, std::vector<std::string>{"fourier"});
  EXPECT_TRUE(pytorch_policy().joined.empty());
}

TEST(Policy, ARowThatMentionsOneFieldKeepsTheOthers) {
  Policy p = headroom_policy();
  p.override_with(
      R"({"tensors": {"weight_copy": {"why": "a test"}}, "ops": {"rms_norm": {"output": "fp32"}, "cross_entropy": {"math": "low"},
                      "linear": {"inputs": "fp32"}}, "otherwise": {"output": "fp32"}})",
      "mine.json");
  EXPECT_EQ(p.tensor("weight_copy").dtype, Cast::low);
  EXPECT_EQ(p.tensor("weight_copy").why, "a test");
  const OpRule norm = p.rule_for("rms_norm"), before = headroom_policy().rule_for("rms_norm");
  EXPECT_EQ(norm.output, Cast::fp32);
  EXPECT_EQ(norm.inputs, before.inputs);
  EXPECT_EQ(norm.weights, Cast::fp32);
  EXPECT_EQ(norm.math, Cast::fp32);
  EXPECT_EQ(norm.source, "mine.json");
  EXPECT_EQ(norm.why, "mine.json gives no reason; headroom's was: " + before.why);
  EXPECT_TRUE(p.rule_for("cross_entropy").loss);
  EXPECT_EQ(p.rule_for("cross_entropy").inputs, Cast::fp32);
  EXPECT_EQ(p.rule_for("linear").weights, Cast::widest) << "a matmul's weights follow its inputs";
  EXPECT_EQ(p.rule_for("linear").output, Cast::low);
  EXPECT_EQ(p.otherwise.inputs, Cast::widest);
  EXPECT_EQ(p.otherwise.output, Cast::fp32);
}

TEST(Policy, ABadTableIsRefusedInOneLineAndChangesNothing) {
  EXPECT_NE(refusal("{").find("is not JSON"), std::string::npos);
  EXPECT_NE(refusal("[]").find("must be an object"), std::string::npos);
  EXPECT_NE(refusal(R"({"opps": {}})").find("did you mean 'ops'"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": {"linear": {"inputs": "fp64"}}})").find("linear: inputs is 'fp64'; choose from"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": {"linear": {"inputs": 16}}})").find("'16'"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": {"linear": "low"}})").find("must be an object"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": 3})").find("ops must be"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": {"linear": {"loss": 1}}})").find("true or false"), std::string::npos);
  EXPECT_NE(refusal(R"({"tensors": {"parameters": {"dtype": "widest"}}})").find("no inputs"), std::string::npos);
  EXPECT_NE(refusal(R"({"tensors": {"weights": {"dtype": "low"}}})").find("there is no key 'weights'"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": {"linaer": {"inputs": "low"}}})").find("no op 'linaer' in the table; did you mean 'linear'?"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"ops": {"fourier": {"inputs": "low"}}})"), "accepted");
  Policy p = headroom_policy();
  EXPECT_THROW(p.override_with(R"({"ops": {"linear": {"output": "fp32"}, "relu": 1}})", "mine.json"), Error);
  EXPECT_EQ(p.rule_for("linear").output, Cast::low);
  EXPECT_THROW(policy_named("/no/such/file.json"), Error);
  EXPECT_THROW(policy_named("/"), Error) << "a directory";
}

TEST(Policy, TheWidestOfTwoDifferentSixteenBitTypesIsFp32) {
  using D = DType;
  EXPECT_EQ(dtype_of(Cast::widest, D::f16, std::array{D::f16, D::f16}), D::f16);
  EXPECT_EQ(dtype_of(Cast::widest, D::f16, std::array{D::f16, D::f32}), D::f32);
  EXPECT_EQ(dtype_of(Cast::widest, D::f16, std::array{D::bf16, D::f16}), D::f32);
  EXPECT_EQ(dtype_of(Cast::low, D::bf16, std::array{D::f32}), D::bf16);
  EXPECT_EQ(dtype_of(Cast::fp32, D::bf16, std::array{D::bf16}), D::f32);
}

}  // namespace
}  // namespace headroom
