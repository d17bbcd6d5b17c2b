// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/product_update/product_update.h"

namespace headroom::product_update {

constexpr int most_items = 4;  // of one launch

void advance_sm90(std::span<const Item>, const Tensor& numbers, Context&);
void advance_fp8_sm90(std::span<const Item>, const Tensor& numbers, Context&);  // all of one type and kind of scale

}  // namespace headroom::product_update
