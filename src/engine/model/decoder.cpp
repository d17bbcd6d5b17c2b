#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace headroom::engine {

bool Decoder::has_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const DecoderLayer& l) { return l.ffn.experts > 0; });
}

attention::Problem problem_of(const SelfAttention& a, std::int64_t batch, std::int64_t len_q, std::int64_t len_k, Precision precision) {
  attention::Problem p;
  p.batch = batch;
  p.heads = a.heads;
  p.kv_heads = a.latent() ? a.heads : a.kv_heads;
  p.len_q = len_q;
  p.len_k = len_k;
  p.head_dim = a.head_dim;
  if (a.value_dim != a.head_dim) p.dim_v = a.value_dim;
  p.mask = a.window > 0 ? attention::Mask::sliding(a.window) : attention::Mask::causal();
  p.precision = precision;
  p.deterministic = true;
  if (a.scale > 0) p.scale = float(a.scale);
  p.softcap = float(a.softcap);
  return p;
}

attention::Problem absorbed_problem_of(const SelfAttention& a, std::int64_t batch, std::int64_t len_q, std::int64_t len_k,
                                       Precision precision) {
  attention::Problem p = problem_of(a, batch, len_q, len_k, precision);
  p.scale = p.scale_or_default();
  p.kv_heads = 1;
  p.head_dim = a.kv_rank + a.rope_dim;
  p.dim_v = a.kv_rank;
  return p;
}

namespace {

class Words {  // each once
 public:
  void add(bool it_does, std::string what) {
    if (it_does && std::find(all_.begin(), all_.end(), what) == all_.end()) all_.push_back(std::move(what));
  }
  std::string text() const { return joined(all_); }

 private:
  std::vector<std::string> all_;
};

void add_unlike_llama(const Decoder& d, Words& words) {
  words.add(d.layer_norm, "LayerNorm");
  words.add(d.norms_after, "norms after each half");
  words.add(d.embedding_scale != 1, "scaled embeddings");
  words.add(d.logit_softcap > 0, "capped logits");
  for (const DecoderLayer& l : d.layers) {
    words.add(!l.ffn.swiglu(), fmt::format("{} in feed-forward layers{}", names_of<activation::Function>.of(l.ffn.function),
                                           l.ffn.gated ? "" : " without a gate"));
    words.add(l.attention.norm == HeadNorm::whole, "norms over all heads");
  }
}

}  // namespace

bool computes_as_llama(const Decoder& d) {
  Words words;
  add_unlike_llama(d, words);
  return words.text().empty();
}

std::string more_than_llama(const Decoder& d) {
  Words words;
  add_unlike_llama(d, words);
  words.add(d.positions > 0, "learned positions");
  for (const DecoderLayer& l : d.layers) {
    words.add(l.attention.softcap > 0, "capped scores");
    words.add(l.attention.out_bias || l.ffn.bias, "biases of attention's output or of the feed-forward layers");
  }
  return words.text();
}

std::int64_t most_tokens(const Decoder& d) { return d.positions > 0 ? d.positions : std::numeric_limits<std::int64_t>::max(); }

void check_tokens(const Decoder& d, std::int64_t len) {
  check(len <= most_tokens(d), Code::bad_argument, "len is {}, and model {} has {} learned positions; ask for at most as many", len, d.name,
        d.positions);
}

std::int64_t cache_bytes(const Decoder& d, std::int64_t batch, std::int64_t len, DType type) {
  std::int64_t elements = 0;
  for (const DecoderLayer& l : d.layers) {
    const SelfAttention& a = l.attention;
    elements += batch * (a.window > 0 ? std::min(len, a.window) : len) * a.cached();
  }
  return elements * std::int64_t(size_of(type));
}

std::string untrained_head(const Decoder& d) {
  for (const auto& [a, f] : d.layers)
    if (a.head_dim > 256 || (d.positions == 0 && a.turned_dim() % 2 != 0)) return fmt::format("head dimension of {}", a.head_dim);
  return "";
}

