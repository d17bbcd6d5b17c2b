// The words of a row of bench/peers/pytorch_steps.py, as the account takes them.
#pragma once
#include <string>

#include "engine/recipe/keep.h"
#include "pytorch/language_model.h"
#include "tests/pytorch/csv_rows.h"

namespace headroom::pytorch {

// bench/peers/pytorch_models.py has these shapes.
inline void make_gpt2(LanguageModel& m, const std::string& name) {
  m.family = Family::gpt2, m.positions = 1024, m.tied = m.written_out_gelu = true, m.loss = Loss::in_fp32;
  m.dropout = name != "gpt2-no-dropout";
  if (name == "gpt2") m.vocab = 50257, m.width = 768, m.layers = 12, m.heads = 12;
  if (name == "gpt2-narrow") m.vocab = 5000, m.width = 384, m.layers = 3, m.heads = 6;
  if (name == "gpt2-no-dropout") m.vocab = 10000, m.width = 640, m.layers = 4, m.heads = 10;
  m.ffn = 4 * m.width;
}
inline void make_gemma(LanguageModel& m, const std::string& name) {
  m.family = Family::gemma, m.tied = true, m.loss = Loss::in_fp32;
  m.vocab = 16000, m.width = 512, m.ffn = 2048, m.heads = 4, m.kv_heads = 1, m.head_dim = 128;
  if (name == "gemma2-narrow") {
    m.norms_after = m.capped_scores = m.capped_logits = true;
    m.layers = 4, m.heads = 8, m.kv_heads = 4, m.head_dim = 64, m.windows = {256, 0, 256, 0};
  }
  if (name == "gemma-narrow") m.layers = 3, m.windows.assign(3, 0);
  if (name.starts_with("gemma3")) m.norms_after = m.qk_norm = true;
  if (name == "gemma3-narrow") m.layers = 6, m.windows = {512, 512, 512, 512, 512, 0};
  if (name == "gemma3-wide") {
    m.vocab = 32000, m.width = 1280, m.ffn = 5120, m.layers = 7, m.heads = 8, m.kv_heads = 4, m.head_dim = 256;
    m.windows = {1024, 1024, 1024, 1024, 1024, 0, 1024};
  }
}

inline void make_experts(LanguageModel& m, const std::string& name) {
  m.family = Family::experts, m.loss = Loss::in_fp32;
  m.width = 512, m.layers = 4, m.heads = 8, m.kv_heads = 2;
  if (name.starts_with("mixtral-narrow")) m.vocab = 8000, m.ffn = 1024, m.experts = 8, m.experts_of_token = 2, m.routing_in_fp32 = true;
  if (name.starts_with("qwen3-moe"))
    m.vocab = 16000, m.ffn = 256, m.head_dim = 128, m.qk_norm = true, m.experts = 32, m.experts_of_token = 4;
  if (name == "qwen3-moe-wide") m.vocab = 32000, m.width = 1024, m.ffn = 384, m.layers = 3, m.experts = 64, m.experts_of_token = 8;
}

inline void make_gpt_oss(LanguageModel& m) {
  m.family = Family::gpt_oss, m.loss = Loss::in_fp32;
  m.vocab = 16000, m.width = 512, m.ffn = 512, m.layers = 4, m.heads = 8, m.kv_heads = 2, m.experts = 16, m.experts_of_token = 4;
}

// bench/peers/pytorch_steps.py: its shapes, and the words of a row.
inline LanguageModel setting_of(const Row& row) {
  struct Sizes {
    const char* name;
    std::int64_t vocab, width, ffn, layers, heads, kv_heads;
  };
  constexpr Sizes shapes[] = {{"small", 10000, 768, 3072, 12, 12, 12},  {"medium", 10000, 1024, 4096, 24, 16, 16},
                              {"large", 10000, 1280, 5120, 36, 20, 20}, {"xl", 10000, 1600, 6400, 48, 25, 25},
                              {"2.7B", 10000, 2560, 10240, 32, 32, 32}, {"narrow", 10000, 512, 1408, 5, 8, 8},
                              {"grouped", 32000, 1536, 4096, 8, 24, 8}, {"wide", 10000, 4096, 11008, 3, 32, 8}};
  LanguageModel m;
  for (const Sizes& s : shapes)
    if (row.at("model") == s.name)
      m.vocab = s.vocab, m.width = s.width, m.ffn = s.ffn, m.layers = s.layers, m.heads = s.heads, m.kv_heads = s.kv_heads;
  if (const std::string& name = row.at("model"); name.starts_with("gpt2"))
    make_gpt2(m, name);
  else if (name.starts_with("gemma"))
    make_gemma(m, name);
  else if (name.starts_with("mixtral") || name.starts_with("qwen3-moe"))
    make_experts(m, name);
  else if (name.starts_with("gpt-oss"))
    make_gpt_oss(m);
  const auto number = [&](const char* name) { return std::stoll(row.at(name)); };
  if (number("layers") > 0) m.layers = number("layers");
  m.batch = number("batch"), m.len = number("len"), m.lora = number("lora"), m.accumulate = number("accumulate"), m.gpus = number("gpus");
  m.precision = *precision_named(row.at("precision"));
  m.fused_attention = row.at("attention") == "fused";
  m.keep = *WordsOf<engine::Keeping>::named(row.at("keep"));
  m.adam = value_named<Adam>(row.at("adam"), "adam");
  m.compile = value_named<Compile>(row.at("compile"), "compile");
  m.shard = value_named<engine::Sharding>(row.at("shard"), "shard");
  if (row.contains("base")) m.base = value_named<Base>(row.at("base"), "base");
  if (row.contains("parameters")) m.parameters = value_named<Parameters>(row.at("parameters"), "parameters");
  return m;
}

}  // namespace headroom::pytorch
