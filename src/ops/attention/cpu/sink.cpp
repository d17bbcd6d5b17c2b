#include "ops/attention/sink.h"

namespace headroom::attention {

void sum_dsink(const Problem& p, const Tensor& sink, const Tensor& lse, const Tensor& delta, const Tensor& dsink, Context& ctx) {
  ctx.share(p.heads, [&](std::int64_t head, int) {
    const float logit = sink.as<float>()[head];
    double sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        const std::int64_t at = (b * p.heads + head) * p.len_q + i;
        sum -= double(share_of_sink(logit, lse.as<float>()[at])) * double(delta.as<float>()[at]);
      }
    dsink.as<float>()[head] = float(sum);
  });
}

}  // namespace headroom::attention
