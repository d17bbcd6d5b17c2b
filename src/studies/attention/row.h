// One row of an attention sweep: what ran, how long, how many bytes, how wrong — or why not.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/precision_words.h"
#include "instruments/bench/bench.h"
#include "ops/attention/mask_words.h"
#include "store/described_json.h"
#include "studies/status.h"

namespace headroom::studies {

struct AttentionRow {
  std::string variant, device;
  Precision dtype;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, dim = 0, len_q = 0, len_k = 0;
  attention::Mask mask;
  std::string documents;  // lengths, with commas between them
  std::string cached;     // the same of caches, one of each sequence
  std::int64_t page = 0;  // positions of one; 0: none
  std::int64_t dim_v = 0;
  double softcap = 0, dropout = 0;
  bool sink = false, alibi = false;
  std::optional<double> fwd_ms, bwd_ms, fwd_ms_std, bwd_ms_std, fwd_tflops, bwd_tflops;
  std::optional<std::int64_t> saved_bytes, peak_bytes, forecast_peak_bytes;
  std::optional<double> max_error_o, max_error_dq, max_error_dk, max_error_dv;
  Status status = Status::ok;
  std::string why;
  std::int64_t steps = 0, warmup = 0;

  bench::Stats fwd, bwd;  // not columns: kept in the store beside the row

  bool ok() const { return status == Status::ok; }
};

void describe(Of<AttentionRow> auto& r, auto&& f) {
  using enum Role;
  using enum Show;
  f(r.variant, {.name = "variant"});
  f(r.device, {.name = "device", .role = noted, .show = detail});
  f(r.dtype, {.name = "dtype"});
  f(r.batch, {.name = "batch", .show = detail});
  f(r.heads, {.name = "heads", .show = detail});
  f(r.kv_heads, {.name = "kv_heads", .show = detail});
  f(r.dim, {.name = "dim"});
  f(r.len_q, {.name = "len_q"});
  f(r.len_k, {.name = "len_k", .show = detail});
  f(r.mask, {.name = "mask"});
  f(r.documents, {.name = "documents", .show = detail});
  f(r.cached, {.name = "cached", .show = detail});
  f(r.page, {.name = "page", .show = detail});
  f(r.dim_v, {.name = "dim_v", .show = detail});
  f(r.softcap, {.name = "softcap", .show = detail});
  f(r.dropout, {.name = "dropout", .show = detail});
  f(r.sink, {.name = "sink", .show = detail});
  f(r.alibi, {.name = "alibi", .show = detail});
  f(r.fwd_ms, {.name = "fwd_ms", .role = measured, .unit = Unit::ms});
  f(r.bwd_ms, {.name = "bwd_ms", .role = measured, .unit = Unit::ms});
  f(r.fwd_ms_std, {.name = "fwd_ms_std", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.bwd_ms_std, {.name = "bwd_ms_std", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.fwd_tflops, {.name = "fwd_tflops", .role = noted, .unit = Unit::tflops, .show = bar});
  f(r.bwd_tflops, {.name = "bwd_tflops", .role = noted, .unit = Unit::tflops});
  f(r.saved_bytes, {.name = "saved_bytes", .role = measured, .unit = Unit::bytes});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.forecast_peak_bytes, {.name = "forecast_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.max_error_o, {.name = "max_error_o", .role = measured, .unit = Unit::error});
  f(r.max_error_dq, {.name = "max_error_dq", .role = measured, .unit = Unit::error, .show = detail});
  f(r.max_error_dk, {.name = "max_error_dk", .role = measured, .unit = Unit::error, .show = detail});
  f(r.max_error_dv, {.name = "max_error_dv", .role = measured, .unit = Unit::error, .show = detail});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted, .show = detail});
  f(r.steps, {.name = "steps", .role = noted, .show = detail});
  f(r.warmup, {.name = "warmup", .role = noted, .show = detail});
}

RowObject samples_json(const AttentionRow&);  // mean, std, median, min, count of both passes

}  // namespace headroom::studies
