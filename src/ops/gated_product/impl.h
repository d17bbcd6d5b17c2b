// The implementations behind the public functions, which have checked the arguments.
#pragma once
#include "ops/gated_product/gated_product.h"

namespace headroom::gated_product {

void forward_sm90(const Forward&, Context&);
void backward_sm90(const Backward&, Context&);

}  // namespace headroom::gated_product
