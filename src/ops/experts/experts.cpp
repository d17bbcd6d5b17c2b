#include "ops/experts/experts.h"

namespace headroom::experts {

namespace {

void count(Name name, const Tensor& of, double flops, double bytes, Context& ctx, Making making = Making::values) {
  const Support support = supports(ctx.device);
  check(ctx.dry() || support, Code::unsupported, "experts: {}", support.why);
  const auto op = ctx.note(name, {of.dtype}, {flops, bytes}, Work::other, making);
}

double bytes_of(std::initializer_list<Tensor> all) {
  std::size_t sum = 0;
  for (const Tensor& t : all) sum += t ? t.bytes() : 0;
  return double(sum);
}

}  // namespace

Support supports(const Device&) {
  return Support::no("a router's choice and its experts' rows are counted, not computed: no kernel serves them");
}

void choose(const Routing& r, Context& ctx, Name name) {
  count(name, r.logits, 8 * double(r.logits.count()), bytes_of({r.logits, r.weights, r.numbers}), ctx);
}

void gather(const Tensor& x, const Routing& r, const Tensor& routed, Context& ctx, Name name) {
  count(name, x, 0, bytes_of({routed, routed, r.numbers}), ctx);
}

void combine(const Combined& t, const Routing& r, Context& ctx, Name name) {
  count(name, t.y, 2 * double(t.routed.count()), bytes_of({t.routed, t.shared, t.add, t.y, r.weights, r.numbers}), ctx);
}

void combine_backward(const Tensor& dy, const Tensor& routed, const Routing& r, const Tensor& d_routed, const Tensor& dlogits, Context& ctx,
                      Name name) {
  count(name, dy, 4 * double(routed.count()), bytes_of({dy, routed, d_routed, dlogits, r.weights, r.numbers}), ctx, Making::gradients);
}

void gather_backward(const Tensor& d_routed, const Routing& r, const Tensor& dx, Context& ctx, Name name) {
  count(name, dx, double(d_routed.count()), bytes_of({d_routed, dx, dx, r.numbers}), ctx, Making::gradients);
}

}  // namespace headroom::experts
