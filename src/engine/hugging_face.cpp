#include "engine/hugging_face.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "engine/hugging_face_keys.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;

using Numbers = std::initializer_list<std::string_view>;

struct Rotary {
  rope::Positions positions;
  std::string lacks;  // what is not said and training needs
};

// scaling: rope_scaling or rope_parameters, or what one of them says of one kind of layers; null: nothing is said.
Rotary rotary_of(const Json& j, const std::string& family, const Json* scaling, double theta, std::int64_t head_dim) {
  const Json none = Json::object();
  KeyReader r(scaling ? *scaling : none, "rope_scaling"), top(j, family);
  Rotary out;
  rope::Positions& p = out.positions;
  p.theta = r.number("rope_theta", theta);
  const double part = r.number("partial_rotary_factor", top.number("partial_rotary_factor", 1));
  check(part > 0 && part <= 1, Code::bad_argument, "model: 'partial_rotary_factor' is {}, it must be above 0 and at most 1", part);
  if (part < 1) p.dim = std::int64_t(double(head_dim) * part);
  std::string type = r.word("rope_type", r.word("type", "default").c_str());
  if (family == "phi3" && (type == "su" || type == "yarn")) type = "longrope";  // as its class reads them
  if (type == "su") type = "longrope";
  if (type == "default") return out;
  const auto scaling_of_type = names_of<rope::Scaling>.named(type);
  check(scaling_of_type && *scaling_of_type != rope::Scaling::none && *scaling_of_type != rope::Scaling::unknown, Code::bad_argument,
        "model: rope_scaling of type '{}' is not known; default, linear, dynamic, yarn, longrope and llama3 are", type);
  p.scaling = *scaling_of_type;
  const auto needed = [&](double value, const char* key) {
    if (value <= 0 && out.lacks.empty()) out.lacks = fmt::format("rotary positions scaled by '{}' without '{}'", type, key);
    return value;
  };
  const double longest = top.number("max_position_embeddings", 0);
  const double original = r.number("original_max_position_embeddings", longest);
  p.original = top.number("original_max_position_embeddings", family == "phi3" ? 4096 : original);
  if (p.scaling == rope::Scaling::dynamic) p.original = needed(longest, "max_position_embeddings");
  if (p.scaling != rope::Scaling::linear) needed(p.original, "original_max_position_embeddings");
  p.factor = r.number("factor", 0);
  if (p.factor <= 0 && (p.scaling == rope::Scaling::yarn || p.scaling == rope::Scaling::longrope) && p.original > 0)
    p.factor = needed(longest, "max_position_embeddings") / p.original;
  needed(p.factor, "factor");
  switch (p.scaling) {
    case rope::Scaling::llama3:
      p.low = needed(r.number("low_freq_factor", 0), "low_freq_factor");
      p.high = needed(r.number("high_freq_factor", 0), "high_freq_factor");
      break;
    case rope::Scaling::yarn: {
      p.fast = r.number("beta_fast", p.fast), p.slow = r.number("beta_slow", p.slow), p.whole_ends = r.truth("truncate", true);
      p.magnitude = r.number("attention_factor", 0);
      const double some = r.number("mscale", 0), all = r.number("mscale_all_dim", 0);
      const auto grown = [&](double by) { return p.factor <= 1 ? 1.0 : 0.1 * by * std::log(p.factor) + 1; };
      if (p.magnitude == 0 && some > 0 && all > 0) p.magnitude = grown(some) / grown(all);
      break;
    }
    case rope::Scaling::longrope: {
      p.magnitude = r.number("attention_factor", 0);
      for (const auto& [key, into] : {std::pair{"short_factor", &p.short_factors}, std::pair{"long_factor", &p.long_factors}}) {
        const Json* list = r.list(key);
        for (const Json& one : list ? *list : Json::array()) {
          check(one.is_number() && one.get<double>() > 0, Code::bad_argument, "model: {} holds {}, it must hold numbers above 0", key,
                one.dump().substr(0, 80));
          into->push_back(one.get<double>());
        }
        const auto pairs = std::size_t((p.dim ? p.dim : head_dim) / 2);
        if (into->size() != pairs && out.lacks.empty())
          out.lacks = fmt::format("rotary positions of {} pairs with {} factors in '{}'", pairs, into->size(), key);
      }
      break;
    }
    default: break;
  }
  return out;
}

