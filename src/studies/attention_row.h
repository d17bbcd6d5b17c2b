// One row of an attention sweep: what ran, how long, how many bytes, how wrong — or why not. The fields are written once, in
// for_each_field; tables, the store and JSON walk them.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "instruments/bench/bench.h"
#include "report/record.h"

namespace headroom::studies {

struct AttentionRow {
  std::string variant, device, dtype;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, dim = 0, len_q = 0, len_k = 0;
  std::string mask;
  std::optional<double> fwd_ms, bwd_ms, fwd_ms_std, bwd_ms_std, fwd_tflops, bwd_tflops;
  std::optional<std::int64_t> saved_bytes, peak_bytes, forecast_peak_bytes;
  std::optional<double> max_error_o, max_error_dq, max_error_dk, max_error_dv;
  std::string status, why;  // ok, oom, refused, failed
  std::int64_t steps = 0, warmup = 0;

  bench::Stats fwd, bwd;  // not columns: kept in the store beside the row

  bool ok() const { return status == "ok"; }
};

// f(name, member, unit, show) for every column, in the order of the table.
template <class Row, class F>
void for_each_field(Row& r, F&& f) {
  using enum Show;
  f("variant", r.variant, Unit::none, always);
  f("device", r.device, Unit::none, detail);
  f("dtype", r.dtype, Unit::none, always);
  f("batch", r.batch, Unit::none, detail);
  f("heads", r.heads, Unit::none, detail);
  f("kv_heads", r.kv_heads, Unit::none, detail);
  f("dim", r.dim, Unit::none, always);
  f("len_q", r.len_q, Unit::none, always);
  f("len_k", r.len_k, Unit::none, detail);
  f("mask", r.mask, Unit::none, always);
  f("fwd_ms", r.fwd_ms, Unit::ms, always);
  f("bwd_ms", r.bwd_ms, Unit::ms, always);
  f("fwd_ms_std", r.fwd_ms_std, Unit::ms, detail);
  f("bwd_ms_std", r.bwd_ms_std, Unit::ms, detail);
  f("fwd_tflops", r.fwd_tflops, Unit::tflops, bar);
  f("bwd_tflops", r.bwd_tflops, Unit::tflops, always);
  f("saved_bytes", r.saved_bytes, Unit::bytes, always);
  f("peak_bytes", r.peak_bytes, Unit::bytes, always);
  f("forecast_peak_bytes", r.forecast_peak_bytes, Unit::bytes, always);
  f("max_error_o", r.max_error_o, Unit::error, always);
  f("max_error_dq", r.max_error_dq, Unit::error, detail);
  f("max_error_dk", r.max_error_dk, Unit::error, detail);
  f("max_error_dv", r.max_error_dv, Unit::error, detail);
  f("status", r.status, Unit::none, always);
  f("why", r.why, Unit::none, detail);
  f("steps", r.steps, Unit::none, detail);
  f("warmup", r.warmup, Unit::none, detail);
}

Table table_of(const std::vector<AttentionRow>&);
nlohmann::ordered_json json_of(const AttentionRow&);
nlohmann::ordered_json samples_json(const AttentionRow&);  // mean, std, median, min, count of both passes
AttentionRow attention_row_of(const std::string& json);    // the way back, for a sweep that goes on

}  // namespace headroom::studies
