#include "studies/precision/autocast.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "engine/model/params.h"
#include "engine/model/plain_model.h"
#include "report/render.h"

namespace headroom::studies::precision {
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
    engine::Decoder config = engine::presets().front();
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
  EXPECT_EQ(named(theirs, "blocks.N.attention.out").output, DType::f32);
  EXPECT_EQ(theirs.logits(), DType::bf16);
}

// What a ledger calls a tensor, and the op of the policy's walk whose output it is.
const std::map<std::string, std::string> outputs{{"x", "embedding"},
                                                 {"norm1.y", "blocks.N.norm1"},
                                                 {"attention.qkv", "blocks.N.attention.qkv"},
                                                 {"attention.o", "blocks.N.attention"},
                                                 {"h", "blocks.N.attention.out"},
                                                 {"norm2.y", "blocks.N.norm2"},
                                                 {"ffn.gate_up", "blocks.N.ffn.gate_up"},
                                                 {"ffn.act", "blocks.N.ffn.swiglu"},
                                                 {"y", "blocks.N.ffn.down"},
                                                 {"final_norm.y", "final_norm"},
                                                 {"logits", "head"},
                                                 {"losses", "loss"}};

TEST(Autocast, EveryTensorOfTheEnginesDryStepHasTheDtypeOfThePolicy) {
  for (auto precision : {"fp32", "bf16", "fp16"})
    for (const bool tied : {false, true}) {
      engine::Recipe recipe{
          engine::decoder_of(
              {.name = "tiny", .vocab = 19, .width = 16, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn = 24, .tied = tied}),
          2, 8, *precision_named(precision)};
      const Autocast a = autocast(op_model_from_json(engine::to_json(recipe.model), "tiny"), headroom_policy(), recipe.precision.dtype);
      std::map<std::string, int> seen;
      for (const Entry& e : engine::forecast(recipe, Device{}, 1).entries) {
        const std::string name = e.name.text;
        SCOPED_TRACE(fmt::format("{} of {} in phase {}", name, precision, name_of(e.phase)));
        ++seen[name];
        std::vector<DType> allowed{e.dtype};  // the policy says nothing of tokens, tables and scratch
        const auto at = outputs.find(name);
        if (at != outputs.end())
          allowed = {named(a, at->second).output};
        else if (name == "d" || name == "attention.dqkv" || name == "attention.do")
          allowed = {a.activation_gradients};
        else if (name == "loss")
          allowed = {DType::f64};  // the note of the language model says so
        else if (e.phase == Phase::gradient)
          allowed = {a.gradients}, ++seen["dw"];
        else if (e.phase == Phase::optimizer && name.ends_with(".weight"))
          allowed = {a.optimizer}, ++seen["moment"];
        else if (e.phase == Phase::parameter)
          allowed = {a.parameters, a.weight_copy}, ++seen[fmt::format("{} weight", name_of(e.dtype))];
        EXPECT_NE(std::find(allowed.begin(), allowed.end(), e.dtype), allowed.end())
            << name_of(e.dtype) << ", not " << name_of(allowed.front());
      }
      for (const auto& [name, op] : outputs) EXPECT_GT(seen[name], 0) << name;
      const int weights = int(engine::param_table(recipe.model).size()),
                copied = 2 * 4 + 1;  // four of each block, and what the head multiplies
      for (auto name : {"d", "attention.dqkv", "attention.do", "loss"}) EXPECT_GT(seen[name], 0) << name;
      EXPECT_EQ(seen["dw"], weights);
      EXPECT_EQ(seen["moment"], 2 * weights);
      EXPECT_EQ(seen["fp32 weight"], weights);
      if (recipe.precision.dtype != DType::f32) { EXPECT_EQ(seen[fmt::format("{} weight", precision)], copied); }
    }
  EXPECT_NE(render(autocast_record({.model = "small"}), Format::text).find("the scalar loss it reports is fp64"), std::string::npos);
}

TEST(Autocast, TheRuleIsShownWithoutExplainAndSoIsAnOpThatHasNone) {
  AutocastSettings s;
  for (auto format : {Format::text, Format::markdown}) {
    const std::string page = render(autocast_record(s), format);
    EXPECT_NE(page.find("low → fp32 → low"), std::string::npos) << page;
    EXPECT_EQ(page.find("matrix units"), std::string::npos) << "that is for --explain";
  }
  const std::string stem = testing::TempDir() + fmt::format("headroom_autocast_{}", getpid());
  s.model = stem + "_model.json", s.policy = stem + "_policy.json";
  std::ofstream(s.model) << R"({"ops": [{"op": "linear"}, {"op": "fourier"}, {"op": "wavelet"}]})";
  std::ofstream(s.policy) << R"({"ops": {"wavelet": {"output": "fp32"}}})";
  const std::string page = render(autocast_record(s), Format::text);
  std::filesystem::remove(s.model), std::filesystem::remove(s.policy);
  EXPECT_NE(page.find("'fourier' is not in the table; otherwise: widest → widest → widest"), std::string::npos) << page;
  EXPECT_EQ(page.find("'wavelet' is not"), std::string::npos) << page;
  EXPECT_NE(page.find("brings rules for ops that headroom's table does not name: wavelet."), std::string::npos) << page;
}

TEST(Autocast, AskedForFp32EverythingIsFp32) {
  for (const auto& o : autocast(op_model_described("small"), headroom_policy(), DType::f32).ops) {
    EXPECT_EQ(o.output, DType::f32) << o.op.name;
    EXPECT_EQ(o.weights, DType::f32) << o.op.name;
  }
}

TEST(Autocast, AFileNamesItsOpsInputsAndUnknownOpsPassThrough) {
  const auto m = op_model_from_json(R"({"inputs": {"a": "fp32", "b": "bf16"}, "ops": [{"name": "f", "op": "fourier", "inputs": ["b"]},
      {"name": "s", "op": "add", "inputs": ["a", "f"]}, {"op": "matmul"}]})",
                                    "m.json");
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
}  // namespace headroom::studies::precision
