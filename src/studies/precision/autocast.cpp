#include "studies/precision/autocast.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/model/models.h"
#include "engine/model/params.h"
#include "studies/precision/rows.h"

namespace headroom::embedded {
extern const std::string_view precision_toy_json;
}

namespace headroom::studies::precision {
namespace {

using Json = nlohmann::ordered_json;

// The engine's step, one block standing for all. Weights carry the names of the engine's table of parameters. linear_add adds its
// product to the residual stream, which is its output; the input named here is what is multiplied.
OpModel language_model(const engine::Decoder& c) {
  OpModel m{c.name,
            {},
            {},
            "The loss here is one fp32 number per token: the engine adds them up in fp64, and the scalar loss it reports is fp64."};
  const auto block = [](const std::string& name) { return "blocks.N." + name; };
  const auto op = [&](std::string name, const char* kind, std::vector<std::string> inputs, std::vector<std::string> weights = {}) {
    m.ops.push_back({std::move(name), kind, std::move(inputs), std::move(weights)});
    return m.ops.back().name;
  };
  const auto x = op("embedding", c.tied ? "tied_embedding" : "embedding", {}, {"embedding.weight"});
  const auto n1 = op(block("norm1"), "rms_norm", {x}, {block("norm1.weight")});
  const auto qkv = op(block("attention.qkv"), "linear", {n1}, {block("attention.qkv.weight")});
  const auto rope = op(block("attention.rope"), "rope", {qkv});
  const auto attention = op(block("attention"), "attention", {rope});
  const auto h = op(block("attention.out"), "linear_add", {attention}, {block("attention.out.weight")});
  const auto n2 = op(block("norm2"), "rms_norm", {h}, {block("norm2.weight")});
  const auto gate_up = op(block("ffn.gate_up"), "linear", {n2}, {block("ffn.gate_up.weight")});
  const auto act = op(block("ffn.swiglu"), "swiglu", {gate_up});
  const auto y = op(block("ffn.down"), "linear_add", {act}, {block("ffn.down.weight")});
  const auto n = op("final_norm", "rms_norm", {y}, {"final_norm.weight"});
  const auto logits = op("head", "head", {n}, {c.tied ? "embedding.weight" : "head.weight"});
  op("loss", "cross_entropy", {logits});
  return m;
}

std::string text_at(const Json& j, const char* key, const std::string& where) {
  check(j.contains(key) && j[key].is_string() && !j[key].get<std::string>().empty(), Code::bad_argument,
        "{}: needs \"{}\", a name in quotes", where, key);
  return j[key].get<std::string>();
}

std::vector<std::string> texts_at(const Json& j, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  if (!j.contains(key)) return texts;
  check(j[key].is_array(), Code::bad_argument, "{}: {} must be a list of names", where, key);
  for (const Json& item : j[key]) {
    check(item.is_string(), Code::bad_argument, "{}: {} holds {}, which is not a name in quotes", where, key, item.dump());
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

void check_keys(const Json& j, const std::vector<std::string>& allowed, const std::string& where) {
  check(j.is_object(), Code::bad_argument, "{}: must be an object with {}", where, joined(allowed));
  for (const auto& [key, value] : j.items())
    check(std::find(allowed.begin(), allowed.end(), key) != allowed.end(), Code::bad_argument, "{}: there is no key '{}'; choose from {}{}",
          where, key, joined(allowed), did_you_mean(key, allowed));
}

DType float_named(const std::string& name, const std::string& where) {
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(t)) return t;
  throw Error(Code::bad_argument, fmt::format("{}: dtype is '{}'; choose from fp32, bf16, fp16", where, name));
}

std::string arrow(DType from, DType to) {
  return from == to ? std::string(name_of(to)) : fmt::format("{} → {}", name_of(from), name_of(to));
}

std::string rule_in_words(const OpDTypes& row) {
  const std::string rule = fmt::format("{} → {} → {}", name_of(row.rule.inputs), name_of(row.rule.math), name_of(row.rule.output));
  return row.rule.op == row.op.op ? rule : fmt::format("'{}' is not in the table; {}: {}", row.op.op, row.rule.op, rule);
}

std::string inputs_in_words(const OpDTypes& row) {
  std::vector<std::string> words;
  for (DType t : row.inputs)
    if (auto word = arrow(t, row.input_cast); std::find(words.begin(), words.end(), word) == words.end()) words.push_back(std::move(word));
  return joined(words);
}

}  // namespace

OpModel op_model_from_json(const std::string& text, const std::string& source) {
  const auto j = parse_json<Json>(text, source + ":");
  if (!j.is_object() || !j.contains("ops")) return language_model(engine::model_from_json(text, source));
  check_keys(j, {"name", "inputs", "ops"}, source);
  OpModel m;
  m.name = j.contains("name") ? text_at(j, "name", source) : source;
  std::vector<std::string> known;
  if (j.contains("inputs")) {
    check(j["inputs"].is_object(), Code::bad_argument, "{}: inputs must be an object such as {{\"x\": \"fp32\"}}", source);
    for (const auto& [name, dtype] : j["inputs"].items())
      m.inputs.emplace_back(name,
                            float_named(dtype.is_string() ? dtype.get<std::string>() : dtype.dump(), fmt::format("{}: {}", source, name)));
  } else {
    m.inputs.emplace_back("x", DType::f32);
  }
  for (const auto& [name, dtype] : m.inputs) known.push_back(name);
  check(j["ops"].is_array() && !j["ops"].empty(), Code::bad_argument, "{}: ops must be a list with at least one op", source);
  for (const Json& row : j["ops"]) {
    const std::string nth = fmt::format("{}: op {}", source, m.ops.size() + 1);
    check_keys(row, {"name", "op", "inputs", "weights"}, nth);
    ModelOp op{row.contains("name") ? text_at(row, "name", nth) : fmt::format("{}", m.ops.size() + 1), text_at(row, "op", nth),
               texts_at(row, "inputs", nth), texts_at(row, "weights", nth)};
    if (!row.contains("inputs") && !known.empty()) op.inputs = {known.back()};
    for (const auto& input : op.inputs)
      check(std::find(known.begin(), known.end(), input) != known.end(), Code::bad_argument, "{}: its input '{}' is not made before it{}",
            nth, input, did_you_mean(input, known));
    check(std::find(known.begin(), known.end(), op.name) == known.end(), Code::bad_argument, "{}: there is already a '{}'", nth, op.name);
    known.push_back(op.name);
    m.ops.push_back(std::move(op));
  }
  return m;
}

OpModel op_model_described(const std::string& name_or_file) {
  if (name_or_file == "toy") return op_model_from_json(std::string(embedded::precision_toy_json), "toy");
  if (!is_regular_file(name_or_file)) {
    std::vector<std::string> names{"toy"};
    for (const auto& preset : engine::presets()) {
      if (name_or_file == preset.name) return language_model(preset);
      names.push_back(preset.name);
    }
    throw Error(Code::bad_argument, fmt::format("model: {}; name one of {}, or a file{}", why_no_file(name_or_file), joined(names),
                                                did_you_mean(name_or_file, names)));
  }
  return op_model_from_json(read_file(name_or_file, "model", most_json_bytes), name_or_file);
}

Autocast autocast(const OpModel& model, const Policy& policy, DType low) {
  const auto of_tensor = [&](const char* name) { return dtype_of(policy.tensor(name).dtype, low, {}); };
  Autocast a{model.name,
             low,
             {},
             of_tensor("parameters"),
             of_tensor("weight_copy"),
             of_tensor("gradients"),
             of_tensor("activation_gradients"),
             of_tensor("optimizer")};
  auto made = model.inputs;
  for (const ModelOp& op : model.ops) {
    const OpRule& rule = policy.rule_for(op.op);
    OpDTypes row{op, {}, DType::f32, DType::f32, DType::f32, DType::f32, rule};
    for (const auto& input : op.inputs)
      row.inputs.push_back(std::find_if(made.begin(), made.end(), [&](const auto& m) { return m.first == input; })->second);
    if (row.inputs.empty())
      row.input_cast = a.parameters;  // tokens are integers: what is gathered is a parameter
    else
      row.input_cast = dtype_of(rule.inputs, low, row.inputs);
    const std::vector<DType> cast{row.input_cast};
    row.weights = dtype_of(rule.weights, low, cast);
    row.math = dtype_of(rule.math, low, cast);
    row.output = dtype_of(rule.output, low, cast);
    made.emplace_back(op.name, row.output);
    a.ops.push_back(std::move(row));
  }
  return a;
}

const OpDTypes* Autocast::loss() const { return !ops.empty() && ops.back().rule.loss ? &ops.back() : nullptr; }

DType Autocast::logits() const {
  if (const OpDTypes* l = loss(); l && !l->inputs.empty()) return l->inputs.front();
  return ops.back().output;
}

std::vector<std::string> low_dtypes() { return AutocastSettings{}.dtypes; }

namespace {

std::string word_of(DType t) { return std::string(name_of(t)); }

AutocastSummaryRow summary_row(const Autocast& a, const std::string& dtype) {
  AutocastSummaryRow row{
      .dtype = dtype, .parameters = word_of(a.parameters), .weight_copy = word_of(a.weight_copy), .logits = word_of(a.logits())};
  if (a.loss()) row.loss = word_of(a.loss()->output);
  row.gradients = word_of(a.gradients);
  row.activation_gradients = word_of(a.activation_gradients);
  row.optimizer = word_of(a.optimizer);
  return row;
}

AutocastRow row_of_op(const OpDTypes& o, const Autocast& a, const std::string& dtype) {
  AutocastRow row{.dtype = dtype, .name = o.op.name, .op = o.op.op, .inputs = inputs_in_words(o)};
  if (!o.op.weights.empty()) row.weights = arrow(a.parameters, o.weights);
  row.math = word_of(o.math);
  row.output = word_of(o.output);
  row.rule = rule_in_words(o);
  row.rule_from = o.rule.source;
  row.why = o.rule.why;
  return row;
}

void add_policy(Record& record, const Policy& policy) {
  std::vector<PolicyTensorRow> tensors;
  for (const auto& t : policy.tensors)
    tensors.push_back({.tensor = t.tensor, .is = std::string(name_of(t.dtype)), .from = t.source, .why = t.why});
  std::vector<PolicyOpRow> ops;
  const auto add = [&](const OpRule& r) {
    ops.push_back({.op = r.op,
                   .inputs = std::string(name_of(r.inputs)),
                   .weights = std::string(name_of(r.weights)),
                   .math = std::string(name_of(r.math)),
                   .output = std::string(name_of(r.output)),
                   .from = r.source,
                   .why = r.why});
  };
  for (const auto& r : policy.ops) add(r);
  add(policy.otherwise);
  record.add({table_of("policy_tensors", "The policy: what is not an op's output", tensors)});
  record.add({table_of("policy_ops", "The policy: ops (low: the dtype asked for; widest: of the inputs)", ops)});
}

}  // namespace

Record autocast_record(const AutocastSettings& s) {
  const OpModel model = op_model_described(s.model);
  const Policy policy = policy_named(s.policy);
  Record record{"autocast", fmt::format("Dtypes of {} under mixed precision, by the {} policy", model.name, s.policy), {}};
  std::vector<AutocastSummaryRow> summary;
  std::vector<AutocastRow> rows;
  for (const auto& dtype : s.dtypes) {
    const Autocast a = autocast(model, policy, float_named(dtype, "dtype"));
    summary.push_back(summary_row(a, dtype));
    for (const OpDTypes& o : a.ops) rows.push_back(row_of_op(o, a, dtype));
  }
  Table table = table_of(
      "rows",
      "Op by op (inputs and weights: as they come → as the op reads them; math: sums and statistics inside; rule: inputs → math → output)",
      rows);
  if (s.explain) table.show("why", Show::always);
  record.add({std::move(table)});
  record.add({table_of("summary", "", summary)});
  if (std::find(s.dtypes.begin(), s.dtypes.end(), "fp16") != s.dtypes.end())
    record.add(
        {Note{"fp16 gradients below 6e-8 would vanish: the loss is multiplied by a scale that adapts, and the fp32 gradients are divided "
              "by it."}});
  if (!model.note.empty()) record.add({Note{model.note}});
  if (!policy.joined.empty())
    record.add({Note{fmt::format("{} brings rules for ops that headroom's table does not name: {}.", s.policy, joined(policy.joined))}});
  if (s.explain) add_policy(record, policy);
  return record;
}

}  // namespace headroom::studies::precision
