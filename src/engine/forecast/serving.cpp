#include "engine/forecast/serving.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace headroom::engine {

bool WeightFormat::quantises(std::string_view name) const {
  if (as == WeightsAs::precision || as == WeightsAs::checkpoint || name.starts_with("router")) return false;
  return !experts_only || name.starts_with("experts.");
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

namespace {

std::string why_no_shares(const Decoder& whole, int gpus) {  // empty: everything divides
  for (const auto& [a, f] : whole.layers) {
    const std::pair<const char*, std::int64_t> divided[] = {
        {"query heads", a.heads}, {"feed-forward columns", f.width}, {"the shared expert's columns", f.shared_width}};
    for (const auto& [what, n] : divided)
      if (n % gpus != 0)
        return fmt::format("--gpus {}: {} of this model, {}, do not divide by {} for tensor parallelism", gpus, what, n, gpus);
    if (!a.latent() && a.kv_heads % gpus != 0 && gpus % a.kv_heads != 0)
      return fmt::format("--gpus {}: {} key heads are neither a multiple nor a divisor of it", gpus, a.kv_heads);
  }
  return "";
}

}  // namespace

bool shares(const Decoder& whole, int gpus) { return why_no_shares(whole, gpus).empty(); }

Decoder rank_of(const Decoder& whole, int gpus) {
  Decoder d = whole;
  if (gpus == 1) return d;
  if (const std::string why_not = why_no_shares(whole, gpus); !why_not.empty()) {
    std::vector<std::string> those;
    for (int n = 2; n <= 256 && those.size() < 8; ++n)
      if (shares(whole, n)) those.push_back(std::to_string(n));
    throw Error(Code::bad_argument,
                fmt::format("{}; {}", why_not, those.empty() ? "it has no other number either" : "--gpus " + joined(those, ", ") + " do"));
  }
  for (auto& [a, f] : d.layers) {
    a.heads /= gpus;
    a.kv_heads = a.latent() ? a.heads : std::max<std::int64_t>(1, a.kv_heads / gpus);
    f.width /= gpus, f.shared_width /= gpus;
  }
  d.vocab = (d.vocab + gpus - 1) / gpus;
  return d;
}

}  // namespace headroom::engine
