#include "base/policy.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace headroom::embedded {
extern const std::string_view policy_json, policy_pytorch_json;
}

namespace headroom {
namespace {

using Json = nlohmann::json;

Cast read_cast(const Json& row, const char* key, Cast otherwise, const std::string& where) {
  if (!row.contains(key)) return otherwise;
  const std::string word = row[key].is_string() ? row[key].get<std::string>() : row[key].dump();
  for (Cast c : {Cast::low, Cast::fp32, Cast::widest})
    if (word == name_of(c)) return c;
  throw Error(Code::bad_argument, fmt::format("{}: {} is '{}'; choose from low, fp32, widest", where, key, word));
}

void check_keys(const Json& object, const std::vector<std::string>& allowed, const std::string& where) {
  check(object.is_object(), Code::bad_argument, "{}: must be an object with {}", where, joined(allowed));
  for (const auto& [key, value] : object.items())
    check(std::find(allowed.begin(), allowed.end(), key) != allowed.end(), Code::bad_argument, "{}: there is no key '{}'; choose from {}{}",
          where, key, joined(allowed), did_you_mean(key, allowed));
}

// A row that changes another and gives no reason says which value it replaced.
std::string read_why(const Json& row, const std::string& where, const std::string& source, const std::string& old_source,
                     const std::string& old_why) {
  if (!row.contains("why")) return old_why.empty() ? "" : fmt::format("{} gives no reason; {}'s was: {}", source, old_source, old_why);
  check(row["why"].is_string(), Code::bad_argument, "{}: why must be a text in quotes", where);
  return row["why"].get<std::string>();
}

OpRule read_op(OpRule rule, const Json& row, const std::string& source) {
  const std::string where = fmt::format("{}: {}", source, rule.op);
  check_keys(row, {"inputs", "weights", "math", "output", "loss", "why"}, where);
  rule.why = read_why(row, where, source, rule.source, rule.why);
  rule.source = source;
  rule.inputs = read_cast(row, "inputs", rule.inputs, where);
  rule.weights = read_cast(row, "weights", rule.weights, where);
  rule.math = read_cast(row, "math", rule.math, where);
  rule.output = read_cast(row, "output", rule.output, where);
  if (row.contains("loss")) {
    check(row["loss"].is_boolean(), Code::bad_argument, "{}: loss must be true or false", where);
    rule.loss = row["loss"].get<bool>();
  }
  return rule;
}

// The row of that name, made if there is none.
template <class Rule>
Rule& row_of(std::vector<Rule>& rules, std::string Rule::*name, const std::string& wanted) {
  const auto same = std::find_if(rules.begin(), rules.end(), [&](const Rule& r) { return r.*name == wanted; });
  if (same != rules.end()) return *same;
  Rule& made = rules.emplace_back();
  made.*name = wanted;
  return made;
}

}  // namespace

std::string_view name_of(Cast c) {
  switch (c) {
    case Cast::low: return "low";
    case Cast::fp32: return "fp32";
    case Cast::widest: return "widest";
  }
  return "?";
}

const OpRule& Policy::rule_for(std::string_view op) const {
  for (const OpRule& r : ops)
    if (r.op == op) return r;
  return otherwise;
}

const TensorRule& Policy::tensor(std::string_view name) const {
  for (const TensorRule& r : tensors)
    if (r.tensor == name) return r;
  throw Error(Code::bad_argument, fmt::format("the precision policy says nothing of '{}'", name));
}

void Policy::override_with(std::string_view text, const std::string& source) {
  const Json table = parse_json(text, source + ":");
  check_keys(table, {"tensors", "ops", "otherwise"}, source);
  const std::vector<std::string> known{"parameters", "weight_copy", "gradients", "activation_gradients", "optimizer"};
  Policy changed = *this;  // the whole table changes, or nothing
  if (table.contains("tensors")) {
    check_keys(table["tensors"], known, source + ": tensors");
    for (const auto& [name, row] : table["tensors"].items()) {
      const std::string where = fmt::format("{}: {}", source, name);
      check_keys(row, {"dtype", "why"}, where);
      TensorRule& rule = row_of(changed.tensors, &TensorRule::tensor, name);
      const Cast dtype = read_cast(row, "dtype", rule.dtype, where);
      check(dtype != Cast::widest, Code::bad_argument, "{}: dtype is 'widest', but there are no inputs; choose low or fp32", where);
      rule = {name, dtype, read_why(row, where, source, rule.source, rule.why), source};
    }
  }
  if (table.contains("ops")) {
    check(table["ops"].is_object(), Code::bad_argument, "{}: ops must be an object with one entry per op", source);
    std::vector<std::string> ops_known;
    for (const OpRule& r : ops) ops_known.push_back(r.op);
    for (const auto& [name, row] : table["ops"].items()) {
      const bool fresh = !ops_known.empty() && std::find(ops_known.begin(), ops_known.end(), name) == ops_known.end();
      const std::string slip = fresh ? did_you_mean(name, ops_known) : "";
      check(slip.empty(), Code::bad_argument, "{}: there is no op '{}' in the table{}", source, name, slip);
      if (fresh) changed.joined.push_back(name);
      OpRule& rule = row_of(changed.ops, &OpRule::op, name);
      rule = read_op(rule, row, source);
    }
  }
  if (table.contains("otherwise")) {
    changed.otherwise.op = "otherwise";
    changed.otherwise = read_op(changed.otherwise, table["otherwise"], source);
  }
  *this = std::move(changed);
}

Policy headroom_policy() {
  Policy p;
  p.override_with(embedded::policy_json, "headroom");
  return p;
}

Policy pytorch_policy() {
  Policy p = headroom_policy();
  p.override_with(embedded::policy_pytorch_json, "pytorch");
  return p;
}

Policy policy_named(const std::string& name_or_file) {
  if (name_or_file == "headroom") return headroom_policy();
  if (name_or_file == "pytorch") return pytorch_policy();
  const std::string why = why_no_file(name_or_file);
  check(why.empty(), Code::bad_argument, "policy: {}; name headroom, pytorch, or a file", why);
  Policy p = headroom_policy();
  p.override_with(read_file(name_or_file, "policy", most_json_bytes), name_or_file);
  return p;
}

DType dtype_of(Cast cast, DType low, std::span<const DType> inputs) {
  if (cast == Cast::low) return low;
  if (cast == Cast::fp32 || inputs.empty()) return DType::f32;
  DType widest = inputs.front();
  for (DType t : inputs)
    if (t != widest) widest = size_of(t) == size_of(widest) ? DType::f32 : size_of(t) > size_of(widest) ? t : widest;
  return widest;
}

}  // namespace headroom
