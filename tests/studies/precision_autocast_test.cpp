#include "studies/precision_autocast.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/config.h"
#include "engine/params.h"
#include "report/render.h"

namespace headroom::precision {
namespace {

const OpDTypes& named(const Autocast& a, const std::string& name) {
  for (const auto& o : a.ops)
    if (o.op.name == name) return o;
  throw Error(Code::bad_argument, "no op called " + name);
}

std::string refusal(const std::string& model) {
  try {
    op_model_from_json(model, "m.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::bad_argument) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST(Autocast, TheToyModelIsAsPytorchCastsIt) {
  for (const auto& policy : {headroom_policy(), pytorch_policy()})
    for (DType low : {DType::f16, DType::bf16}) {
      const Autocast a = autocast(op_model_described("toy"), policy, low);
      EXPECT_EQ(a.parameters, DType::f32);
      EXPECT_EQ(named(a, "fc1").input_cast, low);
      EXPECT_EQ(named(a, "fc1").output, low);
      EXPECT_EQ(named(a, "relu").output, low);
      EXPECT_EQ(named(a, "ln").output, DType::f32);
      EXPECT_EQ(named(a, "ln").math, DType::f32);
      EXPECT_EQ(named(a, "fc2").input_cast, low);
      EXPECT_EQ(a.logits(), low);
      ASSERT_TRUE(a.loss());
      EXPECT_EQ(a.loss()->output, DType::f32);
      EXPECT_EQ(a.gradients, DType::f32);
    }
}

TEST(Autocast, TheLanguageModelReadsItsWeightsAsTheEngineKeepsThem) {
  for (const bool tied : {false, true}) {
    engine::ModelConfig config = engine::presets().front();
    config.tied = tied;
    const Autocast a = autocast(op_model_from_json(engine::to_json(config), "config"), headroom_policy(), DType::bf16);
    std::map<std::string, DType> read;
    for (const auto& o : a.ops)
      for (const auto& w : o.op.weights) read[w] = o.weights;
    std::map<std::string, DType> kept;
    for (const auto& spec : engine::param_table(config))
      kept[spec.layer < 0 ? std::string(spec.name) : fmt::format("blocks.N.{}", spec.name)] = spec.multiplied ? DType::bf16 : DType::f32;
    EXPECT_EQ(read, kept) << "tied " << tied;
  }
}

TEST(Autocast, TheLanguageModelKeepsSixteenBitActivationsAndFp32Statistics) {
  const Autocast a = autocast(op_model_described("small"), headroom_policy(), DType::bf16);
  for (const auto& o : a.ops) {
    EXPECT_EQ(o.math, DType::f32) << o.op.name;
    const bool wide = o.op.name == "head" || o.op.name == "loss";
    EXPECT_EQ(o.output, wide ? DType::f32 : DType::bf16) << o.op.name;
  }
  const Autocast theirs = autocast(op_model_described("small"), pytorch_policy(), DType::bf16);
  EXPECT_EQ(named(theirs, "blocks.N.residual1").output, DType::f32);
  EXPECT_EQ(theirs.logits(), DType::bf16);
}

TEST(Autocast, AskedForFp32EverythingIsFp32) {
  for (const auto& o : autocast(op_model_described("small"), headroom_policy(), DType::f32).ops) {
    EXPECT_EQ(o.output, DType::f32) << o.op.name;
    EXPECT_EQ(o.weights, DType::f32) << o.op.name;
  }
}

TEST(Autocast, AFileNamesItsOpsInputsAndUnknownOpsPassThrough) {
  const auto m = op_model_from_json(R"({"inputs": {"a": "fp32", "b": "bf16"}, "ops": [{"name": "f", "op": "fourier", "inputs": ["b"]},
      {"name": "s", "op": "add", "inputs": ["a", "f"]}, {"op": "matmul"}]})", "m.json");
  const Autocast a = autocast(m, headroom_policy(), DType::bf16);
  EXPECT_EQ(named(a, "f").output, DType::bf16);
  EXPECT_EQ(named(a, "f").rule.op, "otherwise");
  EXPECT_EQ(named(a, "s").output, DType::f32);
  EXPECT_EQ(named(a, "3").output, DType::bf16);
  EXPECT_EQ(a.loss(), nullptr);
  EXPECT_EQ(a.logits(), DType::bf16);
}

TEST(Autocast, BadModelsAreRefusedInOneLine) {
  EXPECT_NE(refusal("{").find("is not JSON"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": []})").find("at least one op"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": [{}]})").find("op 1: needs \"op\""), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": ["relu"]})").find("must be an object"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": [{"op": "relu", "inputs": ["y"]}]})").find("'y' is not made before it"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": [{"op": "relu", "input": ["x"]}]})").find("did you mean 'inputs'"), std::string::npos);
  EXPECT_NE(refusal(R"({"ops": [{"op": "relu", "name": "x"}]})").find("already a 'x'"), std::string::npos);
  EXPECT_NE(refusal(R"({"inputs": {"x": "fp8"}, "ops": [{"op": "relu"}]})").find("choose from fp32, bf16, fp16"), std::string::npos);
  EXPECT_NE(refusal(R"({"inputs": ["x"], "ops": [{"op": "relu"}]})").find("inputs must be an object"), std::string::npos);
  EXPECT_NE(refusal("[1, 2]"), "accepted");
  EXPECT_THROW(op_model_described("smal"), Error);
}

TEST(Autocast, ExplainShowsTheRuleOfEveryRow) {
  AutocastSettings s;
  s.explain = true;
  const auto json = nlohmann::json::parse(render(autocast_record(s), Format::json));
  for (const auto& row : json["rows"]) EXPECT_FALSE(row["why"].get<std::string>().empty()) << row;
  EXPECT_GT(json["policy_ops"].size(), 20u);
  EXPECT_EQ(json["summary"][0]["parameters"], "fp32");
  EXPECT_EQ(json["summary"][0]["logits"], "fp16");
  EXPECT_EQ(json["summary"][0]["loss"], "fp32");
  EXPECT_EQ(json["summary"][0]["gradients"], "fp32");
  EXPECT_NE(render(autocast_record(s), Format::text).find("matrix units"), std::string::npos);
}

}  // namespace
}  // namespace headroom::precision
