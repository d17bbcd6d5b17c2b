#include "engine/model/models.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/model/hugging_face.h"
#include "engine/model/params.h"
#include "engine/model/plain_model.h"
#include "engine/model/published.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;

Decoder gpt(const char* name, std::int64_t vocab, std::int64_t width, std::int64_t ffn, std::int64_t layers, std::int64_t heads) {
  return decoder_of({.name = name,
                     .vocab = vocab,
                     .width = width,
                     .layers = layers,
                     .heads = heads,
                     .kv_heads = heads,
                     .head_dim = width / heads,
                     .ffn = ffn});
}

void read(const Json& j, const char* key, std::int64_t& into) {
  check(j.is_number_integer() && (!j.is_number_unsigned() || j.get<std::uint64_t>() >> 63 == 0), Code::bad_argument,
        "model: '{}' is {}, it must be a whole number", key, j.dump());
  into = j.get<std::int64_t>();
}
void read(const Json& j, const char* key, double& into) {
  check(j.is_number(), Code::bad_argument, "model: '{}' is {}, it must be a number", key, j.dump());
  into = j.get<double>();
}
void read(const Json& j, const char* key, bool& into) {
  check(j.is_boolean(), Code::bad_argument, "model: '{}' is {}, it must be true or false", key, j.dump());
  into = j.get<bool>();
}
void read(const Json&, const char*, std::string&) {}  // a name may be anything: the caller knows another

Decoder own(const Json& j, const std::string& name) {
  PlainModel m;
  std::vector<std::string> known;
  describe(m, [&](auto&, const Description& d) { known.emplace_back(d.name); });
  for (const auto& [key, value] : j.items())
    check(std::find(known.begin(), known.end(), key) != known.end(), Code::bad_argument,
          "model: '{}' is not a key of a model file; there are {}{}. A config.json of Hugging Face has a model_type", key, joined(known),
          did_you_mean(key, known));
  describe(m, [&](auto& member, const Description& d) {
    if (const auto at = j.find(d.name); at != j.end() && !at->is_null()) read(*at, d.name, member);
  });
  m.name = name;
  if (m.kv_heads == 0) m.kv_heads = m.heads;
  if (m.head_dim == 0 && m.heads > 0) {
    check(m.width % m.heads == 0, Code::bad_argument, "model: width {} is not a multiple of {} heads; give head_dim", m.width, m.heads);
    m.head_dim = m.width / m.heads;
  }
  check(m);
  return decoder_of(m);
}

}  // namespace

const std::vector<Decoder>& presets() {
  static const std::vector<Decoder> all = {
      gpt("small", 10000, 768, 3072, 12, 12), gpt("medium", 10000, 1024, 4096, 24, 16), gpt("large", 10000, 1280, 5120, 36, 20),
      gpt("xl", 10000, 1600, 6400, 48, 25),   gpt("2.7B", 10000, 2560, 10240, 32, 32),  gpt("xl-2026", 10000, 2560, 10240, 32, 32),
      gpt("10B", 10000, 4608, 12288, 50, 36), gpt("8B", 151936, 4096, 11008, 34, 32),
  };
  return all;
}

std::string preset_in_words(const Decoder& d) {
  const bool is = std::any_of(presets().begin(), presets().end(), [&](const Decoder& one) { return one.name == d.name; });
  if (!is || !d.name.ends_with("B")) return "";
  const PlainModel m = sizes_of(d);
  return fmt::format(
      "{} is a preset of this library: {} layers of width {}, vocabulary {}, {} parameters. Published models have names, as llama-3.1-8b.",
      d.name, m.layers, m.width, m.vocab, param_count(d));
}

namespace {

Decoder model_of(const Json& j, std::string_view name) {
  check(j.is_object(), Code::bad_argument, "model: '{}' does not describe a model: it is not a JSON object", name);
  const std::string called = j.contains("name") && j["name"].is_string() ? j["name"].get<std::string>() : std::string(name);
  if (!is_hugging_face(j)) return own(j, called);
  Decoder d = decoder_from(j);
  d.name = called;
  return d;
}

Decoder model_in_file(const std::filesystem::path& path) {
  const bool of_folder = path.stem() == "config" && path.has_parent_path();
  return model_of(parse_json(read_file(path.string(), "model", most_json_bytes), fmt::format("model: '{}'", path.string())),
                  of_folder ? std::filesystem::absolute(path).parent_path().filename().string() : path.stem().string());
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

Decoder model_from_json(std::string_view text, std::string_view name) {
  return model_of(parse_json(text, fmt::format("model: '{}'", name)), name);
}

Decoder model_described(std::string_view typed) {
  std::string presets_named;
  std::vector<std::string> names;
  for (const Decoder& c : presets()) {
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
      Decoder c = model_in_file(cached);
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
  const auto part_of = [&](const std::string& name) {  // as 70b is of llama-3.1-70b, and mistral-7b of mistral-7b-v0.1
    if (lower.size() > 1 && name.starts_with(lower) && !std::isalnum(static_cast<unsigned char>(name[lower.size()]))) return true;
    const auto at = name.rfind(lower);
    return lower.size() > 1 && at != std::string::npos && at > 0 && !std::isalnum(static_cast<unsigned char>(name[at - 1])) &&
           name[at - 1] != '.';
  };
  std::vector<std::string> of_this_name;
  std::copy_if(names.begin(), names.end(), std::back_inserter(of_this_name), part_of);
  check(of_this_name.empty(), Code::bad_argument,
        "model: '{}' is only a part of a name; give all of it, as {}, a JSON file, or a folder with a config.json", typed,
        joined(of_this_name));
  throw Error(Code::bad_argument,
              fmt::format("model: {}; name one of {}, a published model as llama-3.1-8b, a JSON file, or a folder with a config.json{}",
                          why, presets_named, did_you_mean(lower, names)));
}

std::string to_json(const Decoder& model) {
  Json j = Json::object();
  const PlainModel sizes = sizes_of(model);
  if (model.source.empty() || plain_of(model))
    describe(sizes, [&](const auto& member, const Description& d) { j[d.name] = member; });
  else
    j = parse_json(model.source, "model");
  j["name"] = model.name;
  return text_of_json(j);  // a file's name may be no UTF-8
}

std::int64_t positions_said(const Decoder& d) {
  const Json file = parse_json_or_discard<Json>(d.source);
  if (!file.is_object()) return 0;
  const auto said_in = [](const Json& j) {
    const auto at = j.find("max_position_embeddings");
    return at != j.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
  };
  const auto text = file.find("text_config");
  const std::int64_t said = text != file.end() && text->is_object() ? said_in(*text) : said_in(file);
  const rope::Positions& turned = d.first().attention.turned;
  const double scaled = turned.scaling == rope::Scaling::none ? 0 : turned.factor * turned.original;
  return said > 0 ? std::max(said, std::int64_t(std::min(scaled, 0x1p31))) : 0;
}

std::string past_its_positions(const Decoder& d, std::int64_t len) {
  const std::int64_t said = positions_said(d);
  if (said == 0 || len <= said) return "";
  return fmt::format(
      "A length of {} is past the {} positions that {} was made for (max_position_embeddings of its config.json). Rotary "
      "positions can be stretched (rope_scaling), which changes no bytes here; what the model makes of them is not known.",
      len, said, d.name);
}

bool same_model(const Decoder& a, const Decoder& b) {
  Decoder named = a;
  named.name = b.name;
  return to_json(named) == to_json(b);
}

}  // namespace headroom::engine
