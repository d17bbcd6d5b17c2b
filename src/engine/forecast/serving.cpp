#include "engine/forecast/serving.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace headroom::engine {

bool WeightFormat::quantises(const ParamSpec& s) const {
  if (as == WeightsAs::precision || as == WeightsAs::checkpoint) return false;
  return s.layer >= 0 && s.multiplied && s.role != WeightRole::router && (!experts_only || s.experts > 0);
}

bool WeightFormat::quantises_product(const std::vector<ParamSpec>& weights, const Name& op) const {
  if (op.layer < 0) return false;
  for (const ParamSpec& s : weights)
    if (s.layer == op.layer && s.multiplied && s.is_of(op.text)) return quantises(s);
  ParamSpec part{};  // a matrix that is neither the router's nor the experts'
  part.role = WeightRole::other, part.layer = op.layer, part.multiplied = true;
  return quantises(part);
}

double WeightFormat::bytes_of(std::int64_t numbers, std::int64_t in, DType type) const {
  const double n = double(numbers);
  switch (as) {
    case WeightsAs::fp8: return n + 4 * n / (128 * 128);
    case WeightsAs::int8: return n + 2 * n / double(in);
    case WeightsAs::int4: return n / 2 + 2.5 * n / 128;
    case WeightsAs::nf4: return n / 2 + n / 64 + 4 * n / (64 * 256);
    case WeightsAs::mxfp4: return n / 2 + n / 32;
    case WeightsAs::checkpoint:
    case WeightsAs::precision: break;
  }
  return n * double(size_of(type));
}

std::optional<WeightFormat> weight_format(const Decoder& d, WeightsAs asked) {
  if (asked != WeightsAs::checkpoint) return WeightFormat{asked};
  const auto file = parse_json_or_discard<nlohmann::json>(d.source);
  const auto at = file.is_object() ? file.find("quantization_config") : file.end();
  if (!file.is_object() || at == file.end() || !at->is_object()) return WeightFormat{WeightsAs::precision};
  const auto word = [&](const char* key) { return at->contains(key) && (*at)[key].is_string() ? (*at)[key].get<std::string>() : ""; };
  const auto number = [&](const char* key) { return at->contains(key) && (*at)[key].is_number_integer() ? (*at)[key].get<int>() : 0; };
  const auto yes = [&](const char* key) { return at->contains(key) && (*at)[key] == true; };
  const std::string method = word("quant_method");
  if (method == "mxfp4") return WeightFormat{WeightsAs::mxfp4, true};
  if (method == "fp8" || method == "fbgemm_fp8") return WeightFormat{WeightsAs::fp8};
  if (method == "awq" || method == "gptq") {
    const int group = number("group_size");
    if (number("bits") == 4 && (group == 128 || group == 0)) return WeightFormat{WeightsAs::int4};
    if (number("bits") == 8) return WeightFormat{WeightsAs::int8};
  }
  if (method == "bitsandbytes" && yes("load_in_4bit")) return WeightFormat{WeightsAs::nf4};
  if (method == "bitsandbytes" && yes("load_in_8bit")) return WeightFormat{WeightsAs::int8};
  return {};
}

}  // namespace headroom::engine
