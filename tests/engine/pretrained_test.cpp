// A Hugging Face folder, written here tensor by tensor as transformers names them, is read into the places it belongs to; what does
// not fit is named, and changes nothing.
#include "engine/files/pretrained.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/convert.h"
#include "engine/files/safetensors.h"
#include "engine/model/decoder.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

Decoder qwen_like() {
  Decoder d = tiny();
  change_sizes(d, [](PlainModel& m) { m.qkv_bias = m.qk_norm = true; });
  return d;
}

using Values = std::map<std::string, std::pair<Shape, std::vector<float>>>;

// The tensors of a store under their foreign names; written out by hand, so that it shares nothing with what reads them.
Values foreign(Workshop& w) {
  const PlainModel c = sizes_of(w.training.recipe().model);
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

// The names and shapes that transformers 5.23 gives the tensors of layer 0 and beside the layers, as bench/peers/pretrained_loss.py saved
// them; every family's own.
struct Family {
  const char* config;
  std::map<std::string, std::vector<std::int64_t>> tensors;
};
const std::map<std::string, Family> families{
    {"gpt2",
     {R"({"model_type":"gpt2","vocab_size":30,"n_embd":16,"n_layer":1,"n_head":4,"n_positions":9,"n_inner":40})",
      {{"transformer.wte.weight", {30, 16}},
       {"transformer.wpe.weight", {9, 16}},
       {"transformer.h.0.ln_1.weight", {16}},
       {"transformer.h.0.ln_1.bias", {16}},
       {"transformer.h.0.attn.c_attn.weight", {16, 48}},
       {"transformer.h.0.attn.c_attn.bias", {48}},
       {"transformer.h.0.attn.c_proj.weight", {16, 16}},
       {"transformer.h.0.attn.c_proj.bias", {16}},
       {"transformer.h.0.ln_2.weight", {16}},
       {"transformer.h.0.ln_2.bias", {16}},
       {"transformer.h.0.mlp.c_fc.weight", {16, 40}},
       {"transformer.h.0.mlp.c_fc.bias", {40}},
       {"transformer.h.0.mlp.c_proj.weight", {40, 16}},
       {"transformer.h.0.mlp.c_proj.bias", {16}},
       {"transformer.ln_f.weight", {16}},
       {"transformer.ln_f.bias", {16}}}}},
    {"gemma3_text",
     {R"({"model_type":"gemma3_text","vocab_size":30,"hidden_size":16,"intermediate_size":40,"num_hidden_layers":1,"num_attention_heads":4,
        "num_key_value_heads":2,"head_dim":8,"sliding_window":4,"layer_types":["sliding_attention"]})",
      {{"model.embed_tokens.weight", {30, 16}},
       {"model.layers.0.input_layernorm.weight", {16}},
       {"model.layers.0.self_attn.q_proj.weight", {32, 16}},
       {"model.layers.0.self_attn.k_proj.weight", {16, 16}},
       {"model.layers.0.self_attn.v_proj.weight", {16, 16}},
       {"model.layers.0.self_attn.q_norm.weight", {8}},
       {"model.layers.0.self_attn.k_norm.weight", {8}},
       {"model.layers.0.self_attn.o_proj.weight", {16, 32}},
       {"model.layers.0.post_attention_layernorm.weight", {16}},
       {"model.layers.0.pre_feedforward_layernorm.weight", {16}},
       {"model.layers.0.mlp.gate_proj.weight", {40, 16}},
       {"model.layers.0.mlp.up_proj.weight", {40, 16}},
       {"model.layers.0.mlp.down_proj.weight", {16, 40}},
       {"model.layers.0.post_feedforward_layernorm.weight", {16}},
       {"model.norm.weight", {16}}}}},
    {"olmo2",
     {R"({"model_type":"olmo2","vocab_size":30,"hidden_size":16,"intermediate_size":40,"num_hidden_layers":1,"num_attention_heads":4,
        "num_key_value_heads":2})",
      {{"model.embed_tokens.weight", {30, 16}},
       {"model.layers.0.self_attn.q_proj.weight", {16, 16}},
       {"model.layers.0.self_attn.k_proj.weight", {8, 16}},
       {"model.layers.0.self_attn.v_proj.weight", {8, 16}},
       {"model.layers.0.self_attn.q_norm.weight", {16}},
       {"model.layers.0.self_attn.k_norm.weight", {8}},
       {"model.layers.0.self_attn.o_proj.weight", {16, 16}},
       {"model.layers.0.post_attention_layernorm.weight", {16}},
       {"model.layers.0.mlp.gate_proj.weight", {40, 16}},
       {"model.layers.0.mlp.up_proj.weight", {40, 16}},
       {"model.layers.0.mlp.down_proj.weight", {16, 40}},
       {"model.layers.0.post_feedforward_layernorm.weight", {16}},
       {"model.norm.weight", {16}},
       {"lm_head.weight", {30, 16}}}}},
    {"phi3",
     {R"({"model_type":"phi3","vocab_size":30,"hidden_size":16,"intermediate_size":40,"num_hidden_layers":1,"num_attention_heads":4,
        "num_key_value_heads":2})",
      {{"model.embed_tokens.weight", {30, 16}},
       {"model.layers.0.input_layernorm.weight", {16}},
       {"model.layers.0.self_attn.qkv_proj.weight", {32, 16}},
       {"model.layers.0.self_attn.o_proj.weight", {16, 16}},
       {"model.layers.0.post_attention_layernorm.weight", {16}},
       {"model.layers.0.mlp.gate_up_proj.weight", {80, 16}},
       {"model.layers.0.mlp.down_proj.weight", {16, 40}},
       {"model.norm.weight", {16}},
       {"lm_head.weight", {30, 16}}}}},
    {"llama",
     {R"({"model_type":"llama","vocab_size":30,"hidden_size":16,"intermediate_size":40,"num_hidden_layers":1,"num_attention_heads":4,
        "num_key_value_heads":2,"attention_bias":true,"mlp_bias":true,"tie_word_embeddings":true})",
      {{"model.embed_tokens.weight", {30, 16}},
       {"model.layers.0.input_layernorm.weight", {16}},
       {"model.layers.0.self_attn.q_proj.weight", {16, 16}},
       {"model.layers.0.self_attn.q_proj.bias", {16}},
       {"model.layers.0.self_attn.k_proj.weight", {8, 16}},
       {"model.layers.0.self_attn.k_proj.bias", {8}},
       {"model.layers.0.self_attn.v_proj.weight", {8, 16}},
       {"model.layers.0.self_attn.v_proj.bias", {8}},
       {"model.layers.0.self_attn.o_proj.weight", {16, 16}},
       {"model.layers.0.self_attn.o_proj.bias", {16}},
       {"model.layers.0.post_attention_layernorm.weight", {16}},
       {"model.layers.0.mlp.gate_proj.weight", {40, 16}},
       {"model.layers.0.mlp.gate_proj.bias", {40}},
       {"model.layers.0.mlp.up_proj.weight", {40, 16}},
       {"model.layers.0.mlp.up_proj.bias", {40}},
       {"model.layers.0.mlp.down_proj.weight", {16, 40}},
       {"model.layers.0.mlp.down_proj.bias", {16}},
       {"model.norm.weight", {16}}}}}};

