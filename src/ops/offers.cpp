// What libheadroom_cuda.so offers of the ops (gpu/beside.h), attention aside.
#include "gpu/beside.h"
#include "ops/activation/impl.h"
#include "ops/adamw/impl.h"
#include "ops/bias/impl.h"
#include "ops/copy/impl.h"
#include "ops/cross_entropy/impl.h"
#include "ops/embedding/impl.h"
#include "ops/fill/impl.h"
#include "ops/gated_product/impl.h"
#include "ops/gradient_sum/impl.h"
#include "ops/head_norm/impl.h"
#include "ops/layernorm/impl.h"
#include "ops/matmul/impl.h"
#include "ops/product_update/impl.h"
#include "ops/quantise/impl.h"
#include "ops/rank_sum/rank_sum.h"
#include "ops/rmsnorm/impl.h"
#include "ops/rope/impl.h"
#include "ops/stripes/impl.h"
#include "ops/swiglu/impl.h"

namespace headroom {

namespace {

using beside::offer;

const beside::Offers of_ops{
    offer<activation::forward_cuda>(),
    offer<activation::backward_cuda>(),
    offer<adamw::start_cuda>(),
    offer<adamw::set_cuda>(),
    offer<adamw::squares_cuda>(),
    offer<adamw::begin_cuda>(),
    offer<adamw::advance_cuda>(),
    offer<bias::add_cuda>(),
    offer<bias::backward_cuda>(),
    offer<copy::copy_cuda>(),
    offer<copy::split_cuda>(),
    offer<cross_entropy::run_cuda>(),
    offer<cross_entropy::cap_cuda>(),
    offer<cross_entropy::add_up_cuda>(),
    offer<embedding::add_cuda>(),
    offer<embedding::forward_cuda>(),
    offer<embedding::backward_cuda>(),
    offer<fill::constant_cuda>(),
    offer<fill::normal_cuda>(),
    offer<gated_product::forward_sm90>(),
    offer<gated_product::backward_sm90>(),
    offer<gradient_sum::add_cuda>(),
    offer<head_norm::forward_cuda>(),
    offer<head_norm::backward_cuda>(),
    offer<layernorm::forward_cuda>(),
    offer<layernorm::backward_cuda>(),
    offer<matmul::multiply_cuda>(),
    offer<product_update::advance_sm90>(),
    offer<product_update::advance_fp8_sm90>(),
    offer<quantise::quantise_cuda>(),
    offer<quantise::dequantise_cuda>(),
    offer<rank_sum::add_on_gpu>(),
    offer<rmsnorm::forward_cuda>(),
    offer<rmsnorm::backward_cuda>(),
    offer<rope::fill_cuda>(),
    offer<rope::rotate_cuda>(),
    offer<stripes::pack_cuda>(),
    offer<stripes::in_order_cuda>(),
    offer<stripes::add_by_rank_cuda>(),
    offer<stripes::add_up_cuda>(),
    offer<swiglu::forward_cuda>(),
    offer<swiglu::backward_cuda>(),
};

}  // namespace

}  // namespace headroom
