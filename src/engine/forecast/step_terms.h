// What a step's time is the sum of: so many milliseconds of roofline, or so many kernels, times a field of Efficiency.
#pragma once
#include <array>
#include <cstdint>

#include "base/efficiency.h"
#include "ops/op.h"

namespace headroom::engine::step_terms {

// `near` and `give` say where a field is expected before anything is measured: steps move it as far as they speak of it.
struct Term {
  double Efficiency::*factor;
  double near, give, give_of_cpu = give;  // a card's loss and update were measured alone, at memory's rate
  constexpr double least() const { return near > 0 ? least_factor : 0; }
};
enum Which : std::uint8_t {
  product,
  gradient_product,
  attention_64,
  attention_64_backward,
  attention_128,
  attention_128_backward,
  elementwise,
  loss,
  update,
  forward_op,
  backward_op
};
constexpr std::array<Term, 11> terms{{{&Efficiency::product, 1.1, 0.5},
                                      {&Efficiency::gradient_product, 1.2, 0.5},
                                      {&Efficiency::attention_64, 1.2, 1},
                                      {&Efficiency::attention_64_backward, 1.2, 1},
                                      {&Efficiency::attention_128, 1.2, 1},
                                      {&Efficiency::attention_128_backward, 1.2, 1},
                                      {&Efficiency::elementwise, 1, 1},
                                      {&Efficiency::loss, 1, 0.1, 3},
                                      {&Efficiency::update, 1, 0.005, 0.5},
                                      {&Efficiency::forward_op_ms, 0, 0.02},
                                      {&Efficiency::backward_op_ms, 0, 0.02}}};
using Parts = std::array<double, terms.size()>;  // how much of each term

inline Which of(const OpCall& op, std::int64_t head_dim) {
  const bool backward = op.making == Making::gradients;
  switch (op.work) {
    case Work::attention:
    case Work::attention_parts:
      return head_dim <= 64 ? backward ? attention_64_backward : attention_64 : backward ? attention_128_backward : attention_128;
    case Work::matmul: return backward ? gradient_product : product;
    case Work::update:
    case Work::rounding_update: return update;
    case Work::loss: return loss;
    default: return elementwise;
  }
}

constexpr double begins_ms = 0.008;  // over units: a graph's launch, and what prepares the update

inline double factor_of(const OpCall& op, std::int64_t head_dim, const Efficiency& e) { return e.*terms[of(op, head_dim)].factor; }

inline double launches_of(const OpCall& op, int units) { return units > 0 ? op.cost.on_card.launches : 1; }
inline int units_of(const Device& device) { return device.kind == DeviceKind::cuda ? device.units : 0; }

inline bool timed(const OpCall& op) {  // on Hopper's units: attention of some kinds was not
  return (op.work != Work::attention || op.cost.on_card.units_us > 0) && op.work != Work::attention_parts;
}

}  // namespace headroom::engine::step_terms
