// flash_decode — a few new positions against many keys: bandwidth is all that counts.
//
// The query heads of a key head and their positions are the rows of a block: 8 (keys.cuh), or tiles of 16 with a warp each (rows.cuh). Warps
// that share keys are a team; its ring is filled by asynchronous copies that run ahead across the borders of units, so that memory never waits for a sum.
#include "ops/attention/decode/keys.cuh"
#include "ops/attention/decode/rows.cuh"

namespace headroom::attention::decode {

template <class T, class S>
using BlockOf = std::conditional_t<S::rows == 8, KeysBlock<T, S, false>, RowsBlock<T, S>>;

template <class T, class S>  // a function of its own: its registers would be missed in the loop
__device__ __noinline__ void collect_late(const Args& a) {
  extern __shared__ __align__(1024) char shared[];
  Block<T, S>(a, shared).collect_late();
}

// attention_fwd_decode — reads Q, K, V (and cu_q, cu_k, pages) once; writes O and LSE; numerics: products of 16-bit values, sums FP32.
// limit: memory.
template <class T, class S>
__global__ void __launch_bounds__(S::warps * 32, S::dim == 256 ? 1 : 2) attention_fwd_decode(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char shared[];
  if (BlockOf<T, S>(a, shared).run()) collect_late<T, S>(a);
}

template <class T, class S>
__global__ void __launch_bounds__(S::warps * 32, S::dim == 256 ? 1 : 2) attention_fwd_decode_boxes(const __grid_constant__ BoxArgs b) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char shared[];
  if (KeysBlock<T, S, true>(b.args, shared, &b.k, &b.v).run()) collect_late<T, S>(b.args);
#endif
}

template <class T, class S>
void start_boxes(const BoxArgs& b, cudaStream_t stream) {
  const auto kernel = attention_fwd_decode_boxes<T, S>;
  const Grid grid{dim3(unsigned(b.args.clusters * b.args.cluster)), S::warps * 32, S::shared_bytes, b.args.cluster};
  if (b.args.cluster > 8) cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  launch_dependent(stream, kernel, grid, b);
}

template <class T, class S>
void start(const Args& a, cudaStream_t stream) {
  const auto kernel = attention_fwd_decode<T, S>;
  const Grid grid{dim3(unsigned(a.clusters * a.cluster)), S::warps * 32, S::shared_bytes, a.cluster};
  if (a.cluster > 8) cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  if (a.early)
    launch_dependent(stream, kernel, grid, a);
  else
    launch(stream, kernel, grid, a);
}

#define HEADROOM_DECODE(T, dim)                                      \
  template void start<T, Shape<dim, 8>>(const Args&, cudaStream_t);  \
  template void start<T, Shape<dim, 16>>(const Args&, cudaStream_t); \
  template void start<T, Shape<dim, 32>>(const Args&, cudaStream_t); \
  template void start<T, Shape<dim, 64>>(const Args&, cudaStream_t);
#define HEADROOM_DECODE_DIMS(T) \
  HEADROOM_DECODE(T, 64)        \
  HEADROOM_DECODE(T, 128) HEADROOM_DECODE(T, 256) template void start_boxes<T, Shape<128, 8>>(const BoxArgs&, cudaStream_t);
HEADROOM_DECODE_DIMS(__nv_bfloat16)
HEADROOM_DECODE_DIMS(__half)

}  // namespace headroom::attention::decode
