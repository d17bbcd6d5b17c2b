// Attention that is counted and not computed: a server's own kernels for what no row of the table serves.
#include "ops/attention/choose_dry.h"
#include "ops/attention/impl.h"

namespace headroom::attention {

namespace {

Support counted_supports(const Problem&, const Device&, Pass) { return Support::no("is counted, and has no kernel"); }

void counted_forward(const Problem& p, const Forward&, Context& ctx) {
  check(ctx.dry(), Code::unsupported, "attention: no kernel here serves this problem; it is only counted");
  const auto op = ctx.note("attention.counted.forward", p.precision, forward_cost(p), Work::attention);
}

constexpr Variant counted{"counted",        "counted",     "counted, not computed", true,
                          counted_supports, nothing_saved, counted_forward,         no_backward};

}  // namespace

const Variant& choose_for_server(const Problem& p, const Device& device, std::string_view wanted) {
  try {
    return choose(p, device, wanted);
  } catch (const Error& e) {
    if (e.at.code != Code::unsupported || device.kind == DeviceKind::cpu) throw;
    return counted;
  }
}

}  // namespace headroom::attention
