// The rows of memory's tables, each described once.
#pragma once
#include <optional>
#include <string>

#include "base/precision_words.h"
#include "engine/recipe/levers.h"
#include "engine/recipe/ranks.h"
#include "ops/attention/mask_words.h"
#include "pytorch/language_model.h"
#include "studies/memory/asked.h"
#include "studies/memory/serving.h"
#include "studies/status.h"

namespace headroom::studies {

// ---- attention ----

struct AttentionMemoryRow {
  std::int64_t dim = 0, len = 0;
  Precision dtype;
  std::string variant;
  std::optional<std::uint64_t> saved_bytes{}, before_backward_bytes{}, peak_bytes{}, forward_peak_bytes{}, backward_peak_bytes{};
  std::int64_t batch = 0, heads = 0, kv_heads = 0, len_k = 0;
  attention::Mask mask{};
  std::optional<std::int64_t> measured_peak_bytes{}, difference_bytes{}, unexplained_bytes{};
  std::optional<std::uint64_t> needed_bytes{};
  Status status = Status::ok;
  std::string why{};
};
void describe(Of<AttentionMemoryRow> auto& r, auto&& f) {
  using enum Role;
  using enum Show;
  f(r.dim, {.name = "dim"});
  f(r.len, {.name = "len"});
  f(r.dtype, {.name = "dtype"});
  f(r.variant, {.name = "variant"});
  f(r.saved_bytes, {.name = "saved_bytes", .role = measured, .unit = Unit::bytes});
  f(r.before_backward_bytes, {.name = "before_backward_bytes", .role = measured, .unit = Unit::bytes});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.forward_peak_bytes, {.name = "forward_peak_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.backward_peak_bytes, {.name = "backward_peak_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.batch, {.name = "batch", .show = detail});
  f(r.heads, {.name = "heads", .show = detail});
  f(r.kv_heads, {.name = "kv_heads", .show = detail});
  f(r.len_k, {.name = "len_k", .show = detail});
  f(r.mask, {.name = "mask", .show = detail});
  f(r.measured_peak_bytes, {.name = "measured_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.difference_bytes, {.name = "difference_bytes", .role = noted, .unit = Unit::bytes});
  f(r.unexplained_bytes, {.name = "unexplained_bytes", .role = noted, .unit = Unit::bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted});
}

struct AccountRow {  // a tensor of an account
  std::string name, shape, dtype;
  std::uint64_t bytes = 0;
  std::string formula, phase;
  bool at_peak = false;
  double share = 0;
};
void describe(Of<AccountRow> auto& r, auto&& f) {
  using enum Role;
  f(r.name, {.name = "name"});
  f(r.shape, {.name = "shape"});
  f(r.dtype, {.name = "dtype"});
  f(r.bytes, {.name = "bytes", .role = measured, .unit = Unit::bytes});
  f(r.formula, {.name = "formula", .role = noted});
  f(r.phase, {.name = "phase"});
  f(r.at_peak, {.name = "at_peak", .role = noted});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share});
}

struct LiveRow {
  std::string moment;
  std::uint64_t live_bytes = 0;
  std::string peak{};
};
void describe(Of<LiveRow> auto& r, auto&& f) {
  f(r.moment, {.name = "moment"});
  f(r.live_bytes, {.name = "live_bytes", .role = Role::measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.peak, {.name = "peak", .role = Role::noted});
}

struct AttentionGrowthRow {
  std::string variant;
  Precision dtype;
  std::int64_t dim = 0;
  std::optional<double> peak_exponent{}, saved_exponent{};
  std::int64_t largest_len = 0, largest_batch = 0, largest_batch_len = 0;
};
void describe(Of<AttentionGrowthRow> auto& r, auto&& f) {
  using enum Role;
  f(r.variant, {.name = "variant"});
  f(r.dtype, {.name = "dtype"});
  f(r.dim, {.name = "dim"});
  f(r.peak_exponent, {.name = "peak_exponent", .role = noted});
  f(r.saved_exponent, {.name = "saved_exponent", .role = noted});
  f(r.largest_len, {.name = "largest_len", .role = measured});
  f(r.largest_batch, {.name = "largest_batch", .role = measured});
  f(r.largest_batch_len, {.name = "largest_batch_len"});
}

struct AttentionSavingRow {
  std::string instead;
  std::optional<std::int64_t> step_peak_bytes{}, saves_bytes{};
  std::string costs{};
};
void describe(Of<AttentionSavingRow> auto& r, auto&& f) {
  using enum Role;
  f(r.instead, {.name = "instead"});
  f(r.step_peak_bytes, {.name = "step_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.saves_bytes, {.name = "saves_bytes", .role = noted, .unit = Unit::bytes});
  f(r.costs, {.name = "costs", .role = noted});
}

struct PaperRow {
  std::string what;
  std::uint64_t bytes = 0;
  std::string formula;
};
void describe(Of<PaperRow> auto& r, auto&& f) {
  f(r.what, {.name = "what"});
  f(r.bytes, {.name = "bytes", .role = Role::measured, .unit = Unit::bytes});
  f(r.formula, {.name = "formula", .role = Role::noted});
}

// ---- a model's step ----

struct ModelMemoryRow {
  std::string model;
  std::int64_t batch = 0, len = 0;
  engine::Levers levers{};  // keep: as it came to, of this model
  ModelUse phase = ModelUse::train;
  std::int64_t params = 0;
  std::uint64_t forward_peak_bytes = 0;
  std::optional<std::uint64_t> forward_backward_peak_bytes{}, train_peak_bytes{};
  std::uint64_t needed_bytes = 0, standing_bytes = 0;
  double flops = 0;
  std::optional<double> ms{}, ms_low{}, ms_high{}, ms_at_least{};
  std::string ms_by{};  // what the interval stands on, or why there is no ms
  engine::Ranks ranks{};
  double link_bytes = 0;
  std::uint64_t host_bytes = 0;
  bool fits = false;
};
void describe(Of<ModelMemoryRow> auto& r, auto&& f) {
  using enum Role;
  using enum Show;
  f(r.model, {.name = "model"});
  f(r.batch, {.name = "batch"});
  f(r.len, {.name = "len"});
  describe_columns(r.levers, f, {.shown = {"precision", "keep"}, .paired = {"precision", "keep", "attention"}});
  f(r.phase, {.name = "phase"});
  f(r.params, {.name = "params", .role = noted, .show = detail});
  f(r.forward_peak_bytes, {.name = "forward_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.forward_backward_peak_bytes, {.name = "forward_backward_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.train_peak_bytes, {.name = "train_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes});
  f(r.standing_bytes, {.name = "standing_bytes", .role = measured, .unit = Unit::bytes});
  f(r.flops, {.name = "flops", .role = measured, .unit = Unit::flops, .show = detail});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = detail});
  f(r.ms_low, {.name = "ms_low", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.ms_high, {.name = "ms_high", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.ms_at_least, {.name = "ms_at_least", .role = measured, .unit = Unit::ms, .show = detail});
  f(r.ms_by, {.name = "ms_by", .role = noted, .show = detail});
  f(r.ranks.count, {.name = "ranks", .show = detail});
  f(r.ranks.sharding, {.name = "shard", .show = detail});
  f(r.ranks.split_tokens, {.name = "split_tokens", .show = detail});
  f(r.link_bytes, {.name = "link_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.host_bytes, {.name = "host_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.fits, {.name = "fits", .role = noted});
}

struct ModelTensorRow {  // tensors of one name and dtype
  std::string name, shape, dtype;
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::string formula, phase;
  std::uint64_t at_peak_bytes = 0;
  double share = 0;
};
void describe(Of<ModelTensorRow> auto& r, auto&& f) {
  using enum Role;
  f(r.name, {.name = "name"});
  f(r.shape, {.name = "shape"});
  f(r.dtype, {.name = "dtype"});
  f(r.tensors, {.name = "tensors", .role = measured});
  f(r.bytes, {.name = "bytes", .role = measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.formula, {.name = "formula", .role = noted});
  f(r.phase, {.name = "phase"});
  f(r.at_peak_bytes, {.name = "at_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share});
}

struct OpTimeRow {  // ops of one name, kind and shape: what they take of a step
  std::string op, kind, making;
  double count = 0;
  std::int64_t m = 0, n = 0, k = 0, batch = 0;  // sides of a product, or of attention; 0: neither
  double flops = 0, traffic_bytes = 0, ms_at_least = 0;
  std::optional<double> ms{};  // none: it runs on a link, beside the step
};
void describe(Of<OpTimeRow> auto& r, auto&& f) {
  using enum Role;
  f(r.op, {.name = "op"});
  f(r.kind, {.name = "kind"});
  f(r.making, {.name = "making"});
  f(r.count, {.name = "count", .role = measured});
  f(r.m, {.name = "m"});
  f(r.n, {.name = "n"});
  f(r.k, {.name = "k"});
  f(r.batch, {.name = "batch"});
  f(r.flops, {.name = "flops", .role = measured, .unit = Unit::flops});
  f(r.traffic_bytes, {.name = "traffic_bytes", .role = measured, .unit = Unit::bytes});
  f(r.ms_at_least, {.name = "ms_at_least", .role = measured, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
}

struct PeakPhaseRow {
  std::string phase;
  std::uint64_t bytes = 0;
  double share = 0;
};
void describe(Of<PeakPhaseRow> auto& r, auto&& f) {
  f(r.phase, {.name = "phase"});
  f(r.bytes, {.name = "bytes", .role = Role::measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.share, {.name = "share", .role = Role::noted, .unit = Unit::share});
}

struct LargestRow {  // length, with this batch; batch, with this length
  Precision precision;
  std::optional<engine::Keeping> keep{};  // only for this library's step
  std::string with{};                     // its other levers that are not as usual
  std::int64_t batch = 0, len = 0, largest_len = 0, largest_batch = 0;
};
void describe(Of<LargestRow> auto& r, auto&& f) {
  f(r.precision, {.name = "precision"});
  f(r.keep, {.name = "keep"});
  f(r.with, {.name = "with"});
  f(r.batch, {.name = "batch"});
  f(r.len, {.name = "len"});
  f(r.largest_len, {.name = "largest_len", .role = Role::measured});
  f(r.largest_batch, {.name = "largest_batch", .role = Role::measured});
}

struct ScalingRow {
  Precision precision;
  engine::Keeping keep{};
  std::string with{};
  std::int64_t batch = 0;
  double exponent_of_peak = 0, exponent_of_activations = 0;
};
void describe(Of<ScalingRow> auto& r, auto&& f) {
  f(r.precision, {.name = "precision"});
  f(r.keep, {.name = "keep"});
  f(r.with, {.name = "with"});
  f(r.batch, {.name = "batch"});
  f(r.exponent_of_peak, {.name = "exponent_of_peak", .role = Role::noted, .unit = Unit::ratio});
  f(r.exponent_of_activations, {.name = "exponent_of_activations", .role = Role::noted, .unit = Unit::ratio});
}

struct ModelSavingRow {
  std::string change;
  std::uint64_t peak_bytes = 0, saves_bytes = 0;
  double more_flops = 0, more_traffic = 0;
};
void describe(Of<ModelSavingRow> auto& r, auto&& f) {
  using enum Role;
  f(r.change, {.name = "change"});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.saves_bytes, {.name = "saves_bytes", .role = noted, .unit = Unit::bytes});
  f(r.more_flops, {.name = "more_flops", .role = noted, .unit = Unit::share});
  f(r.more_traffic, {.name = "more_traffic", .role = noted, .unit = Unit::share});
}

struct MeasuredStepRow {  // a step that was forecast, run
  std::int64_t batch = 0, len = 0;
  Precision precision;
  engine::Keeping keep{};
  std::string with{};
  std::uint64_t forecast_peak_bytes = 0;
  std::optional<std::int64_t> ledger_peak_bytes{}, difference_bytes{}, driver_bytes{}, context_bytes{}, loaded_bytes{}, unexplained_bytes{};
  Status status = Status::ok;
  std::string why{};
};
void describe(Of<MeasuredStepRow> auto& r, auto&& f) {
  using enum Role;
  f(r.batch, {.name = "batch"});
  f(r.len, {.name = "len"});
  f(r.precision, {.name = "precision"});
  f(r.keep, {.name = "keep"});
  f(r.with, {.name = "with"});
  f(r.forecast_peak_bytes, {.name = "forecast_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.ledger_peak_bytes, {.name = "ledger_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.difference_bytes, {.name = "difference_bytes", .role = measured});
  f(r.driver_bytes, {.name = "driver_bytes", .role = noted, .unit = Unit::bytes});
  f(r.context_bytes, {.name = "context_bytes", .role = noted, .unit = Unit::bytes});
  f(r.loaded_bytes, {.name = "loaded_bytes", .role = noted, .unit = Unit::bytes});
  f(r.unexplained_bytes, {.name = "unexplained_bytes", .role = noted, .unit = Unit::bytes});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted});
}

// ---- PyTorch eager's step ----

struct PyTorchModelRow {
  std::string model;
  std::int64_t batch = 0, len = 0;
  Precision precision;
  ModelUse phase = ModelUse::train;
  engine::Keeping keep{};
  pytorch::Parameters parameters{};
  pytorch::Adam adam{};
  bool in_backward = false;
  pytorch::Loss loss{};
  pytorch::Selective selective{};
  bool offload_inputs = false;
  pytorch::Compile compile{};
  pytorch::Base base{};
  std::int64_t lora = 0, accumulate = 1, gpus = 1;
  engine::Sharding shard{};
  std::uint64_t params = 0, before_backward_bytes = 0, forward_peak_bytes = 0;
  std::optional<std::uint64_t> forward_backward_peak_bytes{}, train_peak_bytes{};
  std::uint64_t at_most_bytes = 0, needed_bytes = 0, held_bytes = 0, reserved_bytes = 0, host_bytes = 0;
  std::optional<double> ms{}, ms_low{}, ms_high{};
  std::string ms_by{};  // where the rates come from, or why there is no ms
  bool fits = false;
};
void describe(Of<PyTorchModelRow> auto& r, auto&& f) {
  using enum Role;
  using enum Show;
  f(r.model, {.name = "model"});
  f(r.batch, {.name = "batch"});
  f(r.len, {.name = "len"});
  f(r.precision, {.name = "precision"});
  f(r.phase, {.name = "phase"});
  f(r.keep, {.name = "keep"});
  f(r.parameters, {.name = "parameters", .show = detail});
  f(r.adam, {.name = "adam", .show = detail});
  f(r.in_backward, {.name = "in_backward", .show = detail});
  f(r.loss, {.name = "loss", .show = detail});
  f(r.selective, {.name = "selective", .show = detail});
  f(r.offload_inputs, {.name = "offload_inputs", .show = detail});
  f(r.compile, {.name = "compile", .show = detail});
  f(r.base, {.name = "base", .show = detail});
  f(r.lora, {.name = "lora", .show = detail});
  f(r.accumulate, {.name = "accumulate", .show = detail});
  f(r.gpus, {.name = "gpus", .show = detail});
  f(r.shard, {.name = "shard", .show = detail});
  f(r.params, {.name = "params", .role = noted});
  f(r.before_backward_bytes, {.name = "before_backward_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.forward_peak_bytes, {.name = "forward_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.forward_backward_peak_bytes, {.name = "forward_backward_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.train_peak_bytes, {.name = "train_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.at_most_bytes, {.name = "at_most_bytes", .role = noted, .unit = Unit::bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes});
  f(r.held_bytes, {.name = "held_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.reserved_bytes, {.name = "reserved_bytes", .role = measured, .unit = Unit::bytes});
  f(r.host_bytes, {.name = "host_bytes", .role = measured, .unit = Unit::bytes, .show = detail});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = detail});
  f(r.ms_low, {.name = "ms_low", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.ms_high, {.name = "ms_high", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.ms_by, {.name = "ms_by", .role = noted, .show = detail});
  f(r.fits, {.name = "fits", .role = noted});
}

struct PyTorchBesideRow {
  std::string who;
  std::uint64_t bytes = 0;
};
void describe(Of<PyTorchBesideRow> auto& r, auto&& f) {
  f(r.who, {.name = "who"});
  f(r.bytes, {.name = "bytes", .role = Role::measured, .unit = Unit::bytes, .show = Show::bar});
}

struct PyTorchSavingRow {
  std::string instead;
  std::int64_t peak_bytes = 0, saves_bytes = 0;
  std::string costs{};
};
void describe(Of<PyTorchSavingRow> auto& r, auto&& f) {
  using enum Role;
  f(r.instead, {.name = "instead"});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.saves_bytes, {.name = "saves_bytes", .role = noted, .unit = Unit::bytes});
  f(r.costs, {.name = "costs", .role = noted});
}

// ---- a model that answers ----

struct InferenceRow {
  std::string model;
  std::int64_t batch = 0, len = 0;
  Precision precision;
  engine::WeightsAs weights{};
  CacheAs cache{};
  std::int64_t page = 1, chunk = 0, gpus = 1;
  engine::AttentionBy attention_by{};
  std::int64_t params = 0, active_params = 0;
  std::uint64_t weight_bytes = 0, cache_bytes = 0, cache_bytes_of_token = 0, prefill_peak_bytes = 0, decode_peak_bytes = 0,
                needed_bytes = 0;
  bool fits = false;
  std::optional<double> prefill_ms_at_least{}, decode_ms_at_least{}, tokens_per_s_at_most{};
};
void describe(Of<InferenceRow> auto& r, auto&& f) {
  using enum Role;
  f(r.model, {.name = "model"});
  f(r.batch, {.name = "batch"});
  f(r.len, {.name = "len"});
  f(r.precision, {.name = "precision"});
  f(r.weights, {.name = "weights"});
  f(r.cache, {.name = "cache", .show = Show::detail});
  f(r.page, {.name = "page", .show = Show::detail});
  f(r.chunk, {.name = "chunk", .show = Show::detail});
  f(r.gpus, {.name = "gpus", .show = Show::detail});
  f(r.attention_by, {.name = "attention_by", .show = Show::detail});
  f(r.params, {.name = "params", .role = noted, .show = Show::detail});
  f(r.active_params, {.name = "active_params", .role = noted, .show = Show::detail});
  f(r.weight_bytes, {.name = "weight_bytes", .role = measured, .unit = Unit::bytes});
  f(r.cache_bytes, {.name = "cache_bytes", .role = measured, .unit = Unit::bytes});
  f(r.cache_bytes_of_token, {.name = "cache_bytes_of_token", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.prefill_peak_bytes, {.name = "prefill_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.decode_peak_bytes, {.name = "decode_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes});
  f(r.fits, {.name = "fits", .role = noted});
  f(r.prefill_ms_at_least, {.name = "prefill_ms_at_least", .role = measured, .unit = Unit::ms});
  f(r.decode_ms_at_least, {.name = "decode_ms_at_least", .role = measured, .unit = Unit::ms});
  f(r.tokens_per_s_at_most, {.name = "tokens_per_s_at_most", .role = noted, .unit = Unit::per_s});
}

}  // namespace headroom::studies
