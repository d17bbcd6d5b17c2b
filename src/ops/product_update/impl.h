// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/adamw/impl.h"
#include "ops/product_update/deal.h"
#include "ops/product_update/product_update.h"

namespace headroom::product_update {

constexpr int most_items = 4;  // in one launch

// With bf16 factors: the side of a cluster's tile, the tokens of a step, and, where a tile is summed in parts, its warps and the sums of each warp.
constexpr int tile_side = 256, step_tokens = 64, warps_of_a_tile = 16, sums_of_a_warp = tile_side * tile_side / warps_of_a_tile;

inline int* ready_of(const Tensor& numbers) { return reinterpret_cast<int*>(numbers.as<adamw::Numbers>() + 1); }

// sums: of the parts that the deal has, FP32; none where no tile is shared.
void advance_sm90(std::span<const Item>, const Deal&, const Tensor& numbers, const Tensor& sums, Context&);
void advance_fp8_sm90(std::span<const Item>, const Tensor& numbers, Context&);  // all of one type and kind of scale

}  // namespace headroom::product_update