TEST_F(Pretrained, EveryFamilyIsWrittenUnderItsOwnNamesAndReadBack) {
  for (const auto& [name, family] : families)
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(name + " " + precision);
      Recipe r{model_from_json(family.config, name), 1, 4, *precision_named(precision)};
      if (r.precision.dtype == DType::bf16 && !r.model.tied) r.holding.masters = Masters::halves;
      Workshop from(r);
      from.training.step({});
      const fs::path place = folder_ / name;
      check_pretrained_place(r.model, place.string());
      save_pretrained(from.training, place.string());
      const auto header = read_safetensors_header((place / "model.safetensors").string());
      EXPECT_EQ(header.metadata.at("format"), "pt");
      std::map<std::string, std::vector<std::int64_t>> written;
      for (const auto& [tensor, stored] : header.tensors) {
        written[tensor] = stored.shape;
        EXPECT_EQ(stored.type, "F32");
      }
      EXPECT_EQ(written, family.tensors);

      Recipe again = r;
      again.model = pretrained_model(place.string());
      Workshop to(again);
      to.training.initialise(99);
      ASSERT_NE(to.weights(), from.weights());
      load_pretrained(to.training, place.string());
      const auto expected = from.weights(), got = to.weights();
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i)  // a weight less one rounds where it is small
        ASSERT_NEAR(got[i], expected[i], name == "gemma3_text" ? 0x1p-24 : 0) << i;
      to.training.forward(), from.training.forward();
      EXPECT_NEAR(to.training.loss(), from.training.loss(), 1e-6);
      fs::remove_all(place);
    }
}

