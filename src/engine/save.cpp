#include "engine/save.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"

namespace headroom::engine {

namespace fs = std::filesystem;

namespace {

constexpr const char* format = "headroom checkpoint 1";

enum class What : std::uint8_t { weights, everything };

std::vector<NamedTensor> tensors_of(Training& t, What what) {
  std::vector<NamedTensor> all;
  for (const Param& p : t.store().params()) {
    const std::string name = p.spec.full_name();
    all.push_back(p.rest ? NamedTensor{name, p.copy, p.rest} : NamedTensor{name, p.master});
    if (p.m && what == What::everything) all.push_back({name + ".m", p.m}), all.push_back({name + ".v", p.v});
  }
  if (what == What::everything) all.push_back({"adamw.state", t.state_tensor()});
  return all;
}

std::vector<fs::path> checkpoints_in(const std::string& folder) {
  std::vector<fs::path> all;
  std::error_code none;
  for (const auto& e : fs::directory_iterator(folder, none)) {
    const std::string name = e.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors")) all.push_back(e.path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

template <class T>
T number(const Metadata& m, const char* key, const std::string& path) {
  T value{};
  const auto at = m.find(key);
  const bool there = at != m.end();
  const char* end = there ? at->second.data() + at->second.size() : nullptr;
  check(there && std::from_chars(at->second.data(), end, value).ptr == end && !at->second.empty(), Code::io,
        "'{}' has no {} of a checkpoint", path, key);
  return value;
}

}  // namespace

void save(Training& t, const Position& p, const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  check(!failed, Code::io, "'{}' cannot be made: {}", folder, failed.message());
  const std::string path = (fs::path(folder) / fmt::format("step-{:08}.safetensors", p.step)).string();
  write_safetensors(path, tensors_of(t, What::everything),
                    {{"format", format},
                     {"model", to_json(t.recipe().model)},
                     {"step", std::to_string(p.step)},
                     {"seed", std::to_string(p.seed)},
                     {"settings", p.settings}},
                    HostView(t.context()));
  const auto all = checkpoints_in(folder);
  for (std::size_t i = 0; i + 2 < all.size(); ++i) fs::remove(all[i], failed);
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  const auto all = checkpoints_in(folder);
  if (all.empty()) return std::nullopt;
  return all.back().string();
}

Described describe_checkpoint(const std::string& path) {
  const Metadata m = read_safetensors_header(path).metadata;
  const auto at = m.find("format");
  check(at != m.end() && at->second == format, Code::io, "'{}' is a safetensors file, but not a checkpoint of this program", path);
  check(m.contains("model") && m.contains("settings"), Code::io, "'{}' does not say which model it is of", path);
  return {{number<std::int64_t>(m, "step", path), number<std::uint64_t>(m, "seed", path), m.at("settings")},
          model_from_json(m.at("model"), path)};
}

namespace {
void load_from(Training& t, const std::string& path, What what) {
  const Described d = describe_checkpoint(path);
  ModelConfig theirs = d.model;
  theirs.name = t.recipe().model.name;  // what it was called does not matter
  check(to_json(theirs) == to_json(t.recipe().model), Code::io, "'{}' is a checkpoint of another model: {}", path, to_json(d.model));
  read_safetensors(path, tensors_of(t, what), HostView(t.context()));
  t.store().refresh_copies(t.context());
}
}  // namespace

void load(Training& t, const std::string& path) { load_from(t, path, What::everything); }
void load_weights(Training& t, const std::string& path) { load_from(t, path, What::weights); }

}  // namespace headroom::engine
