#include "engine/config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/hugging_face.h"
#include "engine/published.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;

ModelConfig gpt(const char* name, std::int64_t vocab, std::int64_t width, std::int64_t ffn, std::int64_t layers, std::int64_t heads) {
  return {name, vocab, width, layers, heads, heads, width / heads, ffn, false, 10000, 1e-5, {}, false, false, nullptr, nullptr, ""};
}

std::int64_t integer(const Json& j, const char* key, std::int64_t otherwise = 0) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return otherwise;
  check(at->is_number_integer() && (!at->is_number_unsigned() || at->get<std::uint64_t>() >> 63 == 0), Code::bad_argument,
        "model: '{}' is {}, it must be a whole number", key, at->dump());
  return at->get<std::int64_t>();
}
double number(const Json& j, const char* key, double otherwise) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return otherwise;
  check(at->is_number(), Code::bad_argument, "model: '{}' is {}, it must be a number", key, at->dump());
  return at->get<double>();
}
bool truth(const Json& j, const char* key) {
  const auto at = j.find(key);
  if (at == j.end() || at->is_null()) return false;
  check(at->is_boolean(), Code::bad_argument, "model: '{}' is {}, it must be true or false", key, at->dump());
  return at->get<bool>();
}

void finish(ModelConfig& c) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0 && c.heads > 0) {
    check(c.width % c.heads == 0, Code::bad_argument, "model: width {} is not a multiple of {} heads; give head_dim", c.width, c.heads);
    c.head_dim = c.width / c.heads;
  }
}

ModelConfig own(const Json& j) {
  ModelConfig c;
  const std::vector<std::string> known{"name", "vocab", "width",      "layers",   "heads",    "kv_heads", "head_dim",
                                       "ffn",  "tied",  "rope_theta", "norm_eps", "qkv_bias", "qk_norm"};
  for (const auto& [key, value] : j.items())
    check(std::find(known.begin(), known.end(), key) != known.end(), Code::bad_argument,
          "model: '{}' is not a key of a model file; there are {}{}. A config.json of Hugging Face has a model_type", key, joined(known),
          did_you_mean(key, known));
  c.vocab = integer(j, "vocab");
  c.width = integer(j, "width");
  c.layers = integer(j, "layers");
  c.heads = integer(j, "heads");
  c.kv_heads = integer(j, "kv_heads");
  c.head_dim = integer(j, "head_dim");
  c.ffn = integer(j, "ffn");
  c.tied = truth(j, "tied");
  c.qkv_bias = truth(j, "qkv_bias");
  c.qk_norm = truth(j, "qk_norm");
  c.rope_theta = number(j, "rope_theta", c.rope_theta);
  c.norm_eps = number(j, "norm_eps", c.norm_eps);
  return c;
}

}  // namespace

void check(const ModelConfig& c) {
  if (c.counted) return check(*c.counted);
  if (c.decoder) return check(*c.decoder);
  const auto positive = [&](const char* what, std::int64_t value, std::int64_t most) {
    check(value >= 1 && value <= most, Code::bad_argument, "model {}: {} is {}, it must be 1 to {}", c.name, what, value, most);
  };
  positive("vocab", c.vocab, 1 << 24);
  positive("width", c.width, 1 << 20);
  positive("layers", c.layers, 1 << 12);
  positive("heads", c.heads, 1 << 14);
  positive("kv_heads", c.kv_heads, 1 << 14);
  positive("head_dim", c.head_dim, 256);
  positive("ffn", c.ffn, 1 << 22);
  check(c.heads % c.kv_heads == 0, Code::bad_argument, "model {}: kv_heads {} must divide heads {}", c.name, c.kv_heads, c.heads);
  check(c.head_dim % 2 == 0, Code::bad_argument, "model {}: head_dim is {}; rotary positions rotate pairs, so it must be even", c.name,
        c.head_dim);
  check(c.rope_theta > 1, Code::bad_argument, "model {}: rope_theta is {}, it must be above 1", c.name, c.rope_theta);
  check(c.norm_eps >= 0 && c.norm_eps < 1, Code::bad_argument, "model {}: norm_eps is {}, it must be 0 to 1", c.name, c.norm_eps);
}

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> all = {
      gpt("small", 10000, 768, 3072, 12, 12), gpt("medium", 10000, 1024, 4096, 24, 16), gpt("large", 10000, 1280, 5120, 36, 20),
      gpt("xl", 10000, 1600, 6400, 48, 25),   gpt("2.7B", 10000, 2560, 10240, 32, 32),  gpt("xl-2026", 10000, 2560, 10240, 32, 32),
      gpt("10B", 10000, 4608, 12288, 50, 36), gpt("8B", 151936, 4096, 11008, 34, 32),
  };
  return all;
}

ModelConfig model_from_json(std::string_view text, std::string_view name) {
  const Json j = parse_json(text, fmt::format("model: '{}'", name));
  check(j.is_object(), Code::bad_argument, "model: '{}' does not describe a model: it is not a JSON object", name);
  ModelConfig c = is_hugging_face(j) ? model_of(decoder_from(j)) : own(j);
  c.name = j.contains("name") && j["name"].is_string() ? j["name"].get<std::string>() : std::string(name);
  finish(c);
  check(c);
  return c;
}