TEST_F(Pretrained, APresetBecomesTheClassThatComputesTheSame) {
  for (const auto& [type, change] : {std::pair{"llama", 0}, std::pair{"qwen2", 1}, std::pair{"qwen3", 2}}) {
    Recipe r{tiny(), 1, 4, {}};
    change_sizes(r.model, [change = change](PlainModel& m) {
      m.qkv_bias = change == 1, m.qk_norm = change == 2, m.tied = change == 1, m.rope_theta = 777;
    });
    Workshop from(r);
    const fs::path place = folder_ / type;
    check_pretrained_place(r.model, place.string());
    save_pretrained(from.training, place.string());
    Recipe again = r;
    again.model = pretrained_model(place.string());
    EXPECT_EQ(nlohmann::json::parse(again.model.source)["model_type"], type);
    EXPECT_TRUE(same_model(again.model, r.model)) << to_json(again.model);
    Workshop to(again);
    to.training.initialise(99);
    load_pretrained(to.training, place.string());
    EXPECT_EQ(to.weights(), from.weights());
  }
  EXPECT_THROW(check_pretrained_place(qwen_like(), (folder_ / "both").string()), Error);
}

TEST_F(Pretrained, AFolderWithSomebodysModelIsLeftAlone) {
  const Recipe r{tiny(), 1, 4, {}};
  Workshop w(r);
  write("model.safetensors", foreign(w));
  std::ofstream(folder_ / "config.json") << "{}";
  try {
    check_pretrained_place(r.model, folder_.string());
    ADD_FAILURE() << "it would be overwritten";
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("did not write"), std::string::npos) << e.what(); }
  const std::string own = (folder_ / "own").string();
  check_pretrained_place(r.model, own), save_pretrained(w.training, own);
  EXPECT_NO_THROW(check_pretrained_place(r.model, own)) << "what was written here may be written again";
}

TEST_F(Pretrained, AGpt2WithoutItsPrefixAndADecoderInsideALargerModelAreRead) {
  for (const auto& [name, stem, other] : {std::tuple{"gpt2", "transformer.", ""}, {"gemma3_text", "model.", "language_model.model."}}) {
    Recipe r{model_from_json(families.at(name).config, name), 1, 4, {}};
    Workshop from(r), to(r);
    const std::string place = (folder_ / name).string();
    check_pretrained_place(r.model, place), save_pretrained(from.training, place);
    const std::string weights = place + "/model.safetensors";
    std::ifstream in(weights, std::ios::binary);
    Values values;
    for (const auto& [tensor, stored] : read_safetensors_header(weights).tensors) {
      std::vector<float> all(stored.bytes / 4);
      in.seekg(std::streamoff(stored.at)), in.read(reinterpret_cast<char*>(all.data()), std::streamsize(stored.bytes));
      std::string renamed = tensor;
      if (tensor.starts_with(stem)) renamed = other + tensor.substr(std::string_view(stem).size());
      values[renamed] = {stored.shape.size() == 2 ? Shape{stored.shape[0], stored.shape[1]} : Shape{stored.shape[0]}, all};
    }
    values[name == std::string("gpt2") ? "h.0.attn.bias" : "vision_tower.patch.weight"] = {Shape{4}, std::vector<float>(4)};
    in.close();
    write(std::string(name) + "/model.safetensors", values);
    to.training.initialise(99);
    load_pretrained(to.training, place);
    to.training.forward(), from.training.forward();
    EXPECT_NEAR(to.training.loss(), from.training.loss(), 1e-6) << name;
  }
}

}  // namespace
}  // namespace headroom::engine
