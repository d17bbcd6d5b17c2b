// How Q, K and V of 8 bits lie, and how weights become 8 bits: for kernels and their emulation alike.
//
// V is stored transposed, because Hopper's products of 8 bits take nothing else:
// [batch, kv_heads, len_k / 16 rounded up, dim_v, 16]: of every 16 keys, each dimension's 16 numbers side by side. Number 8·h + 2·q + i of them
// (h, i < 2, q < 4) has place 4·q + 2·h + i, the order in which a matrix unit leaves scores in its registers. Places of keys that are not there hold 0.
// As a tensor of four dimensions the last two are one (Problem::v_shape).
#pragma once
#include <cstdint>

namespace headroom::attention {

constexpr std::int64_t keys_of_v_block = 16;
constexpr int key_at_place(int place) { return place / 2 % 2 * 8 + place / 4 * 2 + place % 2; }
constexpr int place_of_key(int key) { return key % 8 / 2 * 4 + key / 8 % 2 * 2 + key % 2; }
constexpr std::int64_t value_at(std::int64_t key, std::int64_t d, std::int64_t dim_v) {  // within a head
  return (key / keys_of_v_block * dim_v + d) * keys_of_v_block + place_of_key(int(key % keys_of_v_block));
}

// A weight is 2^(score − reference + lift) before it is rounded to E4M3; the reference may lag behind the largest score by up to `slack`, so that O is
// rarely rescaled. Weights go up to 2^8.75 = 430; E4M3 ends at 448.
constexpr float fp8_slack = 3.75f, fp8_lift = 5;

}  // namespace headroom::attention
