// What the host sides of the CUDA variants share.
#pragma once
#include "base/divide.h"
#include "gpu/check.h"
#include "ops/attention/attention.h"
#include "ops/attention/documents/document_tiles.h"

namespace headroom::attention {

// dsink from what a backward has: −Δ or Δ of every row, `padded` of them for each head, and where row r of them lies.
struct SinkRows {
  const float* delta;  // null: all 0
  float sign;          // sign of the stored value, against Δ
  std::int64_t padded;
  bool in_sixteens;                    // flash_sm90's layout: stat_at of sm90/bwd_rows.cuh
  const RowTile* row_tiles = nullptr;  // where they lie by row tiles of documents (document_tiles.h),
  int of_tile = 0;                     // rows of a tile
};
inline SinkRows without_keys(const Problem& p, const Backward& t) {  // Δ is what arrives through LSE alone
  return {.delta = t.dlse ? t.dlse.as<float>() : nullptr, .sign = -1, .padded = p.len_q, .in_sixteens = false};
}
void sum_dsink_on_gpu(const Problem&, const Tensor& sink, const Tensor& lse, const SinkRows&, const Tensor& dsink, Context&);

}  // namespace headroom::attention
