// Efficiencies — how long steps of a machine took, as multiples of rooflines, or of what its units take; expected times are made of them
// (engine/forecast/expected.h). `headroom device --efficiencies` measures a machine's, and its file carries them.
#pragma once
#include <string>
#include <vector>

#include "base/device.h"
#include "base/precision_words.h"

namespace headroom {

// Whether ceilings are what a datasheet says, which no program reaches, and not measured.
inline bool by_datasheet(const Ceilings& c) { return c.source.starts_with("datasheet"); }

constexpr double least_factor = 0.01;  // nothing that was measured is so much faster than its roofline

struct Efficiency {  // for steps in one precision
  Precision precision{};
  // An op's time over its roofline, by kind.
  double product = 1, gradient_product = 1, elementwise = 1, loss = 1, update = 1;
  double attention_64 = 1, attention_64_backward = 1, attention_128 = 1,
         attention_128_backward = 1;             // heads of up to 64 dimensions, and wider
  double forward_op_ms = 0, backward_op_ms = 0;  // added for each kernel of an op
  double link = 0;    // share of the link's busy time that the work beside it loses; 0: no steps of two cards were measured
  double within = 1;  // the largest ratio of a measured step to its expected time, or back
  bool of_kernels =
      true;  // false: of a file from before kernels were counted, when an op began once and the loss was fitted with its long rows
  bool of_units = false;  // over what the units of an H100 or H200 take (engine/forecast/hopper.h), not over rooflines
};
void describe(Of<Efficiency> auto& e, auto&& f) {
  constexpr Reals times{least_factor, 1e4}, added{0, 1e4};
  f(e.precision, {.name = "precision"});
  f(e.product, {.name = "product", .real = times});
  f(e.gradient_product, {.name = "gradient_product", .real = times});
  f(e.attention_64, {.name = "attention_64", .real = times});
  f(e.attention_64_backward, {.name = "attention_64_backward", .real = times});
  f(e.attention_128, {.name = "attention_128", .real = times});
  f(e.attention_128_backward, {.name = "attention_128_backward", .real = times});
  f(e.elementwise, {.name = "elementwise", .real = times});
  f(e.loss, {.name = "loss", .real = times});
  f(e.update, {.name = "update", .real = times});
  f(e.forward_op_ms, {.name = "forward_op_ms", .real = added});
  f(e.backward_op_ms, {.name = "backward_op_ms", .real = added});
  f(e.link, {.name = "link", .real = added});
  f(e.within, {.name = "within", .real = {1, 1e4}});
}

struct Efficiencies {
  std::vector<Efficiency> by_precision;
  Ceilings ceilings;  // the rooflines' ceilings
  std::string source;
};

const Efficiencies& efficiencies_of_others();  // devices.json: of cards that were not measured

}  // namespace headroom