namespace {

ModelConfig model_in_file(const std::filesystem::path& path) {
  return model_from_json(read_file(path.string(), "model", most_json_bytes),
                         path.stem() == "config" && path.has_parent_path()
                             ? std::filesystem::absolute(path).parent_path().filename().string()
                             : path.stem().string());
}

// The newest config.json that Hugging Face's own programs have kept of ORGANISATION/NAME; empty: none.
std::filesystem::path in_hub_cache(std::string_view name) {
  const auto said = [](const char* variable) { return std::string(std::getenv(variable) ? std::getenv(variable) : ""); };
  const std::filesystem::path home = !said("HF_HOME").empty() ? said("HF_HOME") : said("HOME") + "/.cache/huggingface";
  const std::filesystem::path hub = !said("HF_HUB_CACHE").empty() ? std::filesystem::path(said("HF_HUB_CACHE")) : home / "hub";
  std::string folder = "models--" + std::string(name);
  folder.replace(folder.find('/'), 1, "--");
  std::error_code ignored;
  std::filesystem::path newest;
  std::filesystem::file_time_type when{};
  for (const auto& snapshot : std::filesystem::directory_iterator(hub / folder / "snapshots", ignored)) {
    const auto config = snapshot.path() / "config.json";
    const auto written = std::filesystem::last_write_time(config, ignored);
    if (!std::filesystem::exists(config, ignored) || (!newest.empty() && written < when)) continue;
    newest = config, when = written;
  }
  return newest;
}

}  // namespace

ModelConfig model_described(std::string_view typed) {
  std::string presets_named;
  std::vector<std::string> names;
  for (const ModelConfig& c : presets()) {
    if (c.name == typed) return c;
    presets_named += (presets_named.empty() ? "" : ", ") + c.name;
    names.push_back(c.name);
  }
  std::filesystem::path path(typed);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    path /= "config.json";
    check(std::filesystem::exists(path, ignored), Code::bad_argument, "model: the folder '{}' holds no config.json", typed);
  }
  const std::string why = why_no_file(path.string());
  if (why.empty()) return model_in_file(path);
  const bool of_hub = std::count(typed.begin(), typed.end(), '/') == 1 && !typed.ends_with(".json") && typed.front() != '/';
  if (of_hub)
    if (const auto cached = in_hub_cache(typed); !cached.empty()) {
      ModelConfig c = model_in_file(cached);
      c.name = typed.substr(typed.find('/') + 1);
      return c;
    }
  if (const Published* p = published_model(typed)) return model_from_json(p->config, p->name);
  check(!of_hub, Code::bad_argument,
        "model: {} is not known, in no folder here and not in the hub's cache; fetch its description (hf download {} config.json "
        "--local-dir DIR) and name that DIR",
        typed, typed);
  std::string lower;
  for (const char c : typed) lower += char(std::tolower(static_cast<unsigned char>(c)));
  for (const Published& p : published_models()) {
    names.emplace_back(p.name);
    for (char& c : names.back()) c = char(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto ends_like = [&](const std::string& name) {  // as 70b does for llama-3.1-70b
    const auto at = name.rfind(lower);
    return lower.size() > 1 && at != std::string::npos && at > 0 && !std::isalnum(static_cast<unsigned char>(name[at - 1])) &&
           name[at - 1] != '.';
  };
  std::vector<std::string> of_this_size;
  std::copy_if(names.begin(), names.end(), std::back_inserter(of_this_size), ends_like);
  check(of_this_size.empty(), Code::bad_argument,
        "model: '{}' says no model by itself; name one, as {}, a JSON file, or a folder with a config.json", typed, joined(of_this_size));
  throw Error(Code::bad_argument,
              fmt::format("model: {}; name one of {}, a published model as llama-3.1-8b, a JSON file, or a folder with a config.json{}",
                          why, presets_named, did_you_mean(lower, names)));
}

std::string to_json(const ModelConfig& c) {
  if (const auto* described = c.counted ? c.counted.get() : c.decoder.get(); described && !described->source.empty()) {
    Json j = parse_json(described->source, "model");
    j["name"] = c.name;
    return j.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return Json{{"name", c.name},         {"vocab", c.vocab},       {"width", c.width},    {"layers", c.layers}, {"heads", c.heads},
              {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim}, {"ffn", c.ffn},        {"tied", c.tied},     {"rope_theta", c.rope_theta},
              {"norm_eps", c.norm_eps}, {"qkv_bias", c.qkv_bias}, {"qk_norm", c.qk_norm}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);  // a file's name may be no UTF-8
}

Decoder decoder_of(const ModelConfig& c) {
  if (c.counted) return *c.counted;
  if (c.decoder) return *c.decoder;
  Decoder d;
  d.family = "headroom";
  d.vocab = c.vocab;
  d.width = c.width;
  d.tied = c.tied;
  d.norm_eps = c.norm_eps;
  const SelfAttention a{.heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .head_dim = c.head_dim,
                        .value_dim = c.head_dim,
                        .qkv_bias = c.qkv_bias,
                        .norm = c.qk_norm ? HeadNorm::each : HeadNorm::none,
                        .turned = {.theta = c.rope_theta}};
  d.layers.assign(std::size_t(c.layers), {a, {.width = c.ffn}});
  return d;
}

bool same_model(const ModelConfig& a, const ModelConfig& b) {
  ModelConfig named = a;
  named.name = b.name;
  return to_json(named) == to_json(b);
}

std::string why_not_trained(const ModelConfig& c) {
  return c.counted ? fmt::format("Counted, not trained here: this engine has no {}.", c.counted->untrained) : "";
}

void check_pytorch_account(const ModelConfig& c) {
  const std::string more = c.counted ? c.counted->untrained : c.decoder ? more_than_llama(*c.decoder) : "";
  check(more.empty(), Code::unsupported, "PyTorch's step of {} is not known: it has {}; ask for this library's step", c.name, more);
}

void check_trained(const ModelConfig& c) {
  check(!c.counted, Code::unsupported, "model {}: it is counted (memory model, plan), not trained: this engine has no {}", c.name,
        c.counted ? c.counted->untrained : "");
}

}  // namespace headroom::engine
