// The rows of headroom precision: one description each.
#pragma once
#include <optional>
#include <string>

#include "engine/halves/products.h"
#include "report/described_table.h"

namespace headroom::studies::precision {

struct Fp8Row {  // a product of a step
  std::int64_t layer = 0;
  std::string product{};
  engine::Multiplied pass = engine::Multiplied::forward;
  std::int64_t k = 0;
  engine::Scales scales = engine::Scales::block;
  std::string a{}, b{};  // formats of the operands
  Value snr_db{}, worst_row_db{}, hopper_db{}, two_level_db{};
  std::int64_t clipped = 0;
  double flushed_a = 0, flushed_b = 0;
};
void describe_error(Of<Fp8Row> auto& r, auto&& f) {
  using enum Role;
  f(r.scales, {.name = "scales"});
  f(r.a, {.name = "a"});
  f(r.b, {.name = "b", .show = Show::detail});
  f(r.snr_db, {.name = "snr_db", .role = measured});
  f(r.worst_row_db, {.name = "worst_row_db", .role = measured});
  f(r.hopper_db, {.name = "hopper_db", .role = measured});
  f(r.two_level_db, {.name = "two_level_db", .role = measured});
  f(r.clipped, {.name = "clipped", .role = measured});
  f(r.flushed_a, {.name = "flushed_a", .role = measured, .unit = Unit::share});
  f(r.flushed_b, {.name = "flushed_b", .role = measured, .unit = Unit::share});
}
void describe(Of<Fp8Row> auto& r, auto&& f) {
  f(r.layer, {.name = "layer"});
  f(r.product, {.name = "product"});
  f(r.pass, {.name = "pass", .show = Show::detail});
  f(r.k, {.name = "k", .show = Show::detail});
  describe_error(r, f);
}

struct Fp8CaseRow {  // a product of data that was made for it
  std::string data{};
  std::int64_t k = 0;
  Fp8Row error{};
};
void describe(Of<Fp8CaseRow> auto& r, auto&& f) {
  f(r.data, {.name = "data"});
  f(r.k, {.name = "k"});
  describe_error(r.error, f);
}

struct Fp8SummaryRow {
  engine::Scales scales = engine::Scales::block;
  engine::Multiplied pass = engine::Multiplied::forward;
  double least_db = 0, median_db = 0;
  std::string where{};
  double worst_row_db = 0;
  double least_hopper_db = 0;
  std::int64_t clipped = 0;
  double most_flushed = 0;
};
void describe(Of<Fp8SummaryRow> auto& r, auto&& f) {
  using enum Role;
  f(r.scales, {.name = "scales"});
  f(r.pass, {.name = "pass"});
  f(r.least_db, {.name = "least_db", .role = measured});
  f(r.median_db, {.name = "median_db", .role = measured});
  f(r.where, {.name = "where", .role = noted});
  f(r.worst_row_db, {.name = "worst_row_db", .role = measured});
  f(r.least_hopper_db, {.name = "least_hopper_db", .role = measured});
  f(r.clipped, {.name = "clipped", .role = measured});
  f(r.most_flushed, {.name = "most_flushed", .role = measured, .unit = Unit::share});
}

struct SmallFormatRow {
  std::string format{};
  double bytes_per_value = 0, snr_db = 0, outliers_db = 0;
  std::int64_t weights_bytes = 0;
  std::string runs{}, units{};  // cards on which a step runs in it, and all whose matrix units multiply it
};
void describe(Of<SmallFormatRow> auto& r, auto&& f) {
  using enum Role;
  f(r.format, {.name = "format"});
  f(r.bytes_per_value, {.name = "bytes_per_value", .role = noted, .unit = Unit::exact});
  f(r.snr_db, {.name = "snr_db", .role = measured});
  f(r.outliers_db, {.name = "outliers_db", .role = measured});
  f(r.weights_bytes, {.name = "weights_bytes", .role = noted, .unit = Unit::bytes});
  f(r.runs, {.name = "step_runs_on", .role = noted});
  f(r.units, {.name = "units_of", .role = noted});
}

struct Fp8AttentionRow {
  std::string data{};
  std::int64_t keys = 0;
  Value bf16_db{}, inputs_db{}, kernel_db{}, fp8_db{};
  double lse_error = 0;
};
void describe(Of<Fp8AttentionRow> auto& r, auto&& f) {
  using enum Role;
  f(r.data, {.name = "data"});
  f(r.keys, {.name = "keys"});
  f(r.bf16_db, {.name = "bf16_db", .role = measured});
  f(r.inputs_db, {.name = "inputs_db", .role = measured});
  f(r.kernel_db, {.name = "kernel_db", .role = measured});
  f(r.fp8_db, {.name = "fp8_db", .role = measured});
  f(r.lse_error, {.name = "lse_error", .role = measured});
}

struct AccumulateRow {
  std::string experiment{};
  Value result{};
  Value on_gpu{};                    // the card's value, if one was asked
  std::optional<bool> equal_bits{};  // whether its bits are the CPU's
  double exact = 0;
  Value error{};
  std::optional<std::int64_t> stall_step{};
  std::optional<double> stall_value{}, would_stall_at{};
  std::string why{}, method{}, dtype{}, addend_dtype{};
  Value addend{};
  double value = 0;
  std::int64_t count = 0;
  std::string device{};
};
void describe(Of<AccumulateRow> auto& r, auto&& f) {
  using enum Role;
  using enum Show;
  f(r.experiment, {.name = "experiment"});
  f(r.result, {.name = "result", .role = measured, .unit = Unit::exact});
  f(r.on_gpu, {.name = "on_gpu", .role = measured, .unit = Unit::exact});
  f(r.equal_bits, {.name = "equal_bits", .role = measured});
  f(r.exact, {.name = "exact", .role = noted, .unit = Unit::exact, .show = detail});
  f(r.error, {.name = "error", .role = noted, .unit = Unit::error});
  f(r.stall_step, {.name = "stall_step", .role = measured});
  f(r.stall_value, {.name = "stall_value", .role = measured, .unit = Unit::exact});
  f(r.would_stall_at, {.name = "would_stall_at", .role = measured, .unit = Unit::exact, .show = detail});
  f(r.why, {.name = "why", .role = noted});
  f(r.method, {.name = "method", .show = detail});
  f(r.dtype, {.name = "dtype", .show = detail});
  f(r.addend_dtype, {.name = "addend_dtype", .show = detail});
  f(r.addend, {.name = "addend", .role = noted, .unit = Unit::exact, .show = detail});
  f(r.value, {.name = "value", .unit = Unit::exact, .show = detail});
  f(r.count, {.name = "count", .show = detail});
  f(r.device, {.name = "device", .role = noted, .show = detail});
}

struct NormRow {
  std::string norm{}, dtype{}, statistics{};
  std::int64_t width = 0;
  double eps = 0, magnitude = 0;
  Value max_error{}, rms_error{};
  std::optional<bool> equal_bits{};
  std::string epsilon{}, status{}, why{}, device{};
};
void describe(Of<NormRow> auto& r, auto&& f) {
  using enum Role;
  f(r.norm, {.name = "norm"});
  f(r.dtype, {.name = "dtype"});
  f(r.statistics, {.name = "statistics"});
  f(r.width, {.name = "width"});
  f(r.eps, {.name = "eps", .unit = Unit::exact});
  f(r.magnitude, {.name = "magnitude", .unit = Unit::exact});
  f(r.max_error, {.name = "max_error", .role = measured, .unit = Unit::error});
  f(r.rms_error, {.name = "rms_error", .role = measured, .unit = Unit::error});
  f(r.equal_bits, {.name = "equal_bits", .role = measured});
  f(r.epsilon, {.name = "epsilon", .role = measured});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted});
  f(r.device, {.name = "device", .role = noted, .show = Show::detail});
}

