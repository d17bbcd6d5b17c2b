#include "engine/pretrained.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "base/convert.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/safetensors.h"
#include "engine/transfer.h"

namespace headroom::engine {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

struct Source {  // a tensor of the files, and the rows of a weight that it fills
  std::string name;
  std::int64_t rows;
};

std::vector<Source> sources_of(const ParamSpec& s, const ModelConfig& c) {
  const std::string block = fmt::format("model.layers.{}.", s.layer);
  const auto stacked = [&](const char* of) {
    return std::vector<Source>{{block + "self_attn.q_proj." + of, c.q_width()},
                               {block + "self_attn.k_proj." + of, c.kv_width()},
                               {block + "self_attn.v_proj." + of, c.kv_width()}};
  };
  const auto whole = [&](const std::string& name) { return std::vector<Source>{{name, s.shape[0]}}; };
  switch (s.role) {
    case Role::embedding: return whole("model.embed_tokens.weight");
    case Role::norm1: return whole(block + "input_layernorm.weight");
    case Role::qkv: return stacked("weight");
    case Role::qkv_bias: return stacked("bias");
    case Role::q_norm: return whole(block + "self_attn.q_norm.weight");
    case Role::k_norm: return whole(block + "self_attn.k_norm.weight");
    case Role::out: return whole(block + "self_attn.o_proj.weight");
    case Role::norm2: return whole(block + "post_attention_layernorm.weight");
    case Role::gate_up: return {{block + "mlp.gate_proj.weight", c.ffn}, {block + "mlp.up_proj.weight", c.ffn}};
    case Role::down: return whole(block + "mlp.down_proj.weight");
    case Role::final_norm: return whole("model.norm.weight");
    case Role::head: return whole("lm_head.weight");
  }
  return {};
}

struct Found {
  std::string file;
  StoredTensor tensor;
};
using Files = std::map<std::string, Found>;

void add_file(Files& all, const fs::path& path) {
  for (auto& [name, tensor] : read_safetensors_header(path.string()).tensors) all[name] = {path.string(), std::move(tensor)};
}

Files tensors_in(const fs::path& folder) {
  Files all;
  std::error_code ignored;
  if (fs::exists(folder / "model.safetensors", ignored)) return add_file(all, folder / "model.safetensors"), all;
  const fs::path index = folder / "model.safetensors.index.json";
  check(fs::exists(index, ignored), Code::bad_argument,
        "'{}' has neither model.safetensors nor model.safetensors.index.json; only safetensors files are read", folder.string());
  const Json json = parse_json(read_file(index.string(), "--init", most_json_bytes), fmt::format("'{}'", index.string()), Code::io);
  const bool mapped = json.is_object() && json.contains("weight_map") && json["weight_map"].is_object();
  check(mapped, Code::io, "'{}' is damaged: it has no weight_map", index.string());
  std::set<std::string> shards;
  for (const auto& [name, file] : json["weight_map"].items()) {
    check(file.is_string() && fs::path(file.get<std::string>()).filename() == file.get<std::string>(), Code::io,
          "'{}': {} is in {}, which is not a file name", index.string(), name, file.dump());
    shards.insert(file.get<std::string>());
  }
  for (const auto& shard : shards) add_file(all, folder / shard);
  return all;
}

DType type_of(const Found& f, const std::string& name) {
  if (f.tensor.type == "F32") return DType::f32;
  if (f.tensor.type == "BF16") return DType::bf16;
  check(f.tensor.type == "F16", Code::unsupported, "'{}': {} is {}; F32, BF16 and F16 are read", f.file, name, f.tensor.type);
  return DType::f16;
}

// Buffers that say nothing, and the head of a model that has the embedding's.
bool says_nothing(const std::string& name, const ModelConfig& c) {
  return name.ends_with("rotary_emb.inv_freq") || (c.tied && name == "lm_head.weight");
}

std::string first_of(const std::vector<std::string>& names) {
  std::vector<std::string> some(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ptrdiff_t(names.size())));
  if (names.size() > some.size()) some.push_back(fmt::format("{} more", names.size() - some.size()));
  return joined(some);
}

void check_all(const Files& files, const std::vector<Param>& params, const ModelConfig& c, const std::string& folder) {
  std::set<std::string> used;
  std::vector<std::string> missing, other;
  for (const Param& p : params)
    for (const Source& source : sources_of(p.spec, c)) {
      const auto at = files.find(source.name);
      if (at == files.end()) {
        missing.push_back(source.name);
        continue;
      }
      used.insert(source.name);
      type_of(at->second, source.name);
      std::vector<std::int64_t> shape{source.rows};
      if (p.spec.shape.rank == 2) shape.push_back(p.spec.shape[1]);
      if (at->second.tensor.shape != shape)
        other.push_back(
            fmt::format("{} is {}, config.json asks for {}", source.name, shape_in_words(at->second.tensor.shape), shape_in_words(shape)));
    }
  std::vector<std::string> left;
  for (const auto& [name, found] : files)
    if (!used.contains(name) && !says_nothing(name, c)) left.push_back(name);
  check(missing.empty(), Code::bad_argument, "'{}' lacks {} of its model's tensors: {}", folder, missing.size(), first_of(missing));
  check(other.empty(), Code::bad_argument, "'{}': {} tensors have another shape: {}", folder, other.size(), first_of(other));
  check(left.empty(), Code::bad_argument, "'{}' has {} tensors that the model does not have: {}", folder, left.size(), first_of(left));
}

}  // namespace

ModelConfig pretrained_model(const std::string& folder) {
  const fs::path config = fs::path(folder) / "config.json";
  std::error_code ignored;
  check(fs::exists(config, ignored), Code::bad_argument,
        "'{}' is not a model's folder: it has no config.json and no checkpoint of this program", folder);
  return model_described(config.string());
}

void load_pretrained(Training& t, const std::string& folder) {
  const ModelConfig& c = t.recipe().model;
  check(c.left_out.empty(), Code::unsupported, "'{}' needs features that this engine lacks: {}; the results would be wrong", folder,
        joined(c.left_out));
  const Files files = tensors_in(folder);
  check_all(files, t.store().params(), c, folder);
  std::vector<char> bytes;
  std::vector<float> all;  // where several ranks each take a part
  HostView view(t.context());
  for (const Param& p : t.store().params()) {
    const Tensor& whole = p.rest ? p.copy : p.master;
    if (t.comm()) all.resize(std::size_t(p.spec.shape.count()));
    float* to = t.comm() ? all.data() : reinterpret_cast<float*>(view.room(whole, p.rest));
    for (const Source& source : sources_of(p.spec, c)) {
      const Found& from = files.at(source.name);
      std::ifstream in(from.file, std::ios::binary);
      bytes.resize(from.tensor.bytes);
      in.seekg(std::streamoff(from.tensor.at));
      in.read(bytes.data(), std::streamsize(bytes.size()));
      check(bool(in), Code::io, "'{}' cannot be read completely", from.file);
      const auto count = source.rows * (p.spec.shape.rank == 2 ? p.spec.shape[1] : 1);
      with_float(type_of(from, source.name), [&]<class T>() {
        const T* values = reinterpret_cast<const T*>(bytes.data());
        for (std::int64_t i = 0; i < count; ++i) to[i] = widen(values[i]);
      });
      to += count;
    }
    t.comm() ? t.store().set_values(p, Value::weight, all.data()) : view.write(whole, p.rest);
  }
  t.store().refresh_copies();
}

}  // namespace headroom::engine
