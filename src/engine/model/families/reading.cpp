#include "engine/model/families/reading.h"

#include <algorithm>
#include <cmath>

namespace headroom::engine::families {

namespace {

struct Rotary {
  rope::Positions positions;
  std::string lacks;  // what is not said and training needs
};

// Reads how rotary positions are scaled.
struct RotaryReader {
  const std::string& family;
  std::int64_t head_dim;
  KeyReader r, top;  // what is said of the scaling, and of the whole model
  Rotary out{};
  std::string type{};

  rope::Positions& p() { return out.positions; }

  double needed(double value, const char* key) {
    if (value <= 0 && out.lacks.empty()) out.lacks = fmt::format("rotary positions scaled by '{}' without '{}'", type, key);
    return value;
  }

  void read(double theta) {
    p().theta = r.number("rope_theta", theta);
    const double part = r.number("partial_rotary_factor", top.number("partial_rotary_factor", 1));
    check(part > 0 && part <= 1, Code::bad_argument, "model: 'partial_rotary_factor' is {}, it must be above 0 and at most 1", part);
    if (part < 1) p().dim = std::int64_t(double(head_dim) * part);
    if (!read_type()) return;
    read_lengths();
    switch (p().scaling) {
      case rope::Scaling::llama3: return read_llama3();
      case rope::Scaling::yarn: return read_yarn();
      case rope::Scaling::longrope: return read_longrope();
      default: return;
    }
  }

  bool read_type() {  // false: they are not scaled
    type = r.word("rope_type", r.word("type", "default").c_str());
    if (family == "phi3" && (type == "su" || type == "yarn")) type = "longrope";  // as its class reads them
    if (type == "su") type = "longrope";
    if (type == "default") return false;
    const auto named = names_of<rope::Scaling>.named(type);
    check(named && *named != rope::Scaling::none && *named != rope::Scaling::unknown, Code::bad_argument,
          "model: rope_scaling of type '{}' is not known; default, linear, dynamic, yarn, longrope and llama3 are", type);
    p().scaling = *named;
    return true;
  }

  void read_lengths() {
    using enum rope::Scaling;
    const double longest = top.number("max_position_embeddings", 0);
    const double original = r.number("original_max_position_embeddings", longest);
    p().original = top.number("original_max_position_embeddings", family == "phi3" ? 4096 : original);
    if (p().scaling == dynamic) p().original = needed(longest, "max_position_embeddings");
    if (p().scaling != linear) needed(p().original, "original_max_position_embeddings");
    p().factor = r.number("factor", 0);
    if (p().factor <= 0 && (p().scaling == yarn || p().scaling == longrope) && p().original > 0)
      p().factor = needed(longest, "max_position_embeddings") / p().original;
    needed(p().factor, "factor");
  }

  void read_llama3() {
    p().low = needed(r.number("low_freq_factor", 0), "low_freq_factor");
    p().high = needed(r.number("high_freq_factor", 0), "high_freq_factor");
  }

  void read_yarn() {
    p().fast = r.number("beta_fast", p().fast);
    p().slow = r.number("beta_slow", p().slow);
    p().whole_ends = r.truth("truncate", true);
    p().magnitude = r.number("attention_factor", 0);
    const double some = r.number("mscale", 0), all = r.number("mscale_all_dim", 0);
    const auto grown = [&](double by) { return p().factor <= 1 ? 1.0 : 0.1 * by * std::log(p().factor) + 1; };
    if (p().magnitude == 0 && some > 0 && all > 0) p().magnitude = grown(some) / grown(all);
  }

  void read_longrope() {
    p().magnitude = r.number("attention_factor", 0);
    p().short_factors = factors("short_factor");
    p().long_factors = factors("long_factor");
  }

  std::vector<double> factors(const char* key) {
    std::vector<double> all;
    const Json* list = r.list(key);
    for (const Json& one : list ? *list : Json::array()) {
      check(one.is_number() && one.get<double>() > 0, Code::bad_argument, "model: {} holds {}, it must hold numbers above 0", key,
            one.dump().substr(0, 80));
      all.push_back(one.get<double>());
    }
    const auto pairs = std::size_t((p().dim ? p().dim : head_dim) / 2);
    if (all.size() != pairs && out.lacks.empty())
      out.lacks = fmt::format("rotary positions of {} pairs with {} factors in '{}'", pairs, all.size(), key);
    return all;
  }
};

// scaling: rope_scaling or rope_parameters, or what one of them says of one kind of layers; null: nothing is said.
Rotary rotary_of(const Json& j, const std::string& family, const Json* scaling, double theta, std::int64_t head_dim) {
  const Json none = Json::object();
  RotaryReader reader{family, head_dim, KeyReader(scaling ? *scaling : none, "rope_scaling"), KeyReader(j, family)};
  reader.read(theta);
  return std::move(reader.out);
}

}  // namespace

void set_rotary(KeyReader& r, const Json& j, Decoder& d, double theta, double sliding_theta) {
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

std::int64_t layer_count(KeyReader& r, const char* key, std::int64_t otherwise) {
  const std::int64_t n = otherwise ? r.integer(key, otherwise) : r.integer(key);
  check(n >= 1 && n <= 1 << 12, Code::bad_argument, "model: '{}' is {}, it must be 1 to {}", key, n, 1 << 12);
  return n;
}

SelfAttention grouped(KeyReader& r, std::int64_t width, std::int64_t head_dim) {
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

std::int64_t equal_heads(std::int64_t width, std::int64_t heads) {
  check(heads >= 1 && width % heads == 0, Code::bad_argument, "model: width {} is not a multiple of {} heads", width, heads);
  return width / heads;
}

void start_decoder(KeyReader& r, Decoder& d, bool tied, double eps) {
  d.vocab = r.integer("vocab_size"), d.width = r.integer("hidden_size");
  d.tied = r.truth("tie_word_embeddings", tied);
  d.norm_eps = r.number("rms_norm_eps", eps);
  know_quantisation(r, d);
}

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

}  // namespace headroom::engine::families
