// The kernels of flash_decode for a dense cache, for Hopper.
#include "ops/attention/decode/dense.cuh"
#include "ops/attention/decode/heads.cuh"

namespace headroom::attention::decode {

// attention_fwd_decode_dense — reads Q, K, V once; writes O and LSE; needs: Args of one length, without pages, lists and caps, `cluster` 1.
// numerics: products of 16-bit values, sums FP32. limit: memory.
template <class T, class S>
__global__ void __launch_bounds__(S::warps * 32, S::a_multiprocessor) attention_fwd_decode_dense(const __grid_constant__ Args a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char shared[];
  DenseBlock<T, S>(a, shared).run();
#endif
}

template <class T, class S>
void start_dense(const Args& a, cudaStream_t stream) {
  launch_dependent(stream, attention_fwd_decode_dense<T, S>, {dim3(unsigned(a.clusters)), S::warps * 32, S::shared_bytes, 1}, a);
}

// attention_fwd_decode_heads — as attention_fwd_decode_dense; needs: key heads that 8 divides, Args dealt for groups of eight of them (run_heads). It is
// made for heads that lie beside each other in memory.
template <class T, class S>
__global__ void __launch_bounds__(S::threads, 2) attention_fwd_decode_heads(const __grid_constant__ BoxArgs b) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char shared[];
  HeadsBlock<T, S>(b, shared).run();
#endif
}

template <class T, class S>
void start_heads(const BoxArgs& b, cudaStream_t stream) {
  launch_dependent(stream, attention_fwd_decode_heads<T, S>, {dim3(unsigned(b.args.clusters)), S::threads, S::shared_bytes, 1}, b);
}

#define HEADROOM_DECODE_DENSE(T, dim)                                              \
  template void start_dense<T, DenseShape<dim, 8, 1>>(const Args&, cudaStream_t);  \
  template void start_dense<T, DenseShape<dim, 8, 2>>(const Args&, cudaStream_t);  \
  template void start_dense<T, DenseShape<dim, 16, 1>>(const Args&, cudaStream_t); \
  template void start_heads<T, HeadsShape<dim>>(const BoxArgs&, cudaStream_t);
HEADROOM_DECODE_DENSE(__nv_bfloat16, 64)
HEADROOM_DECODE_DENSE(__nv_bfloat16, 128)
HEADROOM_DECODE_DENSE(__half, 64)
HEADROOM_DECODE_DENSE(__half, 128)

}  // namespace headroom::attention::decode
