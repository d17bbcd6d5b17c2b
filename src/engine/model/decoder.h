// Decoder — any decoder-only language model, layer by layer. The engine trains those that are dense; of the rest (untrained) it knows
// the parameters, the bytes of a step and of inference, and says that it does not train them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/activation/activation.h"
#include "ops/attention/attention.h"
#include "ops/rope/scaling.h"

namespace headroom::engine {

enum class HeadNorm : std::uint8_t {
  none,
  each,  // over each head, one weight of a head's dimension
  whole  // over all heads together
};

struct SelfAttention {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;  // value_dim: of v and of the output
  std::int64_t window = 0;                                            // keys that a row sees; 0: all before it
  bool qkv_bias = false, out_bias = false;
  HeadNorm norm = HeadNorm::none;
  bool sinks = false;        // a logit for each head that takes part in the softmax
  double scale = 0;          // factor of scores; 0: 1/√head_dim
  double softcap = 0;        // cap of scores; 0: none
  rope::Positions turned{};  // how positions turn q and k, where they are not learned
  // Multi-head latent attention, where kv_rank > 0: K and V of all heads come from one vector of kv_rank, and rope_dim of a head's
  // dimensions are turned, the same for all heads of K. q_rank 0: q is made in one product.
  std::int64_t q_rank = 0, kv_rank = 0, rope_dim = 0;

  friend bool operator==(const SelfAttention&, const SelfAttention&) = default;
  bool latent() const { return kv_rank > 0; }
  std::int64_t turned_dim() const { return latent() ? rope_dim : turned.dim ? turned.dim : head_dim; }  // elements of a head
  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t k_width() const { return kv_heads * head_dim; }
  std::int64_t v_width() const { return kv_heads * value_dim; }
  std::int64_t out_width() const { return heads * value_dim; }
  std::int64_t cached() const { return latent() ? kv_rank + rope_dim : k_width() + v_width(); }  // elements of a position
};

struct FeedForward {
  std::int64_t width = 0;  // width of one expert, if there are experts
  bool gated = true, bias = false;
  std::int64_t experts = 0, experts_of_token = 0;  // 0: one dense layer
  std::int64_t shared_width = 0;                   // width of the expert that every token takes; 0: none
  bool router_bias = false, shared_gate = false;
  activation::Function function = activation::Function::silu;

  friend bool operator==(const FeedForward&, const FeedForward&) = default;
  bool swiglu() const { return gated && function == activation::Function::silu; }
  std::int64_t in_width(std::int64_t of) const { return (gated ? 2 : 1) * of; }
};

struct DecoderLayer {
  SelfAttention attention;
  FeedForward ffn;

  friend bool operator==(const DecoderLayer&, const DecoderLayer&) = default;
};

struct Decoder {
  std::string name;
  std::string family;  // model_type; "headroom": no config.json described it
  std::int64_t vocab = 0, width = 0;
  bool tied = false;
  std::int64_t positions = 0;                      // rows of learned positions; 0: rotary
  bool layer_norm = false;                         // LayerNorm, else RMSNorm
  bool norm_bias = true;                           // a LayerNorm has a bias
  bool norms_before = true, norms_after = false;   // around each half of a layer; after: before it is added to the stream
  bool one_norm = false;                           // both halves of a layer read the first one's norm
  bool embedding_norm = false, final_norm = true;  // behind the embedding, and before the head
  bool head_bias = false;
  bool norms_less_one = false;  // files keep the norms' weights less one, as Gemma's do
  double norm_eps = 1e-5;
  double embedding_scale = 1;  // factor of a token's row
  double logit_softcap = 0;    // 0: none
  std::vector<DecoderLayer> layers;
  std::vector<std::string> not_counted;  // parts of the file beside the decoder
  std::string untrained;                 // what the engine lacks, in words; empty: it trains this
  std::string source;                    // the config.json it was read from; empty: none described it, or it was changed since

  friend bool operator==(const Decoder&, const Decoder&) = default;
  bool trained() const { return untrained.empty(); }
  std::int64_t depth() const { return std::int64_t(layers.size()); }
  const DecoderLayer& first() const { return layers.front(); }
  bool has_experts() const;
  bool ffn_norm() const { return norms_before && !one_norm; }  // a norm of its own
};

// What holds other tensors in a step than a Llama, in words; empty: nothing.
std::string more_than_llama(const Decoder&);

// Whether its ops are those of a Llama with biases, windows and norms of heads: the kinds whose times are on record.
bool computes_as_llama(const Decoder&);

// What a layer's attention is asked: `batch` sequences of len_q new positions against len_k.
attention::Problem problem_of(const SelfAttention&, std::int64_t batch, std::int64_t len_q, std::int64_t len_k, Precision);
// The same of latent attention with absorbed projections: all heads attend to one, the latent and the turned part of K, whose latent is the value.
attention::Problem absorbed_problem_of(const SelfAttention&, std::int64_t batch, std::int64_t len_q, std::int64_t len_k, Precision);

// Tokens that a sequence may have: as many as there are learned positions; with rotary ones there is no limit.
std::int64_t most_tokens(const Decoder&);
void check_tokens(const Decoder&, std::int64_t len);  // an Error where there are more

std::string untrained_head(const Decoder&);  // a head's dimension that the engine does not train, in words; empty: it trains all

void check(const Decoder&);                   // an Error (bad_argument) that says what is allowed
void check_trained(const Decoder&);           // an Error (unsupported) that says what the engine lacks for one that is only counted
std::string why_not_trained(const Decoder&);  // the same as a sentence; empty: the engine trains it
void check_pytorch_account(const Decoder&);   // an Error (unsupported) where a step of PyTorch's holds more than that of a Llama

// Bytes of the keys and values of `batch` sequences of `len` tokens. A layer with a window keeps no more than that.
std::int64_t cache_bytes(const Decoder&, std::int64_t batch, std::int64_t len, DType);

}  // namespace headroom::engine
