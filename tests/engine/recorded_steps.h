// Steps that were measured on cards and recorded in bench/results, as tests of expected times read them.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/device_file.h"
#include "base/efficiency.h"
#include "engine/forecast/forecast.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"

namespace headroom::engine::expected_tests {

struct Step {
  Recipe recipe;
  double ms = 0;
  std::string words;
};

inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream s(line);
  for (std::string cell; std::getline(s, cell, ',');) cells.push_back(cell);
  return cells;
}

// "small", or "small layers 12 width 768 heads 12 ffn 2048 vocab 50304".
inline Decoder model_in(const std::string& words) {
  std::stringstream s(words);
  std::string name, field;
  s >> name;
  PlainModel c = *plain_of(model_described(name));
  for (std::int64_t n = 0; s >> field >> n;) {
    if (field == "layers") c.layers = n;
    if (field == "width") c.width = n;
    if (field == "heads") c.heads = c.kv_heads = n;
    if (field == "kv-heads") c.kv_heads = n;
    if (field == "ffn") c.ffn = n;
    if (field == "vocab") c.vocab = n;
  }
  return decoder_of(c);
}

// Steps were recorded while SwiGLU was an op beside its products, and dQ and dK were turned back by an op of their own. Watched steps
// still run both as ops of their own. In fp8 `watched` would change what is quantised, too, so steps in fp8 are compared as they run now.
inline void as_then(Recipe& r) { r.watched = r.precision == Precision{DType::bf16}; }

// Rows of headroom step on so many cards. A line with # has the options of those after it.
inline std::vector<Step> recorded(const std::string& file, std::string options = "", int cards = 1) {
  std::ifstream in(std::string(HEADROOM_SOURCE_DIR) + "/bench/results/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<Step> all;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) options = line;
    if (line.starts_with("#") || line.starts_with("model,") || (options.find("--gpus 2") != std::string::npos) != (cards == 2)) continue;
    const auto cells = cells_of(line);
    Step s{{model_in(cells.at(0)), std::stoll(cells.at(1)), std::stoll(cells.at(2)), *precision_named(cells.at(3))},
           std::stod(cells.at(5)),
           line};
    s.recipe.purpose = value_named<Purpose>(cells.at(4), "phase");
    if (options.find("halves") != std::string::npos) s.recipe.holding = {Masters::halves, Updating::during, Gradients::half};
    for (const std::string& word : names_of<Scales>.all())
      if (cells.back() == word) s.recipe.scales = *names_of<Scales>.named(word);
    s.recipe.ranks.count = cards;
    for (const std::string& word : names_of<Sharding>.all())
      if (options.find("--shard " + word) != std::string::npos) s.recipe.ranks.sharding = *names_of<Sharding>.named(word);
    as_then(s.recipe);
    all.push_back(std::move(s));
  }
  return all;
}

// Steps of models that say much of one kind of work, measured by headroom device --efficiencies.
inline std::vector<Step> of_each_kind(const std::string& file = "h200_efficiencies_2026-11-23.csv") {
  std::ifstream in(HEADROOM_SOURCE_DIR "/bench/results/" + file);
  EXPECT_TRUE(in);
  std::vector<Step> all;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#") || line.starts_with("model,")) continue;
    const std::size_t end = line.starts_with('"') ? line.find('"', 1) + 1 : line.find(',');  // a name may have a comma
    const auto cells = cells_of(line.substr(end + 1));
    const auto number = [&](std::size_t i) { return std::stoll(cells.at(i)); };
    PlainModel c;
    c.name = line.substr(0, end), c.width = number(0), c.layers = number(1), c.heads = number(2), c.kv_heads = number(3);
    c.head_dim = c.width / c.heads, c.ffn = number(4), c.vocab = number(5);
    Step s{{decoder_of(c), number(6), number(7), *precision_named(cells.at(8))}, std::stod(cells.at(10)), line};
    s.recipe.purpose = value_named<Purpose>(cells.at(9), "phase");
    as_then(s.recipe);
    all.push_back(std::move(s));
  }
  return all;
}

// The first rows that the card ran, while its clocks were still rising: their samples spread by up to 5 %.
inline bool while_clocks_rose(const Step& s) {
  return s.words.starts_with("small,4,128,fp32,forward,") || s.words.starts_with("small,4,128,fp32,forward+backward,");
}

// Steps in FP32 were recorded while flash_simt served their attention. It does so still where tf32 is slow.
inline Device as_recorded(Device d, const Recipe& r) {
  if (r.precision == Precision{DType::f32}) d.ceilings.tf32_flops = 2 * d.ceilings.fp32_flops;
  return d;
}

inline Device with_efficiencies(Device d, Efficiencies own) {
  own.ceilings = d.ceilings;
  d.efficiencies = std::make_shared<const Efficiencies>(std::move(own));
  return d;
}

}  // namespace headroom::engine::expected_tests