// Of every layer, once its attention and window are known. Newer files have an object for each kind of layers, and Gemma 3 a theta.
void set_rotary(KeyReader& r, const Json& j, Decoder& d, double theta = 10000, double sliding_theta = 0) {
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rope_local_base_freq", "rotary_dim"})
    r.know(key);
  const auto said = [&](const char* key) {
    const auto at = j.find(key);
    return at != j.end() && at->is_object() && !at->empty() ? &*at : nullptr;
  };
  const Json* together = said("rope_parameters");
  const Json* whole = said("rope_scaling") ? said("rope_scaling") : together;
  const auto of_kind = [&](const char* kind) -> const Json* {
    if (!whole || !(whole->contains("full_attention") || whole->contains("sliding_attention"))) return whole;
    const auto at = whole->find(kind);
    return at != whole->end() && at->is_object() ? &*at : nullptr;
  };
  theta = r.number("rope_theta", theta);
  const bool local = sliding_theta > 0;
  if (local) sliding_theta = r.number("rope_local_base_freq", sliding_theta);
  const std::int64_t head_dim = d.layers[0].attention.head_dim;
  const Rotary full = rotary_of(j, d.family, of_kind("full_attention"), theta, head_dim);
  const Json* of_sliding = of_kind("sliding_attention");
  const Rotary sliding =
      rotary_of(j, d.family, local && of_sliding == whole ? nullptr : of_sliding, local ? sliding_theta : theta, head_dim);
  for (DecoderLayer& l : d.layers) {
    const Rotary& its = l.attention.window > 0 ? sliding : full;
    l.attention.turned = its.positions;
    if (d.untrained.empty() && !its.lacks.empty()) d.untrained = its.lacks;
  }
}

void know_quantisation(KeyReader& r, Decoder& d) {
  if (r.object("quantization_config"))
    d.not_counted.push_back("the quantisation of the file's weights: weights are counted in the precision that is asked");
}

FeedForward gated(std::int64_t width, bool bias = false) { return {.width = width, .bias = bias}; }

// The layers of which a window is kept to: layer_types says it for each, else `slides` for layer i.
template <class Slides>
void set_windows(KeyReader& r, Decoder& d, std::int64_t window, Slides slides) {
  const Json* types = r.list("layer_types");
  check(!types || types->size() == d.layers.size(), Code::bad_argument, "model: layer_types names {} layers, there are {}",
        types ? types->size() : 0, d.layers.size());
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    bool here = slides(std::int64_t(i));
    if (types) {
      const std::string type = (*types)[i].is_string() ? (*types)[i].get<std::string>() : (*types)[i].dump();
      check(type == "full_attention" || type == "sliding_attention", Code::bad_argument,
            "model: layer_types holds '{}'; full_attention and sliding_attention are known", type);
      here = type == "sliding_attention";
    }
    d.layers[i].attention.window = here ? window : 0;
  }
}

std::int64_t layer_count(KeyReader& r, const char* key, std::int64_t otherwise = 0) {
  const std::int64_t n = otherwise ? r.integer(key, otherwise) : r.integer(key);
  check(n >= 1 && n <= 1 << 12, Code::bad_argument, "model: '{}' is {}, it must be 1 to {}", key, n, 1 << 12);
  return n;
}

SelfAttention grouped(KeyReader& r, std::int64_t width, std::int64_t head_dim = 0) {
  SelfAttention a;
  a.heads = r.integer("num_attention_heads");
  a.kv_heads = r.integer("num_key_value_heads", a.heads);
  check(a.heads >= 1, Code::bad_argument, "model: 'num_attention_heads' is {}, it must be at least 1", a.heads);
  a.head_dim = r.integer("head_dim", head_dim);
  if (a.head_dim == 0) {
    check(width % a.heads == 0, Code::bad_argument, "model: width {} is not a multiple of {} heads; give head_dim", width, a.heads);
    a.head_dim = width / a.heads;
  }
  a.value_dim = a.head_dim;
  return a;
}

