// The table of parameters: every weight is written once, here. Counts, allocation, initial values, weight decay, file names and
// forecasts and stores walk it. Matrices are [out, in]. One matrix has q, k, v; another has gate and up, in that order.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/divide.h"
#include "base/tensor.h"
#include "engine/model/decoder.h"

namespace headroom::engine {

enum class WeightRole : std::uint8_t {
  embedding,
  positions,
  embedding_norm,
  embedding_norm_bias,
  norm1,
  norm1_bias,
  qkv,
  qkv_bias,
  q_norm,
  k_norm,
  q_down,  // latent attention's (halves/latent_attention.h)
  q_latent_norm,
  q_up,
  kv_down,
  kv_latent_norm,
  kv_up,
  out,
  out_bias,
  norm1_after,  // after the attention half
  norm2,
  norm2_bias,
  gate_up,
  gate_up_bias,
  down,
  down_bias,
  router,  // chooses experts (halves/experts.h)
  experts_gate_up,
  experts_down,
  shared_gate_up,
  shared_down,
  norm2_after,
  final_norm,
  final_norm_bias,
  head,
  head_bias,
  other  // counted, and read by no op
};

struct ParamSpec {
  WeightRole role;
  const char* name;  // within its layer
  int layer;         // −1: not a block's
  int group;         // leased together: 0 the embedding, 1 … layers the blocks, layers + 1 the final norm and the head
  Shape shape;
  double mean, std;  // initial values, normal; std 0: constant
  bool decay;        // weight decay applies
  bool multiplied;   // an operand of matmuls: has a copy in the compute type when that is not FP32
  bool looked_up;    // rows are read by token number, in forward alone
  int experts = 0;   // it holds the weights of as many experts; 0: every token meets all of it
  int segment = 0;   // its number in segments_of, and where it begins there, in elements
  std::int64_t at = 0;

  std::string full_name() const;               // "blocks.3.attention.qkv.weight", as in files
  bool is_of(std::string_view product) const;  // "attention.qkv": the name of the op that multiplies with it
};

// In the order of the forward pass. The weights of a layer's experts are one tensor, [experts, out, in].
std::vector<ParamSpec> param_table(const Decoder&);
std::int64_t param_count(const Decoder&);
std::int64_t active_param_count(const Decoder&);  // parameters that one token is multiplied with, embedding and head included

constexpr int group_of_layer(int layer) { return 1 + layer; }
int last_group(const Decoder&);

// How parameters are split over ranks: those of a group that are multiplied lie in one run of elements, those that are not in another, and
// each rank owns an equal part of a run. Parameters begin, and parts end, at multiples of `grain`, so that whatever is summed by
// units of that many elements (ops/adamw) has the same bits for any number of ranks.
constexpr std::int64_t grain = 1024;
struct Segment {
  const char* name;  // the run's name within its layer
  int layer, group;
  bool multiplied;
  std::vector<int> params;  // indices into the table
  std::int64_t elements = 0;

  std::int64_t part(int ranks) const {
    return ceil_div(elements / grain, ranks) * grain;
  }  // elements of one rank; the last one may have fewer
};
std::vector<Segment> segments_of(const std::vector<ParamSpec>&);

}  // namespace headroom::engine
