#include "ops/attention/units_us.h"

#include <algorithm>
#include <cmath>

namespace headroom::attention {

namespace {

constexpr double head_begins_us = 2.5;  // backward: a block goes on to the next query head of its key head

bool timed(const Problem& p, const Device& device) {
  return on_timed_units(p, device) && p.documents == 0 && std::max(p.head_dim, p.value_dim()) <= 128;
}
bool narrow(const Problem& p) { return std::max(p.head_dim, p.value_dim()) <= 64; }

}  // namespace

bool on_timed_units(const Problem& p, const Device& device) {
  return device.kind == DeviceKind::cuda && device.sm == 90 && device.units > 0 && !p.asks_by_place() && p.len_q > 0 && p.len_k > 0 &&
         (p.documents == 0 || (p.visible_in_documents > 0 && p.len_q == p.len_k));
}

Alike alike(const Problem& p) {
  if (p.documents == 0) return {p, double(p.batch)};
  const auto sees_no_more = [&](std::int64_t len) {
    return band_of(p.mask, len, len).visible() * double(p.len_q) <= p.visible_in_documents * double(len);
  };
  std::int64_t len = 1, too_long = p.len_q + 1;
  while (too_long - len > 1) {
    const std::int64_t middle = len + (too_long - len) / 2;
    (sees_no_more(middle) ? len : too_long) = middle;
  }
  Problem each = p;
  each.documents = 0, each.visible_in_documents = 0, each.len_q = each.len_k = len;
  return {each, double(p.batch) * double(p.len_q) / double(len)};
}

double walk_us(const Problem& p, const WalkedBlocks& w, int units, double sequences) {
  constexpr std::int64_t step = 64;
  const Band band = p.band();
  std::int64_t longest = 0, all = 0, blocks = 0;
  for (std::int64_t row = 0; row < p.len_q; row += w.rows, ++blocks) {
    const TileSpan seen = band.key_tiles(row, w.rows, step);
    const std::int64_t keys = std::max<std::int64_t>(1, seen.end - seen.begin) * step;
    longest = std::max(longest, keys);
    all += keys;
  }
  const double pairs = (sequences > 0 ? sequences : double(p.batch)) * double(p.heads) / units, others = double(p.group() - 1);
  const double alone = w.alone * double(longest) * (1 + w.of_group * others) + (w.of_group > 0 ? head_begins_us * others : 0),
               full = (w.full * double(all) + w.tile * double(blocks)) * pairs;
  return w.begin + std::pow(std::pow(alone, 4) + std::pow(full, 4), 0.25);
}

double simt_us(const Problem& p, Pass pass, const Device& device) {
  if (!timed(p, device)) return 0;
  if (pass == Pass::forward)
    return walk_us(p, narrow(p) ? WalkedBlocks{7.5, 0.115, 0.106, 1.8, 128} : WalkedBlocks{28, 0.168, 0.22, 1, 128}, device.units);
  return walk_us(p, narrow(p) ? WalkedBlocks{26, 0.139, 0.243, 0, 64, 1} : WalkedBlocks{26, 0.49, 0.49, 0, 64, 0.57}, device.units);
}

double sm80_us(const Problem& p, Pass pass, const Device& device) {
  const bool in_16_bits = size_of(p.precision.dtype) == 2;
  if (!timed(p, device) || (in_16_bits && p.softcap == 0)) return 0;  // uncapped scores of 16 bits have Hopper's own kernel
  const bool forward = pass == Pass::forward;
  const WalkedBlocks capped = narrow(p) ? forward ? WalkedBlocks{9.4, 0.083, 0.0358, 0, 64} : WalkedBlocks{8.6, 0.132, 0.0678, 0, 64, 1}
                              : forward ? WalkedBlocks{4.6, 0.119, 0.083, 2.9, 128}
                                        : WalkedBlocks{9, 0.16, 0.08, 0, 64, 1};
  const WalkedBlocks in_tf32 = narrow(p) ? forward ? WalkedBlocks{4.2, 0.0502, 0.014, 2.4, 64} : WalkedBlocks{9.1, 0.195, 0.081, 28.7, 128}
                               : forward ? WalkedBlocks{4.7, 0.0909, 0.043, 10.2, 128}
                                         : WalkedBlocks{16.4, 0.135, 0.253, 18, 128, 1};
  return walk_us(p, in_16_bits ? capped : in_tf32, device.units);
}

// From 4096 blocks of 1024 to 16 384 keys on, fitted to an H200 (bench/lab/attention_fp32.md). `alone` is a guess: half as long again as a block
// takes of a full unit; no call with few blocks was timed.
double sm80_fp32_us(const Problem& p, Pass pass, const Device& device) {
  if (!timed(p, device)) return 0;
  const std::int64_t dim = std::max(p.head_dim, p.value_dim());
  if (pass == Pass::backward)  // 14 calls of the same lengths (bench/results/h200_attention_fp32_backward_2026-11-28.txt)
    return walk_us(p,
                   dim <= 32   ? WalkedBlocks{12, 0.141, 0.0942, 7.2, 128, 1}
                   : dim <= 64 ? WalkedBlocks{12, 0.14, 0.0931, 5, 64, 1}
                               : WalkedBlocks{12, 0.294, 0.1963, 5, 64, 1},
                   device.units);
  return walk_us(p,
                 dim <= 32   ? WalkedBlocks{5, 0.055, 0.0361, 2.2, 128}
                 : dim <= 64 ? WalkedBlocks{5, 0.103, 0.0683, 2.2, 128}
                             : WalkedBlocks{5, 0.2, 0.1365, 3.7, 128},
                 device.units);
}

}  // namespace headroom::attention