void start_decoder(KeyReader& r, Decoder& d, bool tied, double eps = 1e-6) {
  d.vocab = r.integer("vocab_size"), d.width = r.integer("hidden_size");
  d.tied = r.truth("tie_word_embeddings", tied);
  d.norm_eps = r.number("rms_norm_eps", eps);
  know_quantisation(r, d);
}

// The layers' function by its name in files. One that is not known is counted, not trained.
void set_function(Decoder& d, const std::string& word) {
  using activation::Function;
  constexpr std::pair<std::string_view, Function> words[] = {{"silu", Function::silu},          {"swish", Function::silu},
                                                             {"gelu", Function::gelu},          {"gelu_new", Function::gelu_tanh},
                                                             {"relu", Function::relu},          {"gelu_pytorch_tanh", Function::gelu_tanh},
                                                             {"gelu_fast", Function::gelu_tanh}};
  const auto at = std::find_if(std::begin(words), std::end(words), [&](const auto& w) { return w.first == word; });
  if (at == std::end(words) && d.untrained.empty()) d.untrained = fmt::format("activation {}", word);
  for (DecoderLayer& l : d.layers) l.ffn.function = at == std::end(words) ? Function::silu : at->second;
}
void set_function(KeyReader& r, Decoder& d) {
  r.know("hidden_activation");
  set_function(d, r.word("hidden_act", "silu"));
}

void gpt2(KeyReader& r, Decoder& d) {
  d.vocab = r.integer("vocab_size", 50257), d.width = r.integer("n_embd"), d.positions = r.integer("n_positions", 1024);
  d.tied = r.truth("tie_word_embeddings", true), d.layer_norm = true;
  d.norm_eps = r.number("layer_norm_epsilon", 1e-5);
  check(!r.truth("add_cross_attention"), Code::unsupported, "model: 'add_cross_attention' is true; a decoder alone is counted");
  r.must_be("activation_function", "counted are gelu_new, gelu and relu of", {"gelu_new", "gelu", "relu", "gelu_pytorch_tanh"});
  SelfAttention a{.heads = r.integer("n_head"), .qkv_bias = true, .out_bias = true};
  check(a.heads >= 1 && d.width % a.heads == 0, Code::bad_argument, "model: width {} is not a multiple of {} heads", d.width, a.heads);
  a.kv_heads = a.heads, a.head_dim = a.value_dim = d.width / a.heads;
  FeedForward f{.width = r.integer("n_inner", 4 * d.width), .gated = false, .bias = true};
  d.layers.assign(std::size_t(layer_count(r, "n_layer")), {a, f});
  set_function(d, r.word("activation_function", "gelu_new"));
  const bool scaled = r.truth("scale_attn_weights", true), by_layer = r.truth("scale_attn_by_inverse_layer_idx");
  for (std::size_t i = 0; i < d.layers.size() && (!scaled || by_layer); ++i)
    d.layers[i].attention.scale = (scaled ? 1 / std::sqrt(double(a.head_dim)) : 1) / (by_layer ? double(i + 1) : 1);
  know_quantisation(r, d);
}

void llama_like(KeyReader& r, const Json& j, Decoder& d) {
  const std::string& type = d.family;
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width, type == "qwen3" ? 128 : 0);
  const bool biased = type != "mistral" && type != "qwen2" && r.truth("attention_bias");
  a.qkv_bias = biased || type == "qwen2", a.out_bias = biased;
  a.norm = type == "qwen3" ? HeadNorm::each : HeadNorm::none;
  const bool mlp_bias = type == "llama" && r.truth("mlp_bias");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"), mlp_bias)});
  const bool mistral = type == "mistral";
  const std::int64_t window = r.integer("sliding_window", mistral && !j.contains("sliding_window") ? 4096 : 0),
                     from = r.integer("max_window_layers", 28);
  const bool uses = mistral ? window > 0 : r.truth("use_sliding_window") && window > 0;
  if (type != "llama") set_windows(r, d, uses ? window : 0, [&](std::int64_t i) { return uses && (mistral || i >= from); });
  set_function(r, d);
  set_rotary(r, j, d);
}

void mixtral(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  FeedForward f{.width = r.integer("intermediate_size"),
                .experts = r.integer("num_local_experts"),
                .experts_of_token = r.integer("num_experts_per_tok")};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {grouped(r, d.width), f});
  const std::int64_t window = r.integer("sliding_window", 0);
  set_windows(r, d, window, [&](std::int64_t) { return window > 0; });
  set_function(r, d), set_rotary(r, j, d);
}

