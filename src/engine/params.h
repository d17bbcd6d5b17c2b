// The table of parameters: every weight is written once, here. Counts, allocation, initial values, weight decay, file names and
// forecasts walk it. Matrices are [out, in]; q, k, v lie in one matrix, gate and up in another, in that order.
#pragma once
#include <string>
#include <vector>

#include "base/tensor.h"
#include "engine/config.h"

namespace headroom::engine {

enum class Role : std::uint8_t { embedding, norm1, qkv, qkv_bias, q_norm, k_norm, out, norm2, gate_up, down, final_norm, head };

struct ParamSpec {
  Role role;
  const char* name;  // within its layer
  int layer;         // −1: not a block's
  Shape shape;
  double mean, std;  // initial values, normal; std 0: constant
  bool decay;        // weight decay applies
  bool multiplied;   // an operand of matmuls: has a copy in the compute type when that is not FP32

  std::string full_name() const;  // "blocks.3.attention.qkv.weight", as in files
};

std::vector<ParamSpec> param_table(const ModelConfig&);  // in the order of the forward pass

}  // namespace headroom::engine
