// Included before the host sides of attention in a build without CUDA: they plan, choose tiles and count scratch as with CUDA, over
// kernels that refuse. Nothing else includes this.
#pragma once
#include "ops/attention/decode/decode.h"
#include "ops/attention/sm90/bwd.h"
#include "ops/attention/sm90/fwd_fp8.h"

namespace headroom::attention {

[[noreturn]] inline void no_kernels() {
  throw Error(Code::unsupported, "attention: this build has no GPU kernels; build it where nvcc is (make build)");
}

namespace blocks {
namespace simt {
template <class Tiles, bool drops>
void start_forward(const ForwardArgs&, cudaStream_t) {
  no_kernels();
}
template <class Tiles, Wants wants, bool drops>
void start_backward(const BackwardArgs&, cudaStream_t) {
  no_kernels();
}
}  // namespace simt
namespace sm80 {
template <class Tiles, bool drops>
void start_forward(const ForwardArgs&, cudaStream_t) {
  no_kernels();
}
template <class Tiles, Wants wants, bool drops>
void start_backward(const BackwardArgs&, cudaStream_t) {
  no_kernels();
}
}  // namespace sm80
template <class T>
void start_statistics(const StatisticsArgs&, int, cudaStream_t) {
  no_kernels();
}
template <class T>
void start_zero(const ZeroArgs&, int, int, cudaStream_t) {
  no_kernels();
}
}  // namespace blocks

namespace decode {
template <class T, class Shape>
void start(const Args&, cudaStream_t) {
  no_kernels();
}
template <class T, class Shape>
void start_boxes(const BoxArgs&, cudaStream_t) {
  no_kernels();
}
}  // namespace decode

namespace sm90 {
template <class Tiles, Reach reach, bool capped>
void start_forward(const ForwardArgs&, int, cudaStream_t) {
  no_kernels();
}
template <class Tiles, Reach reach>
void start_forward_fp8(const ForwardFp8Args&, int, cudaStream_t) {
  no_kernels();
}
namespace backward {
template <class Tiles, bool ordered>
void start_main(const Args&, int, cudaStream_t) {
  no_kernels();
}
template <class Tiles>
void start_dkdv(const WideArgs&, int, cudaStream_t) {
  no_kernels();
}
template <class Tiles>
void start_dq(const WideArgs&, int, cudaStream_t) {
  no_kernels();
}
template <class Tiles>
void start_before(const PreArgs&, int, cudaStream_t) {
  no_kernels();
}
template <class Tiles>
void start_after(const PostArgs&, int, cudaStream_t) {
  no_kernels();
}
}  // namespace backward
}  // namespace sm90

}  // namespace headroom::attention
