// A language model in PyTorch: its parameters, how ranks share them, and what its layers allocate. language_model.cpp takes steps of it.
#pragma once
#include <string>
#include <vector>

#include "pytorch/compiled.h"
#include "pytorch/eager.h"
#include "pytorch/language_model.h"
#include "pytorch/optimizer.h"

namespace headroom::pytorch {

struct Matrix {
  Parameter weight, a = {}, b = {};  // a, b: adapters where there are any
  Parameter bias = {};               // where there is one
  Shape of_4bit = {};                // [out, in] of a weight that is packed
};
struct BlockWeights {
  Parameter norm1, norm2;
  Matrix q, k, v, o, up, gate, down;
  Parameter q_norm, k_norm;  // where there are any
  // GPT-2 has q, k and v together, and biases of the norms. Gemma 2 and 3 have norms of what attention and the feed-forward layer make.
  Matrix qkv;
  Parameter norm1_bias, norm2_bias, attention_norm, feed_forward_norm;
  // Experts have [experts, 2 · ffn, width] and [experts, width, ffn].
  Matrix router;
  Parameter experts_up, experts_down, experts_up_bias, experts_down_bias;
  Parameter sinks;  // gpt-oss's, one for each head
};

// FSDP2's group of parameters: sharded in FP32, gathered in the compute type.
struct Group {
  std::vector<Parameter> params;        // gathered; without bytes in between
  std::int64_t shard = 0, trained = 0;  // numbers of one rank; those that are trained
  bool whole = false;
  std::uint32_t gathers = 0;  // the event behind its gather, where launches are recorded
  Value arriving, reduced;    // what all ranks have sent; the gradient's shard
};

class Model {
 public:
  Model(Eager&, const LanguageModel&);
  Value loss();  // the forward pass
  void backward(Value loss);
  void zero_grad();

  std::uint64_t params = 0;
  std::vector<Parameter> trained;
  Optimizer optimizer;

 private:
  Parameter stored(const std::string& name, Shape);
  Matrix matrix(const std::string& name, std::int64_t out, std::int64_t in, bool adapt = true);
  Matrix packed(const std::string& name, Shape);
  Parameter adapter(const std::string& name, Shape);
  Parameter adapter_of(Parameter);
  void make_parameters();
  void make_parameters_of_gpt2();
  void make_parameters_of_gemma();
  void make_parameters_of_experts();
  void make_parameters_of_gpt_oss();
  void make_head();

  // ---- several GPUs
  void shard_all();
  void shard_one(Parameter&, Group&, const char* name);
  enum class When : std::uint8_t { forward, backward };
  void begin_gather(Group&);
  void gather(Group&, When);
  void release(Group&);
  void scatter(Group&);
  void make_buckets();  // DDP's
  std::vector<std::size_t> updated_here() const;

  // ---- layers
  struct Turn {
    Value cos, sin;
  };
  Value product(const std::string& name, const Value& x, const Matrix&, Eager::Visit = Eager::Visit::first);
  Value norm(const std::string& name, const Value& x, const Parameter& weight);
  Value rope(const std::string& name, const Value& x, const Turn&);
  Value attend(const BlockWeights&, const Value& x, const Turn&);
  Value feed_forward(const BlockWeights&, const Value& h, Eager::Visit);
  Value whole_block(std::size_t i, Value x, const Turn&, Eager::Visit);
  Value embedded();
  Value last_norm(const Value& x);
  std::vector<Value> lasting(const Turn&);
  Value block(std::size_t i, Value x,
              Eager::Visit);  // as it is called: its weights are gathered around it, and it may be checkpointed within
  Value several(std::size_t begin, std::size_t end, Value x, Eager::Visit);

  // ---- transformers' models
  Value embedded_of_gpt2();
  Value block_of_gpt2(const BlockWeights&, Value x, Eager::Visit);
  Value embedded_of_gemma();
  Value norm_of_gemma(const std::string& name, const Value& x, const Parameter& weight, Eager::Visit);
  Value turned_halves(const std::string& name, const Value& x, const Turn&);
  Value attend_of_transformers(std::size_t i, const Value& x);
  Value block_of_gemma(std::size_t i, Value x, Eager::Visit);
  Turn turn_of_positions(const std::string& of);
  Value mask_of(const std::string& name, DType);
  Value plain_attention(const Value& q, const Value& k, const Value& v);
  Value embedded_of_experts();
  Value norm_of_transformers(const std::string& name, const Value& x, const Parameter& weight, Eager::Visit = Eager::Visit::first);
  Value experts_of(const BlockWeights&, const Value& h, Eager::Visit);
  Value added_up(const Value& made, const Value& of_pairs, const Value& h,
                 Eager::Visit);                                         // what each pair of token and expert made, by token
  Value block_of_experts(std::size_t i, const Value& x, Eager::Visit);  // gpt-oss's too
  Value embedded_of_gpt_oss();
  Value norm_of_gpt_oss(const std::string& name, const Value& x, const Parameter& weight);
  Value turned_parts(const std::string& name, const Value& x);
  Value attend_of_gpt_oss(const BlockWeights&, const Value& x);
  Value experts_of_gpt_oss(const BlockWeights&, const Value& h, Eager::Visit);

  Eager& torch;
  const LanguageModel& m;
  std::int64_t kv_heads, dim;
  DType low, held;  // the compute type; of parameters as they are stored
  Parameter embed, norm_weight;
  Parameter positions, norm_bias;  // GPT-2's
  Matrix head;
  std::vector<BlockWeights> blocks;
  std::vector<Group> groups;               // one for each block, and one for the rest
  std::vector<Value> standing;             // shards, buckets of DDP, scales of packed weights
  std::vector<Value> standing_in_forward;  // what variables of a forward pass hold until its blocks are over
  Turn turn_of_all, turn_of_windows;       // Gemma's
  Value mask;
  Value cos, sin;
  Compiled compiled;
  Value left_over, scattered;  // FSDP2 frees a gathered buffer after the next gather, a scattered one before the next scatter
};

}  // namespace headroom::pytorch
