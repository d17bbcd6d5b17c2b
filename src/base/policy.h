// Mixed precision as data: the dtypes of parameters and of every op's inputs, arithmetic and output when a step is requested
// in `low` (bf16 or fp16). The table is policy.json; a file may override any of its rows. The engine does not read it: its
// layers name their dtypes themselves, and a test compares every tensor of a dry step with this table. In fp32, everything
// is fp32. The engine computes sums over a whole step (the loss, the norm of the gradients) in fp64.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace headroom {

enum class Cast : std::uint8_t {
  low,    // the requested dtype
  fp32,   // always
  widest  // the widest of the op's inputs; two different 16-bit types give fp32
};

std::string_view name_of(Cast);

struct TensorRule {  // for tensors that are not an op's output: parameters, weight_copy, gradients, activation_gradients, optimizer
  std::string tensor;
  Cast dtype = Cast::fp32;
  std::string why, source;
};

struct OpRule {
  std::string op;
  Cast inputs = Cast::widest;   // cast to this before the op
  Cast math = Cast::fp32;       // sums and statistics inside
  Cast output = Cast::widest;   // widest: as the inputs after their cast
  Cast weights = Cast::widest;  // the dtype in which a matmul or a norm reads its parameters; widest: the inputs'
  bool loss = false;            // its first input is the logits, its output the loss
  std::string why, source;
};

struct Policy {
  std::vector<TensorRule> tensors;
  std::vector<OpRule> ops;
  OpRule otherwise;                 // for an op that the table does not name
  std::vector<std::string> joined;  // ops that an override added

  const OpRule& rule_for(std::string_view op) const;
  const TensorRule& tensor(std::string_view name) const;

  // Each row of `text`, a JSON object like policy.json, changes the fields it names in the row of the same name. New rows are added,
  // unless the name is a misspelling of a known one. `source` is named in the rows, and in the error about a bad table.
  void override_with(std::string_view text, const std::string& source);
};

Policy headroom_policy();
Policy pytorch_policy();  // PyTorch's autocast: the embedding, norms and residuals of a language model stay fp32
Policy policy_named(const std::string& name_or_file);  // headroom, pytorch, or a JSON file over headroom's

DType dtype_of(Cast, DType low, std::span<const DType> inputs);

}  // namespace headroom
