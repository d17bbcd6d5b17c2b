#include "engine/files/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/convert.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/files/safetensors.h"
#include "engine/files/save.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "engine/store/transfer.h"

namespace headroom::engine {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

struct Source {  // a tensor of the files, and the rows of a weight that it fills
  std::string name;
  std::int64_t rows;
  bool transposed = false;  // in the file
  bool less_one = false;    // in the file
};

// What the files of a family call their tensors.
struct Names {
  std::string family, stem, head;  // stem: before every name but the head's
  bool fused = false;              // q, k and v in one tensor, gate and up in another
};

std::string family_of(const Decoder& d) {
  if (!d.source.empty()) return d.family;
  const SelfAttention& a = d.first().attention;
  return a.norm == HeadNorm::each ? "qwen3" : a.qkv_bias ? "qwen2" : "llama";
}

Names names_of_model(const Decoder& d) {
  const std::string family = family_of(d);
  return {family, family == "gpt2" ? "transformer." : "model.", "lm_head.weight", family == "phi3"};
}

std::vector<Source> sources_of(const ParamSpec& s, const Decoder& d, const Names& names) {
  const bool gpt2 = names.family == "gpt2";
  const std::string block = fmt::format("{}{}.{}.", names.stem, gpt2 ? "h" : "layers", s.layer),
                    attention = block + (gpt2 ? "attn." : "self_attn.");
  const DecoderLayer& layer = d.layers[std::size_t(std::max(0, s.layer))];
  const std::int64_t ffn = layer.ffn.width;
  const auto stacked = [&](const char* of) {
    const SelfAttention& a = layer.attention;
    return std::vector<Source>{
        {attention + "q_proj." + of, a.q_width()}, {attention + "k_proj." + of, a.k_width()}, {attention + "v_proj." + of, a.v_width()}};
  };
  const auto whole = [&](const std::string& name) { return std::vector<Source>{{name, s.shape[0]}}; };
  const auto norm = [&](const std::string& name) { return std::vector<Source>{{name, s.shape[0], false, d.norms_less_one}}; };
  const auto matrix = [&](const std::string& name) { return std::vector<Source>{{name, s.shape[0], gpt2}}; };  // GPT-2's lie [in, out]
  switch (s.role) {
    case WeightRole::embedding: return whole(names.stem + (gpt2 ? "wte.weight" : "embed_tokens.weight"));
    case WeightRole::positions: return whole(names.stem + "wpe.weight");
    case WeightRole::norm1: return norm(block + (gpt2 ? "ln_1.weight" : "input_layernorm.weight"));
    case WeightRole::norm1_bias: return whole(block + "ln_1.bias");
    case WeightRole::qkv:
      return gpt2 ? matrix(attention + "c_attn.weight") : names.fused ? whole(attention + "qkv_proj.weight") : stacked("weight");
    case WeightRole::qkv_bias: return gpt2 ? whole(attention + "c_attn.bias") : stacked("bias");
    case WeightRole::q_norm: return norm(attention + "q_norm.weight");
    case WeightRole::k_norm: return norm(attention + "k_norm.weight");
    case WeightRole::out: return matrix(attention + (gpt2 ? "c_proj.weight" : "o_proj.weight"));
    case WeightRole::out_bias: return whole(attention + (gpt2 ? "c_proj.bias" : "o_proj.bias"));
    case WeightRole::norm1_after: return norm(block + "post_attention_layernorm.weight");
    case WeightRole::norm2:
      return norm(block + (gpt2 ? "ln_2.weight" : d.norms_after ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight"));
    case WeightRole::norm2_bias: return whole(block + "ln_2.bias");
    case WeightRole::gate_up:
      if (gpt2) return matrix(block + "mlp.c_fc.weight");
      if (names.fused) return whole(block + "mlp.gate_up_proj.weight");
      return {{block + "mlp.gate_proj.weight", ffn}, {block + "mlp.up_proj.weight", ffn}};
    case WeightRole::gate_up_bias:
      if (gpt2) return whole(block + "mlp.c_fc.bias");
      return {{block + "mlp.gate_proj.bias", ffn}, {block + "mlp.up_proj.bias", ffn}};
    case WeightRole::down: return matrix(block + (gpt2 ? "mlp.c_proj.weight" : "mlp.down_proj.weight"));
    case WeightRole::down_bias: return whole(block + (gpt2 ? "mlp.c_proj.bias" : "mlp.down_proj.bias"));
    case WeightRole::norm2_after: return norm(block + "post_feedforward_layernorm.weight");
    case WeightRole::final_norm: return norm(names.stem + (gpt2 ? "ln_f.weight" : "norm.weight"));
    case WeightRole::final_norm_bias: return whole(names.stem + "ln_f.bias");
    case WeightRole::head: return whole(names.head);
    default: break;  // a part of models that are only counted
  }
  throw Error(Code::unsupported, fmt::format("the files of {} have no name for {}", names.family, s.full_name()));
}

// As a file has it: [rows, columns], or the other way round.
std::vector<std::int64_t> shape_of(const Source& source, const ParamSpec& s) {
  if (s.shape.rank == 1) return {source.rows};
  std::vector<std::int64_t> shape{source.rows, s.shape[1]};
  if (source.transposed) std::swap(shape[0], shape[1]);
  return shape;
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

// As the files themselves name things: a decoder may be saved alone or as a part of a larger model, with fused products or without.
Names names_in(const Files& files, const Decoder& d) {
  Names names = names_of_model(d);
  const bool gpt2 = names.family == "gpt2";
  for (const char* stem : {"transformer.", "model.", "", "language_model.model.", "model.language_model."})
    if (files.contains(stem + std::string(gpt2 ? "wte.weight" : "embed_tokens.weight"))) {
      names.stem = stem;
      break;
    }
  if (names.stem.starts_with("language_model.") && files.contains("language_model.lm_head.weight"))
    names.head = "language_model.lm_head.weight";
  if (!gpt2) names.fused = files.contains(names.stem + "layers.0.self_attn.qkv_proj.weight");
  return names;
}

// Buffers that say nothing, the head of a model that has the embedding's, and what lies beside a decoder.
bool says_nothing(const std::string& name, const Decoder& d, const Names& names) {
  if (name.ends_with("rotary_emb.inv_freq") || (d.tied && name == names.head)) return true;
  if (names.family == "gpt2") return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  return names.family == "gemma3_text" &&
         (name.find("vision_tower.") != std::string::npos || name.find("multi_modal_projector.") != std::string::npos);
}

std::string first_of(const std::vector<std::string>& names) {
  std::vector<std::string> some(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ptrdiff_t(names.size())));
  if (names.size() > some.size()) some.push_back(fmt::format("{} more", names.size() - some.size()));
  return joined(some);
}

void check_all(const Files& files, const std::vector<Param>& params, const Decoder& d, const Names& names, const std::string& folder) {
  std::set<std::string> used;
  std::vector<std::string> missing, other;
  for (const Param& p : params)
    for (const Source& source : sources_of(p.spec, d, names)) {
      const auto at = files.find(source.name);
      if (at == files.end()) {
        missing.push_back(source.name);
        continue;
      }
      used.insert(source.name);
      type_of(at->second, source.name);
      const auto shape = shape_of(source, p.spec);
      if (at->second.tensor.shape != shape)
        other.push_back(
            fmt::format("{} is {}, config.json asks for {}", source.name, shape_in_words(at->second.tensor.shape), shape_in_words(shape)));
    }
  std::vector<std::string> left;
  for (const auto& [name, found] : files)
    if (!used.contains(name) && !says_nothing(name, d, names)) left.push_back(name);
  check(missing.empty(), Code::bad_argument, "'{}' lacks {} of its model's tensors: {}", folder, missing.size(), first_of(missing));
  check(other.empty(), Code::bad_argument, "'{}': {} {} another shape: {}", folder, counted(other.size(), "tensor"),
        other.size() == 1 ? "has" : "have", first_of(other));
  check(left.empty(), Code::bad_argument, "'{}' has {} that the model does not have: {}", folder, counted(left.size(), "tensor"),
        first_of(left));
}

}  // namespace

Decoder pretrained_model(const std::string& folder) {
  const fs::path config = fs::path(folder) / "config.json";
  std::error_code ignored;
  check(fs::exists(config, ignored), Code::bad_argument,
        "'{}' is not a model's folder: it has no config.json and no checkpoint of this program", folder);
  return model_described(config.string());
}

void load_pretrained(Training& t, const std::string& folder) {
  const Decoder& d = t.recipe().model;
  const Files files = tensors_in(folder);
  const Names names = names_in(files, d);
  check_all(files, t.store().params(), d, names, folder);
  std::vector<char> bytes;
  std::vector<float> all;  // where several ranks each take a part
  HostView view(t.context());
  for (const Param& p : t.store().params()) {
    const Tensor& whole = p.rest ? p.copy : p.master;
    if (t.comm()) all.resize(std::size_t(p.spec.shape.count()));
    float* to = t.comm() ? all.data() : reinterpret_cast<float*>(view.room(whole, p.rest));
    for (const Source& source : sources_of(p.spec, d, names)) {
      const Found& from = files.at(source.name);
      std::ifstream in(from.file, std::ios::binary);
      bytes.resize(from.tensor.bytes);
      in.seekg(std::streamoff(from.tensor.at));
      in.read(bytes.data(), std::streamsize(bytes.size()));
      check(bool(in), Code::io, "'{}' cannot be read completely", from.file);
      const std::int64_t columns = p.spec.shape.rank == 2 ? p.spec.shape[1] : 1, rows = source.rows;
      const float more = source.less_one ? 1 : 0;
      with_float(type_of(from, source.name), [&]<class T>() {
        const T* values = reinterpret_cast<const T*>(bytes.data());
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t i = 0; i < columns; ++i)
            to[row * columns + i] = widen(values[source.transposed ? i * rows + row : row * columns + i]) + more;
      });
      to += rows * columns;
    }
    t.comm() ? t.store().set_values(p, all.data()) : view.write(whole, p.rest);
  }
  t.store().refresh_copies();
}

namespace {

// The config.json of a model that none described: the class of transformers that computes the same.
Json config_of(const Decoder& d, std::int64_t len) {
  const std::string family = family_of(d);
  const PlainModel c = sizes_of(d);
  Json j{{"architectures",
          {family == "llama"   ? "LlamaForCausalLM"
           : family == "qwen2" ? "Qwen2ForCausalLM"
                               : "Qwen3ForCausalLM"}},
         {"model_type", family},
         {"vocab_size", c.vocab},
         {"hidden_size", c.width},
         {"intermediate_size", c.ffn},
         {"num_hidden_layers", c.layers},
         {"num_attention_heads", c.heads},
         {"num_key_value_heads", c.kv_heads},
         {"head_dim", c.head_dim},
         {"hidden_act", "silu"},
         {"rms_norm_eps", c.norm_eps},
         {"rope_theta", c.rope_theta},
         {"max_position_embeddings", len},
         {"tie_word_embeddings", c.tied}};
  if (family != "qwen2") j["attention_bias"] = false;
  return j;
}

Json config_to_write(const Decoder& d, std::int64_t len) {
  Json j = d.source.empty() ? config_of(d, len) : parse_json(d.source, "config.json");
  if (j.contains("text_config") && j["text_config"].is_object()) {  // the decoder alone is what was trained
    Json text = j["text_config"];
    for (const char* outer : {"vocab_size", "tie_word_embeddings"})
      if (!text.contains(outer) && j.contains(outer)) text[outer] = j[outer];
    text["model_type"] = "gemma3_text";
    text["architectures"] = {"Gemma3ForCausalLM"};
    j = std::move(text);
  }
  for (const char* key : {"name", "quantization_config", "torch_dtype", "dtype"}) j.erase(key);
  j["dtype"] = "float32";
  return j;
}

constexpr const char* producer = "headroom";

std::vector<NamedTensor> tensors_to_write(Training& t) {
  const Decoder& d = t.recipe().model;
  const Names names = names_of_model(d);
  std::vector<NamedTensor> all;
  for (const Param& p : t.store().params()) {
    std::int64_t first = 0;
    for (const Source& source : sources_of(p.spec, d, names)) {
      const auto shape = shape_of(source, p.spec);
      const std::int64_t columns = p.spec.shape.rank == 2 ? p.spec.shape[1] : 1;
      const auto bring = [&t, &p, source, first, columns] {
        const std::vector<float> values = t.store().values(p);
        std::vector<char> bytes(std::size_t(source.rows * columns) * sizeof(float));
        auto* part = reinterpret_cast<float*>(bytes.data());
        for (std::int64_t row = 0; row < source.rows; ++row)
          for (std::int64_t i = 0; i < columns; ++i)
            part[std::size_t(source.transposed ? i * source.rows + row : row * columns + i)] =
                values[std::size_t((first + row) * columns + i)] - (source.less_one ? 1.0f : 0.0f);
        return bytes;
      };
      all.push_back({source.name, Tensor(nullptr, DType::f32, shape.size() == 2 ? Shape{shape[0], shape[1]} : Shape{shape[0]}), {}, bring});
      first += source.rows;
    }
  }
  return all;
}

}  // namespace

void check_pretrained_place(const Decoder& d, const std::string& folder) {
  const PlainModel sizes = sizes_of(d);
  check(!d.source.empty() || !(sizes.qk_norm && sizes.qkv_bias), Code::unsupported,
        "--save-hf: no class of transformers has biases of q, k and v beside norms of q and k");
  make_folder(folder);
  const fs::path weights = fs::path(folder) / "model.safetensors";
  std::error_code ignored;
  bool theirs = fs::exists(fs::path(folder) / "model.safetensors.index.json", ignored) ||
                (fs::exists(fs::path(folder) / "config.json", ignored) && !fs::exists(weights, ignored));
  if (!theirs && fs::exists(weights, ignored)) {
    const Metadata m = read_safetensors_header(weights.string()).metadata;
    const auto at = m.find("producer");
    theirs = at == m.end() || at->second != producer;
  }
  check(!theirs, Code::bad_argument, "--save-hf: '{}' holds a model that this program did not write; name another folder", folder);
  check_room(folder, 4.0 * double(param_count(d)), "the weights in FP32");
}

void save_pretrained(Training& t, const std::string& folder) {
  const auto tensors = tensors_to_write(t);
  if (t.rank() > 0) {  // rank 0 writes; the others bring their parts as often as it asks
    for (int time = 0; time < 2; ++time)
      for (const NamedTensor& one : tensors) one.bring();
    return;
  }
  write_safetensors((fs::path(folder) / "model.safetensors").string(), tensors, {{"format", "pt"}, {"producer", producer}},
                    HostView(t.context()));
  write_atomically((fs::path(folder) / "config.json").string(), text_of_json(config_to_write(t.recipe().model, t.recipe().len), 2) + "\n");
}

}  // namespace headroom::engine
