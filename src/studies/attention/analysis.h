// The analysis of a sweep's rows: exponents, largest lengths, the account of the first size that does not fit, flash against plain.
#pragma once
#include "report/record.h"
#include "studies/attention/sweep.h"

namespace headroom::studies {

// Rows that differ in their length alone, by what they have in common.
struct AttentionFamily {
  std::string variant;
  Precision dtype;
  std::int64_t dim = 0;
  attention::Mask mask;

  std::string name() const;
  friend bool operator==(const AttentionFamily&, const AttentionFamily&) = default;
};
void describe(Of<AttentionFamily> auto& r, auto&& f) {
  f(r.variant, {.name = "variant"});
  f(r.dtype, {.name = "dtype"});
  f(r.dim, {.name = "dim"});
  f(r.mask, {.name = "mask"});
}

struct GrowthRow {  // y ~ len^e
  AttentionFamily of;
  std::int64_t lengths = 0;
  std::optional<double> fwd_time{}, bwd_time{}, peak_bytes{}, saved_bytes{}, peak_bytes_at_the_end{}, saved_bytes_at_the_end{};
};
void describe(Of<GrowthRow> auto& r, auto&& f) {
  describe(r.of, f);
  f(r.lengths, {.name = "lengths"});
  f(r.fwd_time, {.name = "fwd_time", .role = Role::noted});
  f(r.bwd_time, {.name = "bwd_time", .role = Role::noted});
  f(r.peak_bytes, {.name = "peak_bytes", .role = Role::noted});  // an exponent: without a unit
  f(r.saved_bytes, {.name = "saved_bytes", .role = Role::noted});
  f(r.peak_bytes_at_the_end, {.name = "peak_bytes_at_the_end", .role = Role::noted});
  f(r.saved_bytes_at_the_end, {.name = "saved_bytes_at_the_end", .role = Role::noted});
}

struct EdgeRow {  // the largest length that fits
  AttentionFamily of;
  std::string memory;
  std::int64_t memory_bytes = 0, largest_len = 0;
  std::optional<std::int64_t> peak_bytes{};
};
void describe(Of<EdgeRow> auto& r, auto&& f) {
  describe(r.of, f);
  f(r.memory, {.name = "memory"});
  f(r.memory_bytes, {.name = "memory_bytes", .unit = Unit::bytes});
  f(r.largest_len, {.name = "largest_len", .role = Role::measured});
  f(r.peak_bytes, {.name = "peak_bytes", .role = Role::measured, .unit = Unit::bytes});
}

struct AgainstPlainRow {
  AttentionFamily of;
  std::int64_t len_q = 0, len_k = 0;
  std::optional<double> fwd_faster{}, bwd_faster{}, saved_fewer{}, peak_fewer{};
};
void describe(Of<AgainstPlainRow> auto& r, auto&& f) {
  f(r.of.variant, {.name = "variant"});
  f(r.of.dtype, {.name = "dtype"});
  f(r.of.dim, {.name = "dim"});
  f(r.len_q, {.name = "len_q"});
  f(r.len_k, {.name = "len_k"});
  f(r.of.mask, {.name = "mask"});
  f(r.fwd_faster, {.name = "fwd_faster", .role = Role::noted, .unit = Unit::ratio, .show = Show::bar});
  f(r.bwd_faster, {.name = "bwd_faster", .role = Role::noted, .unit = Unit::ratio, .show = Show::bar});
  f(r.saved_fewer, {.name = "saved_fewer", .role = Role::noted, .unit = Unit::ratio});
  f(r.peak_fewer, {.name = "peak_fewer", .role = Role::noted, .unit = Unit::ratio});
}

struct ComponentRow {  // a component of an account at its peak
  std::string name, shape;
  std::string dtype;
  std::int64_t bytes = 0;
  double share = 0;
  std::string phase{};
};
void describe(Of<ComponentRow> auto& r, auto&& f) {
  f(r.name, {.name = "name"});
  f(r.shape, {.name = "shape"});
  f(r.dtype, {.name = "dtype"});
  f(r.bytes, {.name = "bytes", .role = Role::measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.share, {.name = "share", .role = Role::noted, .unit = Unit::share});
  f(r.phase, {.name = "phase"});
}

struct AttentionAnalysis {
  std::vector<GrowthRow> exponents;
  std::vector<EdgeRow> edges;
  std::vector<AgainstPlainRow> against_plain;
  std::optional<Record> misfit;  // the account of the smallest case that did not fit, as its peak would stand
};
AttentionAnalysis analysis_of(const AttentionSweep&, const Device&, const std::vector<AttentionRow>&);
void add_analysis(const AttentionAnalysis&, Record& into);

// The whole answer of `headroom attention`: device, rows, analysis.
Record attention_record(const AttentionSweep&, const Device&, const SweepResult&);

}  // namespace headroom::studies
