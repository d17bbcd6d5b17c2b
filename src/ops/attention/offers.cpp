// What libheadroom_cuda.so offers of attention (gpu/beside.h), beside the kernels that sm80/instances.cmake and sm90/instances.cmake list: their
// offers are generated with them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/beside.h"
#include "ops/attention/decode/decode.h"
#include "ops/attention/documents/documents.h"
#include "ops/attention/fp8/fp8_impl.h"
#include "ops/attention/impl.h"
#include "ops/attention/mend/mend.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/plain_cuda/plain_cuda.h"
#include "ops/attention/sampled/sampled_rows.h"
#include "ops/attention/sm90/bwd.h"
#include "ops/attention/sm90/tiles.h"

namespace headroom::attention {

namespace {

using beside::offer, beside::Offer;

const beside::Offers of_attention{
    offer<list_documents_on_gpu>(),
    offer<mend_forward_on_gpu>(),
    offer<mend_backward_on_gpu>(),
    offer<no_keys>(),
    offer<sum_dsink_on_gpu>(),
    offer<row_sums_on_gpu>(),
    offer<to_fp8_cuda>(),
    offer<plain::softmax_rows>(),
    offer<plain::store_rounded>(),
    offer<sm90::backward::start_zero>(),
    offer<sm90::backward::start_list_kept>(),
    offer<plain::softmax_rows_backward>(),
};

template <class T>
const beside::Offers around_blocks{offer<blocks::start_statistics<T>>(), offer<blocks::start_zero<T>>()};
template const beside::Offers around_blocks<float>;
template const beside::Offers around_blocks<__half>;
template const beside::Offers around_blocks<__nv_bfloat16>;

template <class T, int dim>
const beside::Offers of_decode{offer<decode::start<T, decode::Shape<dim, 8>>>(), offer<decode::start<T, decode::Shape<dim, 16>>>(),
                               offer<decode::start<T, decode::Shape<dim, 32>>>(), offer<decode::start<T, decode::Shape<dim, 64>>>()};
template const beside::Offers of_decode<__half, 64>;
template const beside::Offers of_decode<__half, 128>;
template const beside::Offers of_decode<__half, 256>;
template const beside::Offers of_decode<__nv_bfloat16, 64>;
template const beside::Offers of_decode<__nv_bfloat16, 128>;
template const beside::Offers of_decode<__nv_bfloat16, 256>;

template <class T, int dim>
const beside::Offers of_dense_decode{
    offer<decode::start_dense<T, decode::DenseShape<dim, 8, 1>>>(), offer<decode::start_dense<T, decode::DenseShape<dim, 8, 2>>>(),
    offer<decode::start_dense<T, decode::DenseShape<dim, 16, 1>>>(), offer<decode::start_heads<T, decode::HeadsShape<dim>>>()};
template const beside::Offers of_dense_decode<__half, 64>;
template const beside::Offers of_dense_decode<__half, 128>;
template const beside::Offers of_dense_decode<__nv_bfloat16, 64>;
template const beside::Offers of_dense_decode<__nv_bfloat16, 128>;

template <class T>
const beside::Offers around_sm90{
    offer<decode::start_boxes<T, decode::Shape<128, 8>>>(), offer<sm90::backward::start_before<Backward64<T>>>(),
    offer<sm90::backward::start_before<Backward128<T>>>(),  offer<sm90::backward::start_before<Backward256<T>>>(),
    offer<sm90::backward::start_after<Backward64<T>>>(),    offer<sm90::backward::start_after<Backward64Capped<T>>>(),
    offer<sm90::backward::start_after<Backward80<T>>>(),    offer<sm90::backward::start_after<Backward96<T>>>(),
    offer<sm90::backward::start_after<Backward128<T>>>()};
template const beside::Offers around_sm90<__half>;
template const beside::Offers around_sm90<__nv_bfloat16>;

}  // namespace

}  // namespace headroom::attention
