#include "engine/counted.h"

#include "engine/counted/passes.h"
#include "ops/attention/choose_dry.h"

namespace headroom::engine {

const attention::Variant& counted_variant(const Decoder& d, const Recipe& r, Context& ctx) {
  return attention::choose_dry(problem_of(d.layers[0].attention, r.batch, r.len, r.len, r.precision), ctx.device, r.attention);
}

bool counted_stands_in(const Decoder& d, const Recipe& r, Context& ctx) {
  const auto p = problem_of(d.layers[0].attention, r.batch, r.len, r.len, r.precision);
  const auto& v = counted_variant(d, r, ctx);
  return !v.supports(p, ctx.device, attention::Pass::forward) || !v.supports(p, ctx.device, attention::Pass::backward);
}

double counted_model_flops(const Decoder& d, const Recipe& r) {
  double multiplied = 0, attention = 0;
  for (const ParamSpec& s : param_table(d)) {
    if (!s.multiplied) continue;
    const bool of_expert = s.shape.rank == 3;
    const double share = of_expert ? double(d.layers[std::size_t(s.layer)].ffn.experts_of_token) / double(s.shape[0]) : 1;
    multiplied += share * double(s.shape.count());
  }
  for (const DecoderLayer& l : d.layers) {
    const auto p = r.documents.of(problem_of(l.attention, r.batch, r.len, r.len, r.formats().stored));
    attention += attention::forward_flops(p) / r.ranks.parts();
  }
  const double rows = double(r.rows_of_rank());
  const bool forward = r.purpose == Purpose::forward;
  return 2 * multiplied * rows * (forward ? 1 : 3) + attention * (forward ? 1 : 3.5);
}

}  // namespace headroom::engine