void qwen_moe(KeyReader& r, const Json& j, Decoder& d) {
  const bool second = d.family == "qwen2_moe";
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width);
  if (second) {
    a.qkv_bias = r.truth("qkv_bias", true);
  } else {
    a.norm = HeadNorm::each, a.qkv_bias = a.out_bias = r.truth("attention_bias");
  }
  FeedForward experts{.width = r.integer("moe_intermediate_size"),
                      .experts = r.integer("num_experts"),
                      .experts_of_token = r.integer("num_experts_per_tok")};
  if (second) experts.shared_width = r.integer("shared_expert_intermediate_size"), experts.shared_gate = true;
  const FeedForward dense = gated(r.integer("intermediate_size", experts.width));
  const std::int64_t step = r.integer("decoder_sparse_step", 1);
  check(step >= 1, Code::bad_argument, "model: 'decoder_sparse_step' is {}, it must be at least 1", step);
  std::set<std::int64_t> only_dense;
  if (const Json* list = r.list("mlp_only_layers"))
    for (const Json& i : *list) {
      check(i.is_number_integer(), Code::bad_argument, "model: mlp_only_layers holds {}, it must hold whole numbers", i.dump());
      only_dense.insert(i.get<std::int64_t>());
    }
  const std::int64_t layers = layer_count(r, "num_hidden_layers");
  for (std::int64_t i = 0; i < layers; ++i) d.layers.push_back({a, !only_dense.contains(i) && (i + 1) % step == 0 ? experts : dense});
  const std::int64_t window = r.integer("sliding_window", 0), from = r.integer("max_window_layers", 28);
  const bool uses = r.truth("use_sliding_window") && window > 0;
  set_windows(r, d, uses ? window : 0, [&](std::int64_t i) { return uses && i >= from; });
  set_function(r, d), set_rotary(r, j, d);
}

