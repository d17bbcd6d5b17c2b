// The dtypes in a step under mixed precision: a model's ops in order, by the policy's table
// (base/policy.h), each row with its rule.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/policy.h"
#include "report/record.h"

namespace headroom::studies::precision {

struct ModelOp {
  std::string name, op;
  std::vector<std::string> inputs;  // names of earlier ops or of the model's inputs
  std::vector<std::string> weights;
};

struct OpModel {
  std::string name;
  std::vector<std::pair<std::string, DType>> inputs;
  std::vector<ModelOp> ops;  // the last one is the loss, if its rule says so
  std::string note{};        // what the rows cannot say
};

// toy; a preset of the engine (small …); or a JSON file: {"inputs": {"x": "fp32"}, "ops": [{"name", "op", "inputs", "weights"}]}
// where inputs default to the op before, or a language model's configuration as the engine reads it.
OpModel op_model_described(const std::string& name_or_file);
OpModel op_model_from_json(const std::string& text, const std::string& source);

struct OpDTypes {
  ModelOp op;
  std::vector<DType> inputs;  // their dtypes before casts
  DType input_cast, weights, math, output;
  OpRule rule;
};

struct Autocast {
  std::string model;
  DType low;
  std::vector<OpDTypes> ops;
  DType parameters, weight_copy, gradients, activation_gradients, optimizer;
  const OpDTypes* loss() const;  // none when the model does not end in a loss
  DType logits() const;          // dtype of the loss's input, or of the last output
};

Autocast autocast(const OpModel&, const Policy&, DType low);

struct AutocastSettings {
  std::string model = "toy";
  std::vector<std::string> dtypes{"fp16", "bf16"};
  std::string policy = "headroom";
  bool explain = false;  // the reasons too, and the table of rules itself
};
std::vector<std::string> low_dtypes();

void describe(Of<AutocastSettings> auto& s, auto&& f) {
  f(s.model,
    {.name = "model", .about = "toy, a preset of the language model (small …), or a JSON file: a list of ops or a model's configuration"});
  f(s.dtypes, {.name = "dtype", .about = "The requested 16-bit dtype", .choices = low_dtypes});
  f(s.policy, {.name = "policy", .about = "The table of rules: headroom, pytorch, or a JSON file whose rows override headroom's"});
  f(s.explain, {.name = "explain", .about = "Show the reason of every rule, and the table of rules"});
}
Record autocast_record(const AutocastSettings&);

}  // namespace headroom::studies::precision
