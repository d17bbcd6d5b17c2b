// The oracle's sums over rows, formed on a card, are the CPU's: the verdicts on the same results are the same.
#include <gtest/gtest.h>

#include <cmath>

#include "base/convert.h"
#include "base/random.h"
#include "gpu/device.h"
#include "ops/attention/reference.h"
#include "ops/attention/sampled/sampled_rows.h"

namespace headroom::attention {
namespace {

struct Here {  // a tensor in the host's memory, and the same on the card
  std::vector<char> data;
  PlaceMemory held;
  Tensor here, there;
  Here(Place& place, DType type, const Shape& shape, std::uint64_t stream)
      : data(std::size_t(shape.count()) * size_of(type)),
        held(place.take(data.size())),
        here(data.data(), type, shape),
        there(held.data(), type, shape) {
    Place(cpu_device(), 1).fill_normal(here, Random{7}.stream(stream));
    place.copy_in(held.data(), data.data(), data.size());
  }
};

TEST(SampledOracleGpu, RowSumsAreTheReferences) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
  Place place(cuda_device(0));
  for (const DType type : {DType::f32, DType::bf16})
    for (const Mask mask :
         {Mask::full(), Mask::causal(), Mask::causal(Align::top_left), Mask::sliding(40), Mask::sliding(9, Align::top_left)})
      for (auto [len_q, len_k, dim] : {std::tuple{1, 1, 8}, {100, 70, 40}, {70, 333, 64}, {133, 31, 256}, {130, 130, 17}}) {
        const Problem p{
            .batch = 2, .heads = 4, .kv_heads = 2, .len_q = len_q, .len_k = len_k, .head_dim = dim, .mask = mask, .precision = {type}};
        const Here q(place, type, p.q_shape(), 1), k(place, type, p.k_shape(), 2), v(place, type, p.k_shape(), 3),
            d_o(place, type, p.q_shape(), 4);
        const Reference whole = reference(p, q.here, k.here, v.here, d_o.here);
        const std::int64_t batch = 1, head = 2;
        const RowSums sums = row_sums_on_gpu(p, q.there, k.there, v.there, d_o.there, batch, head, place);
        for (std::int64_t i = 0; i < len_q; ++i) {
          SCOPED_TRACE(name_of(mask) + " " + std::to_string(len_q) + "x" + std::to_string(len_k) + " row " + std::to_string(i));
          double delta = 0, most = 0;
          for (std::int64_t d = 0; d < dim; ++d) {
            const double term = load(d_o.here, batch, i, head, d) * whole.o[std::size_t(((batch * len_q + i) * p.heads + head) * dim + d)];
            delta += term, most += std::abs(term);
          }
          const double lse = whole.lse[std::size_t((batch * p.heads + head) * len_q + i)];
          if (std::isinf(lse)) {
            ASSERT_EQ(sums.lse[std::size_t(i)], lse);
            ASSERT_EQ(sums.delta[std::size_t(i)], 0);
            continue;
          }
          ASSERT_NEAR(sums.lse[std::size_t(i)], lse, 1e-12 * (1 + std::abs(lse)));
          ASSERT_NEAR(sums.delta[std::size_t(i)], delta, 1e-12 * (1 + sums.delta_size[std::size_t(i)]));
          ASSERT_GE(sums.delta_size[std::size_t(i)], most * (1 - 1e-12)) << "it holds the terms of dO·O";
          ASSERT_LE(sums.delta_size[std::size_t(i)], 1e3 * (1 + most));
        }
      }
}

}  // namespace
}  // namespace headroom::attention