void gemma(KeyReader& r, const Json& j, Decoder& d) {
  const bool third = d.family == "gemma3_text", later = third || d.family == "gemma2";
  if (third) {  // text_config of the larger ones leaves these to the class
    d.vocab = r.integer("vocab_size", 262208), d.width = r.integer("hidden_size", 2304), d.tied = r.truth("tie_word_embeddings", true);
    d.norm_eps = r.number("rms_norm_eps", 1e-6), know_quantisation(r, d);
  } else {
    start_decoder(r, d, true);
  }
  d.norms_less_one = true, d.embedding_scale = std::sqrt(double(std::max<std::int64_t>(d.width, 0)));
  SelfAttention a;
  if (later) {
    const auto capped = [&](const char* key, double otherwise) { return r.number(key, j.contains(key) || third ? 0 : otherwise); };
    const double scalar = r.number("query_pre_attn_scalar", 256);
    check(scalar > 0, Code::bad_argument, "model: 'query_pre_attn_scalar' is {}, it must be above 0", scalar);
    a.scale = 1 / std::sqrt(scalar), a.softcap = capped("attn_logit_softcapping", 50);
    d.logit_softcap = capped("final_logit_softcapping", 30);
  } else {
    for (const char* key : {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"}) r.know(key);
  }
  a.heads = third ? r.integer("num_attention_heads", 8) : r.integer("num_attention_heads");
  a.kv_heads = r.integer("num_key_value_heads", third ? 4 : a.heads);
  a.head_dim = a.value_dim = r.integer("head_dim", 256);
  a.qkv_bias = a.out_bias = r.truth("attention_bias");
  if (third) a.norm = HeadNorm::each;
  d.norms_after = later;
  const std::int64_t ffn = third ? r.integer("intermediate_size", 9216) : r.integer("intermediate_size");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers", third ? 26 : 0)), {a, gated(ffn)});
  if (later) {
    const std::int64_t pattern = third ? r.integer("sliding_window_pattern", r.integer("_sliding_window_pattern", 6)) : 2;
    check(pattern >= 1, Code::bad_argument, "model: 'sliding_window_pattern' is {}, it must be at least 1", pattern);
    set_windows(r, d, r.integer("sliding_window", 4096), [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  }
  check(!r.truth("use_bidirectional_attention"), Code::unsupported, "model: 'use_bidirectional_attention' is true; decoders are counted");
  r.know("hidden_act"), r.know("hidden_activation");
  set_function(d, r.word(later ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh"));
  third ? set_rotary(r, j, d, 1e6, 1e4) : set_rotary(r, j, d);
}

void phi3(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1e-5);
  const SelfAttention a = grouped(r, d.width);
  check(!r.truth("attention_bias") && !r.truth("mlp_bias"), Code::unsupported, "model: biases of phi3 are not known");
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  const std::int64_t window = r.integer("sliding_window", 0);
  set_windows(r, d, window, [&](std::int64_t) { return window > 0; });
  set_function(r, d), set_rotary(r, j, d);
}

void deepseek(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  r.know("rope_interleave"), r.know("head_dim"), r.know("num_key_value_heads"), r.know("moe_layer_freq"), r.know("qk_head_dim");
  SelfAttention a;
  a.heads = a.kv_heads = r.integer("num_attention_heads");
  a.q_rank = r.integer("q_lora_rank", 0), a.kv_rank = r.integer("kv_lora_rank"), a.rope_dim = r.integer("qk_rope_head_dim");
  a.head_dim = r.integer("qk_nope_head_dim") + a.rope_dim, a.value_dim = r.integer("v_head_dim");
  check(a.kv_rank >= 1, Code::bad_argument, "model: 'kv_lora_rank' is {}, it must be at least 1", a.kv_rank);
  check(!r.truth("attention_bias"), Code::unsupported, "model: 'attention_bias' of {} is not known", d.family);
  check(r.integer("moe_layer_freq", 1) == 1, Code::unsupported, "model: 'moe_layer_freq' is {}, 1 is known",
        r.integer("moe_layer_freq", 1));
  const FeedForward dense = gated(r.integer("intermediate_size"));
  FeedForward experts{.width = r.integer("moe_intermediate_size"),
                      .experts = r.integer("n_routed_experts"),
                      .experts_of_token = r.integer("num_experts_per_tok")};
  experts.shared_width = experts.width * r.integer("n_shared_experts", 0);
  experts.router_correction = d.family == "deepseek_v3";
  const std::int64_t first = r.integer("first_k_dense_replace", d.family == "deepseek_v3" ? 3 : 0),
                     layers = layer_count(r, "num_hidden_layers");
  for (std::int64_t i = 0; i < layers; ++i) d.layers.push_back({a, i < first ? dense : experts});
  set_function(r, d), set_rotary(r, j, d);
  if (r.integer("num_nextn_predict_layers", 0) > 0)
    d.not_counted.push_back("the layers that predict further tokens (num_nextn_predict_layers): transformers does not load them");
}

void gpt_oss(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false);
  SelfAttention a = grouped(r, d.width, 64);
  a.qkv_bias = a.out_bias = r.truth("attention_bias", true), a.sinks = true;
  FeedForward f{.width = r.integer("intermediate_size"),
                .bias = true,
                .experts = r.integer("num_local_experts"),
                .experts_of_token = r.integer("num_experts_per_tok"),
                .router_bias = true};
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, f});
  set_windows(r, d, r.integer("sliding_window", 128), [](std::int64_t i) { return i % 2 == 0; });
  set_function(r, d), set_rotary(r, j, d);
}

void olmo2(KeyReader& r, const Json& j, Decoder& d) {
  start_decoder(r, d, false, 1e-5);
  SelfAttention a = grouped(r, d.width);
  a.norm = HeadNorm::whole, a.qkv_bias = a.out_bias = r.truth("attention_bias");
  d.norms_before = false, d.norms_after = true;
  d.layers.assign(std::size_t(layer_count(r, "num_hidden_layers")), {a, gated(r.integer("intermediate_size"))});
  set_function(r, d), set_rotary(r, j, d);
}

struct Family {
  std::string_view type;
  void (*read)(KeyReader&, const Json&, Decoder&);
  const char* untrained;  // why the engine does not train it; "": it may
};
constexpr Family families[] = {
    {"gpt2", [](KeyReader& r, const Json&, Decoder& d) { gpt2(r, d); }, ""},
    {"llama", llama_like, ""},
    {"mistral", llama_like, ""},
    {"qwen2", llama_like, ""},
    {"qwen3", llama_like, ""},
    {"mixtral", mixtral, "mixture of experts"},
    {"qwen2_moe", qwen_moe, "mixture of experts"},
    {"qwen3_moe", qwen_moe, "mixture of experts"},
    {"gemma", gemma, ""},
    {"gemma2", gemma, ""},
    {"gemma3_text", gemma, ""},
    {"phi3", phi3, ""},
    {"deepseek_v2", deepseek, "latent attention and mixture of experts"},
    {"deepseek_v3", deepseek, "latent attention and mixture of experts"},
    {"gpt_oss", gpt_oss, "attention sinks and mixture of experts"},
    {"olmo2", olmo2, ""},
};

}  // namespace

bool is_hugging_face(const Json& j) {
  for (const char* key : {"model_type", "hidden_size", "n_embd", "architectures", "num_hidden_layers", "text_config"})
    if (j.contains(key)) return true;
  return false;
}

Decoder decoder_from(const Json& j) {
  std::vector<std::string> known{"gemma3"};
  for (const Family& f : families) known.emplace_back(f.type);
  const auto at = j.find("model_type");
  check(at != j.end() && !at->is_null(), Code::bad_argument,
        "model: this config.json has no model_type, which says how its numbers are meant; known are {}", joined(known));
  check(at->is_string(), Code::bad_argument, "model: 'model_type' is {}, it must be a text in quotes", at->dump().substr(0, 80));
  const auto type = at->get<std::string>();
  if (type == "gemma3") {  // text and images: the decoder is nested
    const auto text = j.find("text_config");
    check(text != j.end() && text->is_object(), Code::bad_argument, "model: a config.json of gemma3 needs 'text_config'");
    Json inner = *text;
    inner["model_type"] = "gemma3_text";
    for (const char* outer : {"vocab_size", "tie_word_embeddings"})
      if (!inner.contains(outer) && j.contains(outer)) inner[outer] = j[outer];
    Decoder d = decoder_from(inner);
    d.source = j.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (j.contains("vision_config")) d.not_counted.push_back("the vision tower and its projection (vision_config)");
    return d;
  }
  for (const Family& f : families) {
    if (f.type != type) continue;
    Decoder d;
    d.family = type;
    KeyReader r(j, type);
    r.know("model_type");
    f.read(r, j, d);
    r.finish();
    if (*f.untrained) d.untrained = f.untrained;
    d.source = j.dump(-1, ' ', false, Json::error_handler_t::replace);
    check(d);
    return d;
  }
  throw Error(Code::bad_argument, fmt::format("model: model_type '{}' is not known{}; known are {}", type.substr(0, 80),
                                              did_you_mean(type, known), joined(known)));
}

ModelConfig model_of(const Decoder& d) {
  const SelfAttention& a = d.layers[0].attention;
  ModelConfig c;
  c.vocab = d.vocab, c.width = d.width, c.layers = std::int64_t(d.layers.size()), c.tied = d.tied;
  c.heads = a.heads, c.kv_heads = a.kv_heads, c.head_dim = a.head_dim, c.ffn = d.layers[0].ffn.width;
  c.qkv_bias = a.qkv_bias, c.qk_norm = a.norm == HeadNorm::each, c.norm_eps = d.norm_eps, c.rope_theta = a.turned.theta;
  c.left_out = d.not_counted, c.file = d.source;
  Decoder whole = d;
  const bool rotary = d.positions == 0;
  if (whole.untrained.empty() && (a.head_dim > 256 || (rotary && a.turned_dim() % 2 != 0)))
    whole.untrained = fmt::format("head dimension of {}", a.head_dim);
  if (!whole.untrained.empty()) {
    c.counted = std::make_shared<const Decoder>(std::move(whole));
    return c;
  }
  Decoder plain = decoder_of(c);
  const bool all_said = plain.layers == d.layers && !d.layer_norm && d.norms_before && !d.norms_after && !d.norms_less_one && rotary &&
                        d.embedding_scale == 1 && d.logit_softcap == 0;
  if (!all_said) c.decoder = std::make_shared<const Decoder>(std::move(whole));
  return c;
}

}  // namespace headroom::engine
