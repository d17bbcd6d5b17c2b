#include "ops/attention/decode/dense_deal.h"

#include <algorithm>

#include "base/divide.h"

namespace headroom::attention::decode {

namespace {

// A dense cache is one piece whose sequences have one length, and every row sees it from the same first key on.
bool is_dense(const Problem& p) {
  const Band band = p.band();
  return p.documents == 0 && p.page == 0 && p.softcap == 0 && (p.head_dim == 64 || p.head_dim == 128) && p.value_dim() == p.head_dim &&
         p.group() * p.len_q <= 8 && band.first(0) == band.first(p.len_q - 1);
}

// Blocks that walk whole units, or equal shares of a unit, read up to 5 % faster than those that cut them anywhere (16 × 8192 at head dim 128: 128 blocks
// 122.7 µs, 132 blocks 128.7). So up to a tenth of the blocks stays away for that.
std::int64_t even_blocks(std::int64_t units, std::int64_t most) {
  if (units <= most) {
    const std::int64_t even = most / units * units;
    return even * 10 >= most * 9 ? even : most;
  }
  for (std::int64_t blocks = most; blocks * 10 >= most * 9; --blocks)
    if (units % blocks == 0) return blocks;
  return most;
}

}  // namespace

// The rows of the table, each with its reason (bench/lab/attention_decode.md; µs of an H200, one new position, 4 query heads a key head).
std::optional<DenseDeal> dense_deal_of(const Problem& p, const Device& device) {
  constexpr std::int64_t step_keys = 128, most_parts = 16;  // step_keys: of 8 warps
  if (device.sm != 90 || device.units == 0 || !is_dense(p)) return {};
  const Band band = p.band();
  const std::int64_t multiprocessors = device.units, units = p.batch * p.kv_heads,
                     keys = std::max<std::int64_t>(band.last(p.len_q - 1) - band.first(0), 1), steps = units * ceil_div(keys, step_keys);
  if (steps >= 1ll << 31) return {};  // deal_of says so
  // One block adds up all parts of a unit, 16 of them at once: of more than those clusters leave fewer.
  if (multiprocessors / units > most_parts) return {};
  // A step a block: clusters add up faster than parts meet in memory. 1 × 1024 at head dim 128: 6.1 against 6.3; at 64 4.9 against 4.3.
  if (p.head_dim == 128 && steps <= multiprocessors) return {};
  // Many whole units: of two blocks one reads while the other ends its unit. 64 × 1024 at head dim 128: 63.7 against 65.9.
  if (units % even_blocks(units, 2 * multiprocessors) == 0) return DenseDeal{8, 2, even_blocks(units, 2 * multiprocessors)};
  // One or two steps a block: the blocks of two calls share a multiprocessor, and one starts while the other ends. 4 × 1024 at 128: 7.2 against 7.9.
  if (steps <= 2 * multiprocessors && multiprocessors / units <= most_parts / 2) return DenseDeal{8, 2, std::min(multiprocessors, steps)};
  // Up to 16 parts of a unit are collected in one round by 16 warps, in two by 8. 1 × 8192 at 128: 11.0 against 12.1; short ones at 64: 6.4 against 6.0.
  if (multiprocessors / units > most_parts / 2 && (p.head_dim == 128 || steps > 4 * multiprocessors))
    return DenseDeal{16, 1, std::min(even_blocks(units, multiprocessors), units * ceil_div(keys, 2 * step_keys))};
  // Else one block a multiprocessor with a ring of 192 KB. 4 × 8192 at 128: 36.2 against 36.5 and 36.7.
  return DenseDeal{8, 1, std::min(even_blocks(units, multiprocessors), steps)};
}

// Blocks that end inside a sequence add up their parts in memory, which pays from least_keys keys a block on. 64 sequences at head dim 64: 126.3 µs in place
// of 125.9 for 4096 keys, 246.2 in place of 249.5 for 8192, 1882 in place of 1993 for 65 536; at 128 959 in place of 960 for 16 384, 3769 in place of 3823
// for 65 536.
// These blocks may be cut anywhere, so all that fit are taken: at head dim 64 of 64 sequences 247.1 µs by 264 blocks in place of 247.7 by 256 for 8192 keys,
// 481 in place of 486 for 16 384, 1879 in place of 1898 for 65 536.
std::optional<std::int64_t> heads_blocks_of(const Problem& p, const Device& device) {
  if (device.sm != 90 || device.units == 0 || !is_dense(p) || p.kv_heads % heads_of_block != 0) return {};
  const Band band = p.band();
  const std::int64_t keys = band.last(p.len_q - 1) - band.first(0), units = p.batch * (p.kv_heads / heads_of_block),
                     most = 2 * std::int64_t(device.units), blocks = std::min(most, most_parts_of_heads * units),
                     least_keys = p.head_dim == 64 ? 1920 : 7680;
  if (blocks * 20 < most * 19 || units * keys < blocks * least_keys) return {};
  if (units * ceil_div<std::int64_t>(keys, keys_of_heads) >= 1ll << 31) return {};  // the others say so
  return blocks;
}

}  // namespace headroom::attention::decode
