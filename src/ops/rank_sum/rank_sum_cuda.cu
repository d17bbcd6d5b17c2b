#include <algorithm>

#include "base/divide.h"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/rank_sum/rank_sum.h"

namespace headroom::rank_sum {

namespace {

constexpr int threads = 256;

struct AddArgs {
  Parts parts;
  Sum sum;
  bool aligned;
};

template <class T>
__device__ const T* part_of(const Parts& p, int rank) {
  return rank == p.rank ? static_cast<const T*>(p.own) : static_cast<const T*>(p.others) + rank * p.apart;
}

// rank_sum — the ranks' parts, added in their order in FP32, divided, rounded once.
//   limit  bandwidth
template <class T>
__global__ void __launch_bounds__(threads) rank_sum(const __grid_constant__ AddArgs a) {
  constexpr int vec = 16 / int(sizeof(T));
  T* const to = static_cast<T*>(a.sum.to);
  T* const also = static_cast<T*>(a.sum.also);
  const auto divisor = float(a.sum.divisor);
  const std::int64_t stride = std::int64_t(gridDim.x) * threads, at = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t packs = a.aligned ? a.parts.count / vec : 0;
  for (std::int64_t i = at; i < packs; i += stride) {
    auto sum = widened(load<vec>(part_of<T>(a.parts, 0) + i * vec));
    for (int r = 1; r < a.parts.ranks; ++r) {
      const auto x = widened(load<vec>(part_of<T>(a.parts, r) + i * vec));
#pragma unroll
      for (int e = 0; e < vec; ++e) sum.at[e] = __fadd_rn(sum.at[e], x.at[e]);
    }
#pragma unroll
    for (int e = 0; e < vec; ++e) sum.at[e] = __fdiv_rn(sum.at[e], divisor);
    const auto made = rounded<T>(sum);
    store(to + i * vec, made);
    if (also) store(also + i * vec, made);
  }
  for (std::int64_t i = packs * vec + at; i < a.parts.count; i += stride) {
    float sum = widened(part_of<T>(a.parts, 0)[i]);
    for (int r = 1; r < a.parts.ranks; ++r) sum = __fadd_rn(sum, widened(part_of<T>(a.parts, r)[i]));
    const T made = rounded<T>(__fdiv_rn(sum, divisor));
    to[i] = made;
    if (also) also[i] = made;
  }
}

}  // namespace

void add_on_gpu(const Parts& p, const Sum& s, void* stream) {
  if (p.count == 0) return;
  const auto begins_whole = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  const AddArgs args{p, s,
                     begins_whole(p.own) && begins_whole(p.others) && begins_whole(s.to) && begins_whole(s.also) &&
                         p.apart * std::int64_t(size_of(p.type)) % 16 == 0};
  const auto blocks = std::clamp<std::int64_t>(ceil_div(p.count * std::int64_t(size_of(p.type)), threads * 16), 1, 1024);
  with_float(p.type, [&]<class T>() { launch(cuda_stream(stream), rank_sum<T>, {unsigned(blocks), threads}, args); });
}

}  // namespace headroom::rank_sum