void check(const Decoder& d) {
  check(d.norm_eps >= 0 && d.norm_eps < 1, Code::bad_argument, "model: the norms' epsilon is {}, it must be 0 to 1", d.norm_eps);
  check((d.norms_before || d.norms_after) && !(d.layer_norm && d.norms_after), Code::bad_argument,
        "model: a layer has norms before its halves, after them, or both; after them no LayerNorm");
  check(d.logit_softcap >= 0, Code::bad_argument, "model: the cap of logits is {}, it must be at least 0", d.logit_softcap);
  const auto between = [&](const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
    check(value >= low && value <= high, Code::bad_argument, "model: {} is {}, it must be {} to {}", what, value, low, high);
  };
  between("the vocabulary", d.vocab, 1, 1 << 24);
  between("the width", d.width, 1, 1 << 20);
  between("the number of layers", std::int64_t(d.layers.size()), 1, 1 << 12);
  between("the number of learned positions", d.positions, 0, 1 << 28);
  const std::string head = d.trained() ? untrained_head(d) : "";
  check(head.empty(), Code::bad_argument, "model {}: a {} is not trained here; up to 256 are, and what rotates must be even", d.name, head);
  for (const DecoderLayer& l : d.layers) {
    const SelfAttention& a = l.attention;
    between("the number of heads", a.heads, 1, 1 << 14);
    between("the number of key heads", a.kv_heads, 1, 1 << 14);
    check(a.heads % a.kv_heads == 0, Code::bad_argument, "model: {} key heads must divide {} heads", a.kv_heads, a.heads);
    between("a head's dimension", a.head_dim, 1, 4096);
    between("a value's dimension", a.value_dim, 1, 4096);
    between("the window", a.window, 0, 1ll << 40);
    between("the rank of q", a.q_rank, 0, 1 << 20);
    between("the rank of k and v", a.kv_rank, 0, 1 << 20);
    between("the rotary part of a head", a.rope_dim, 0, a.head_dim);
    between("the part of a head that positions turn", a.turned.dim, 0, a.head_dim);
    check(a.turned.theta > 1, Code::bad_argument, "model: rope_theta is {}, it must be above 1", a.turned.theta);
    check(a.scale >= 0 && a.softcap >= 0, Code::bad_argument, "model: a scale of scores of {} or a cap of {} is below 0", a.scale,
          a.softcap);
    const FeedForward& f = l.ffn;
    between("the width of a feed-forward layer", f.width, 1, 1 << 22);
    between("the number of experts", f.experts, 0, 1 << 14);
    between("the experts of a token", f.experts_of_token, f.experts > 0 ? 1 : 0, std::max<std::int64_t>(f.experts, 0));
    between("the width of the shared expert", f.shared_width, 0, 1 << 22);
  }
}

std::string why_not_trained(const Decoder& d) {
  return d.trained() ? "" : fmt::format("Counted, not trained here: this engine has no {}.", d.untrained);
}

void check_trained(const Decoder& d) {
  check(d.trained(), Code::unsupported, "model {}: it is counted (memory model, plan), not trained: this engine has no {}", d.name,
        d.untrained);
}

namespace {

// GPT-2 and Gemma as their published files have them: PyTorch's account has the program of transformers for each.
bool known_of_transformers(const Decoder& d) {
  const SelfAttention& a = d.first().attention;
  const bool gemma = d.family == "gemma" || d.family == "gemma2" || d.family == "gemma3_text";
  return d.trained() && (gemma ? !a.qkv_bias && !a.out_bias : d.family == "gpt2") && d.first().ffn.function != activation::Function::relu;
}

// Mixtral, Qwen3-MoE and gpt-oss where every layer has experts of its own: transformers makes grouped products of them.
bool known_experts_of_transformers(const Decoder& d) {
  const bool biases = d.family == "gpt_oss";  // and sinks, and windows, which plain attention masks
  const auto known = [&](const DecoderLayer& l) {
    const FeedForward& f = l.ffn;
    const SelfAttention& a = l.attention;
    const bool same = f.router_bias == biases && f.bias == biases && a.qkv_bias == biases && a.out_bias == biases && a.sinks == biases;
    return same && f.experts > 0 && f.gated && f.shared_width == 0 && (biases || (f.swiglu() && a.window == 0));
  };
  return (biases || d.family == "mixtral" || d.family == "qwen3_moe") && std::all_of(d.layers.begin(), d.layers.end(), known);
}

}  // namespace

void check_pytorch_account(const Decoder& d) {
  if (known_of_transformers(d) || known_experts_of_transformers(d)) return;
  const std::string more = d.trained() ? more_than_llama(d) : d.untrained;
  check(more.empty(), Code::unsupported,
        "PyTorch's step of {} is not known: it has {}{}; leave --as pytorch out for this library's step, or put headroom forecast -- in "
        "front of a program that trains it",
        d.name, more, d.has_experts() ? " (of such models Mixtral, Qwen3-MoE and gpt-oss are known)" : "");
}

}  // namespace headroom::engine