struct NormLimitRow {
  std::string norm{}, dtype{}, statistics{};
  std::int64_t width = 0;
  double eps = 0;
  Value right_from{}, right_to{}, fails_from{};
  std::string why{}, why_below{};
  Value epsilon_lost_from{};
};
void describe(Of<NormLimitRow> auto& r, auto&& f) {
  using enum Role;
  f(r.norm, {.name = "norm"});
  f(r.dtype, {.name = "dtype"});
  f(r.statistics, {.name = "statistics"});
  f(r.width, {.name = "width"});
  f(r.eps, {.name = "eps", .unit = Unit::exact});
  f(r.right_from, {.name = "right_from", .role = measured});
  f(r.right_to, {.name = "right_to", .role = measured});
  f(r.fails_from, {.name = "fails_from", .role = measured});
  f(r.why, {.name = "why", .role = noted});
  f(r.why_below, {.name = "why_below", .role = noted});
  f(r.epsilon_lost_from, {.name = "epsilon_lost_from", .role = measured});
}

struct FormatRow {
  std::string format{};
  std::int64_t bits = 0, exponent_bits = 0, mantissa_bits = 0;
  double max = 0, min_normal = 0, min_subnormal = 0, ulp_at_1 = 0, digits = 0;
  std::int64_t exact_integers = 0;
  std::string specials{};
  double bytes_per_value = 0, rms_error = 0;
  std::optional<bool> equal_on_gpu{};
};
void describe(Of<FormatRow> auto& r, auto&& f) {
  using enum Role;
  f(r.format, {.name = "format"});
  f(r.bits, {.name = "bits", .role = noted});
  f(r.exponent_bits, {.name = "exponent_bits", .role = noted});
  f(r.mantissa_bits, {.name = "mantissa_bits", .role = noted});
  f(r.max, {.name = "max", .role = noted});
  f(r.min_normal, {.name = "min_normal", .role = noted});
  f(r.min_subnormal, {.name = "min_subnormal", .role = noted});
  f(r.ulp_at_1, {.name = "ulp_at_1", .role = noted});
  f(r.digits, {.name = "digits", .role = noted});
  f(r.exact_integers, {.name = "exact_integers", .role = noted, .unit = Unit::exact});
  f(r.specials, {.name = "specials", .role = noted});
  f(r.bytes_per_value, {.name = "bytes_per_value", .role = noted, .unit = Unit::exact});
  f(r.rms_error, {.name = "rms_error", .role = measured, .unit = Unit::error});
  f(r.equal_on_gpu, {.name = "equal_on_gpu", .role = measured});
}

