#include "engine/expected.h"

#include <string_view>

#include "engine/decoder.h"
#include "engine/forecast.h"

namespace headroom::engine {

namespace {

// How many times its roofline an op took, by its kind, and what an op of forward and one of backward, which may be several launches, takes
// beside that. Least squares of relative error over the steps of one card in bench/results/h200_step_seeds_2026-11-21.csv; elementwise
// ops taken at their roofline. link: of the time that the link is busy, what the work beside it loses, of two cards (21 steps in
// h200_step_two_gpus_peer_copies_2026-11-22.csv); 0: no steps of two are on record.
struct Measured {
  std::string_view card;
  Precision precision;
  double product, gradient_product, attention, update, forward_op_ms, backward_op_ms, link;
};
constexpr Measured on_record[] = {
    {"NVIDIA H200", {DType::f32, Math::exact}, 1.064, 1.096, 1.164, 0.850, 0.01000, 0.01204, 0},
    {"NVIDIA H200", {DType::bf16, Math::exact}, 1.113, 1.241, 1.168, 0.973, 0.00261, 0.00483, 0.284},
};
constexpr double largest_ratio = 1.10;  // the largest ratio of a recorded step to its expected time, or back: 1.096

double times_roofline(std::string_view op, const Measured& m) {
  const bool pass = op.ends_with(".forward") || op.ends_with(".backward");
  if (op.starts_with("attention.") && pass) return m.attention;
  if (op.starts_with("adamw")) return m.update;
  if (op == "product_update" || op.ends_with(".dw") || op.ends_with(".dx")) return m.gradient_product;
  return op == "head" || op.starts_with("attention.") || (op.starts_with("ffn.") && !pass) ? m.product : 1;
}

double beside_ms(std::string_view op, const Measured& m) {
  const bool back = op == "product_update" || op.ends_with(".dw") || op.ends_with(".dx") || op.ends_with(".backward");
  return back ? m.backward_op_ms : m.forward_op_ms;
}

}  // namespace

std::optional<Expected> expected_time(const Recipe& r, const Walk& walk, const LinkTime& link, const Device& device) {
  if (r.ranks.count > 2 || r.ranks.split_tokens || r.host > 0 || r.model.counted || !r.attention.starts_with("flash") ||
      !computes_as_llama(decoder_of(r.model)))
    return {};
  for (const Measured& m : on_record) {
    if (m.card != device.name || !(m.precision == r.precision) || (r.ranks.count > 1 && m.link == 0)) continue;
    Expected e{.ms = link.exposed_ms + m.link * link.ms};
    for (const OpCall& s : walk.steps)
      if (s.cost.link_bytes == 0)
        e.ms += beside_ms(s.op.text, m) + times_roofline(s.op.text, m) * roofline_ms(s, r.precision, device.ceilings);
    e.low_ms = e.ms / largest_ratio, e.high_ms = e.ms * largest_ratio;
    return e;
  }
  return {};
}

}  // namespace headroom::engine
