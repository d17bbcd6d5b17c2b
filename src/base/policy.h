// Mixed precision as data: which dtype parameters, and every op's inputs, arithmetic and output, have when a step is asked
// for in `low` (bf16 or fp16). The table is policy.json; a file may override any of its rows. The engine does not read it: its
// layers name their dtypes themselves, and a test holds every tensor of a step run dry to this table. Asked for fp32 everything
// is fp32. Sums over a whole step (the scalar loss, the gradients' norm) the engine makes in fp64.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace headroom {

enum class Cast : std::uint8_t {
  low,    // the dtype that was asked for
  fp32,   // always
  widest  // of the op's inputs; two different 16-bit types meet in fp32
};

std::string_view name_of(Cast);

struct TensorRule {  // of what is not an op's output: parameters, weight_copy, gradients, activation_gradients, optimizer
  std::string tensor;
  Cast dtype = Cast::fp32;
  std::string why, source;
};

struct OpRule {
  std::string op;
  Cast inputs = Cast::widest;   // cast to this before the op
  Cast math = Cast::fp32;       // sums and statistics inside
  Cast output = Cast::widest;   // widest: as the inputs after their cast
  Cast weights = Cast::widest;  // what a matmul or a norm reads of its parameters; widest: as the inputs
  bool loss = false;            // its first input is the logits, its output the loss
  std::string why, source;
};

struct Policy {
  std::vector<TensorRule> tensors;
  std::vector<OpRule> ops;
  OpRule otherwise;                 // for an op that the table does not name
  std::vector<std::string> joined;  // ops that an override brought along

  const OpRule& rule_for(std::string_view op) const;
  const TensorRule& tensor(std::string_view name) const;

  // Rows of `text`, a JSON object like policy.json, change what they mention of the rows of the same name; new ones join, unless
  // their name is a slip of a known one. `source` is whom to name: in the rows, and in the one line that refuses a bad table.
  void override_with(std::string_view text, const std::string& source);
};

Policy headroom_policy();
Policy pytorch_policy();  // where PyTorch's autocast differs: the embedding, norms and residuals of a language model stay fp32
Policy policy_named(const std::string& name_or_file);  // headroom, pytorch, or a JSON file over headroom's

DType dtype_of(Cast, DType low, std::span<const DType> inputs);

}  // namespace headroom