struct BlockRow {
  std::string format{}, element{};
  std::int64_t block = 0;
  std::string scale{};
  double max = 0, min = 0, bytes_per_value = 0;
  std::int64_t bytes_per_tensor = 0;
  double rms_error = 0;
  std::optional<bool> equal_on_gpu{};
};
void describe(Of<BlockRow> auto& r, auto&& f) {
  using enum Role;
  f(r.format, {.name = "format"});
  f(r.element, {.name = "element"});
  f(r.block, {.name = "block"});
  f(r.scale, {.name = "scale"});
  f(r.max, {.name = "max", .role = noted});
  f(r.min, {.name = "min", .role = noted});
  f(r.bytes_per_value, {.name = "bytes_per_value", .role = noted, .unit = Unit::exact});
  f(r.bytes_per_tensor, {.name = "bytes_per_tensor", .role = noted});
  f(r.rms_error, {.name = "rms_error", .role = measured, .unit = Unit::error});
  f(r.equal_on_gpu, {.name = "equal_on_gpu", .role = measured});
}

struct AutocastRow {
  std::string dtype{}, name{}, op{}, inputs{};
  std::optional<std::string> weights{};
  std::string math{}, output{}, rule{}, rule_from{}, why{};
};
void describe(Of<AutocastRow> auto& r, auto&& f) {
  using enum Role;
  f(r.dtype, {.name = "dtype"});
  f(r.name, {.name = "name"});
  f(r.op, {.name = "op"});
  f(r.inputs, {.name = "inputs", .role = measured});
  f(r.weights, {.name = "weights", .role = measured});
  f(r.math, {.name = "math", .role = measured});
  f(r.output, {.name = "output", .role = measured});
  f(r.rule, {.name = "rule", .role = noted});
  f(r.rule_from, {.name = "rule_from", .role = noted});
  f(r.why, {.name = "why", .role = noted, .show = Show::detail});
}

struct AutocastSummaryRow {
  std::string dtype{}, parameters{}, weight_copy{}, logits{};
  std::optional<std::string> loss{};
  std::string gradients{}, activation_gradients{}, optimizer{};
};
void describe(Of<AutocastSummaryRow> auto& r, auto&& f) {
  using enum Role;
  f(r.dtype, {.name = "dtype"});
  f(r.parameters, {.name = "parameters", .role = measured});
  f(r.weight_copy, {.name = "weight_copy", .role = measured});
  f(r.logits, {.name = "logits", .role = measured});
  f(r.loss, {.name = "loss", .role = measured});
  f(r.gradients, {.name = "gradients", .role = measured});
  f(r.activation_gradients, {.name = "activation_gradients", .role = measured});
  f(r.optimizer, {.name = "optimizer", .role = measured});
}

struct PolicyTensorRow {
  std::string tensor, is, from, why;
};
void describe(Of<PolicyTensorRow> auto& r, auto&& f) {
  f(r.tensor, {.name = "tensor"});
  f(r.is, {.name = "is", .role = Role::measured});
  f(r.from, {.name = "from", .role = Role::noted});
  f(r.why, {.name = "why", .role = Role::noted});
}

struct PolicyOpRow {
  std::string op, inputs, weights, math, output, from, why;
};
void describe(Of<PolicyOpRow> auto& r, auto&& f) {
  using enum Role;
  f(r.op, {.name = "op"});
  f(r.inputs, {.name = "inputs", .role = measured});
  f(r.weights, {.name = "weights", .role = measured});
  f(r.math, {.name = "math", .role = measured});
  f(r.output, {.name = "output", .role = measured});
  f(r.from, {.name = "from", .role = noted});
  f(r.why, {.name = "why", .role = noted});
}

}  // namespace headroom::studies::precision
