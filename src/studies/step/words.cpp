#include "studies/step/words.h"

#include <algorithm>

#include "base/json.h"
#include "base/precision_words.h"
#include "ops/attention/attention.h"

namespace headroom::studies {

std::vector<std::string> trained_precisions() {
  std::vector<std::string> words;
  for (const Precision p : precisions) words.push_back(WordsOf<Precision>::to(p));
  return words;
}

std::vector<std::string> attention_families() {
  std::vector<std::string> words;
  for (const attention::Variant& v : attention::variants())
    if (std::find(words.begin(), words.end(), v.family) == words.end()) words.emplace_back(v.family);
  return words;
}

void check_scales(const std::vector<Precision>& all, std::optional<engine::Scales> scales) {
  const bool fp8 = std::any_of(all.begin(), all.end(), [](Precision p) { return p.dtype == DType::e4m3; });
  check(fp8 || !scales, Code::bad_argument, "--scales: only fp8 has scales; add --precision fp8, or leave it out");
}

void check_precisions(const std::vector<Precision>& all, std::optional<engine::Scales> scales, const Device& device) {
  check_scales(all, scales);
  for (const Precision p : all)
    check(p.math != Math::tf32 || device.kind != DeviceKind::cpu, Code::bad_argument,
          "--precision tf32 needs a GPU, and its bytes are fp32's; use fp32, or name a GPU, present or not, as in --device h200");
}

}  // namespace headroom::studies

namespace headroom {

RowObject JsonOf<engine::ModelConfig>::to(const engine::ModelConfig& c) { return parse_json<RowObject>(engine::to_json(c), "a model"); }
engine::ModelConfig JsonOf<engine::ModelConfig>::from(const RowObject& j) {
  return engine::model_from_json(j.dump(), j.contains("name") && j["name"].is_string() ? j["name"].get<std::string>() : "a model");
}

}  // namespace headroom
