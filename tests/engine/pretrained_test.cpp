// A Hugging Face folder, written here tensor by tensor as transformers names them, is read into the places it belongs to; what does
// not fit is named, and changes nothing.
#include "engine/pretrained.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/convert.h"
#include "engine/safetensors.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

ModelConfig qwen_like() {
  ModelConfig c = tiny();
  c.qkv_bias = c.qk_norm = true;
  return c;
}

using Values = std::map<std::string, std::pair<Shape, std::vector<float>>>;

// The tensors of a store under their foreign names; written out by hand, so that it shares nothing with what reads them.
Values foreign(Workshop& w) {
  const ModelConfig& c = w.training.recipe().model;
  Values all;
  for (const Param& p : w.training.store().params()) {
    const float* at = p.master.as<float>();
    const auto columns = p.spec.shape.rank == 2 ? p.spec.shape[1] : 1;
    const auto next = [&](const std::string& name, std::int64_t rows) {
      all[name] = {p.spec.shape.rank == 2 ? Shape{rows, columns} : Shape{rows}, {at, at + rows * columns}};
      at += rows * columns;
    };
    const std::string b = "model.layers." + std::to_string(p.spec.layer) + ".", name = p.spec.name;
    if (name == "embedding.weight") next("model.embed_tokens.weight", c.vocab);
    if (name == "norm1.weight") next(b + "input_layernorm.weight", c.width);
    if (name == "attention.qkv.weight")
      next(b + "self_attn.q_proj.weight", 16), next(b + "self_attn.k_proj.weight", 8), next(b + "self_attn.v_proj.weight", 8);
    if (name == "attention.qkv.bias")
      next(b + "self_attn.q_proj.bias", 16), next(b + "self_attn.k_proj.bias", 8), next(b + "self_attn.v_proj.bias", 8);
    if (name == "attention.q_norm.weight") next(b + "self_attn.q_norm.weight", 4);
    if (name == "attention.k_norm.weight") next(b + "self_attn.k_norm.weight", 4);
    if (name == "attention.out.weight") next(b + "self_attn.o_proj.weight", c.width);
    if (name == "norm2.weight") next(b + "post_attention_layernorm.weight", c.width);
    if (name == "ffn.gate_up.weight") next(b + "mlp.gate_proj.weight", c.ffn), next(b + "mlp.up_proj.weight", c.ffn);
    if (name == "ffn.down.weight") next(b + "mlp.down_proj.weight", c.width);
    if (name == "final_norm.weight") next("model.norm.weight", c.width);
    if (name == "head.weight") next("lm_head.weight", c.vocab);
    EXPECT_EQ(at, p.master.as<float>() + p.master.count()) << name;
  }
  return all;
}

class Pretrained : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // NOLINTNEXTLINE(performance-unnecessary-value-param): the tensors' memory is this copy's
  void write(const std::string& file, Values values, DType type = DType::f32) const {
    std::vector<std::vector<std::uint16_t>> narrowed;
    std::vector<NamedTensor> tensors;
    for (auto& [name, value] : values) {
      if (type == DType::f32) {
        tensors.push_back({name, Tensor(value.second.data(), type, value.first)});
        continue;
      }
      narrowed.emplace_back(value.second.size());
      for (std::size_t i = 0; i < value.second.size(); ++i) {
        const bf16 small = narrow<bf16>(value.second[i]);
        std::memcpy(&narrowed.back()[i], &small, 2);
      }
      tensors.push_back({name, Tensor(narrowed.back().data(), type, value.first)});
    }
    write_safetensors((folder_ / file).string(), tensors, {{"format", "pt"}});
  }
  void refused(Workshop& w, const std::string& said) const {
    const auto before = w.weights();
    try {
      load_pretrained(w.training, folder_.string());
      ADD_FAILURE() << "accepted; expected: " << said;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(said), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    }
    EXPECT_EQ(w.weights(), before);
  }
  fs::path folder_ = fs::temp_directory_path() / ("headroom_pretrained_" + std::to_string(getpid()));
};

TEST_F(Pretrained, EveryTensorFindsItsPlace) {
  for (bool tied : {false, true}) {
    Recipe r{qwen_like(), 1, 4, *precision_named("bf16")};
    r.model.tied = tied;
    Workshop from(r), to(r);
    to.training.initialise(99);
    auto values = foreign(from);
    if (tied) values["lm_head.weight"] = values["model.embed_tokens.weight"];  // some files say it twice
    write("model.safetensors", values);
    ASSERT_NE(to.weights(), from.weights());
    load_pretrained(to.training, folder_.string());
    EXPECT_EQ(to.weights(), from.weights());
    to.training.backward(), from.training.backward();
    EXPECT_EQ(to.gradients(), from.gradients()) << "the copies in the compute type are new too";
    r.holding.masters = Masters::halves;
    Workshop halves(r);
    halves.training.initialise(99);
    load_pretrained(halves.training, folder_.string());
    EXPECT_EQ(halves.weights(), from.weights());
  }
}

TEST_F(Pretrained, ShardsAndSmallFormatsAreRead) {
  const Recipe r{qwen_like(), 1, 4, {}};
  Workshop from(r), to(r);
  to.training.initialise(99);
  Values one, two;
  nlohmann::json map;
  for (const auto& [name, value] : foreign(from)) {
    const bool first = name.find("layers.0") != std::string::npos;
    (first ? one : two)[name] = value;
    map[name] = first ? "a.safetensors" : "b.safetensors";
  }
  write("a.safetensors", one), write("b.safetensors", two, DType::bf16);
  std::ofstream(folder_ / "model.safetensors.index.json") << nlohmann::json{{"weight_map", map}};
  load_pretrained(to.training, folder_.string());
  const auto expected = from.weights(), got = to.weights();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 0x1p-8f * std::abs(expected[i]));
  map["more"] = "../elsewhere.safetensors";
  std::ofstream(folder_ / "model.safetensors.index.json") << nlohmann::json{{"weight_map", map}};
  refused(to, "not a file name");
}

TEST_F(Pretrained, WhatDoesNotFitIsNamedAndChangesNothing) {
  const Recipe r{qwen_like(), 1, 4, {}};
  Workshop w(r);
  const Values good = foreign(w);
  refused(w, "neither model.safetensors nor");
  const auto with = [&](const std::function<void(Values&)>& change, const std::string& said) {
    Values values = good;
    change(values);
    write("model.safetensors", values);
    refused(w, said);
  };
  with([](Values& v) { v.erase("model.layers.1.self_attn.k_proj.bias"); },
       "lacks 1 of its model's tensors: model.layers.1.self_attn.k_proj.bias");
  with(
      [](Values& v) {
        v["model.norm.weight"] = {Shape{15}, std::vector<float>(15)};
      },
      "model.norm.weight is [15], config.json asks for [16]");
  with(
      [](Values& v) {
        v["model.layers.0.self_attn.o_proj.bias"] = {Shape{16}, std::vector<float>(16)};
      },
      "that the model does not have: model.layers.0.self_attn.o_proj.bias");
  write("model.safetensors", good);
  fs::resize_file(folder_ / "model.safetensors", fs::file_size(folder_ / "model.safetensors") - 4);
  refused(w, "is outside the file");
  EXPECT_THROW(pretrained_model(folder_.string()), Error) << "it has no config.json";
}

}  // namespace
}  // namespace headroom::engine
