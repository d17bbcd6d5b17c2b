// Efficiencies — what steps of a machine took, in rooflines: what an expected time is made of (engine/expected.h). Recorded of the H200 in
// devices.json, measured of any other machine by `headroom device --efficiencies`, and carried to another one in a device's file.
#pragma once
#include <string>
#include <vector>

#include "base/device.h"
#include "base/precision_words.h"

namespace headroom {

struct Efficiency {  // of steps in one precision
  Precision precision{};
  // How many times its roofline an op of a kind takes.
  double product = 1, gradient_product = 1, elementwise = 1, loss = 1, update = 1;
  double attention_64 = 1, attention_64_backward = 1, attention_128 = 1,
         attention_128_backward = 1;             // heads of up to 64 dimensions, of more
  double forward_op_ms = 0, backward_op_ms = 0;  // and beside that each op, which may be several launches
  double link = 0;    // of the time that the link of two cards is busy, what the work beside it loses; 0: no steps of two were measured
  double within = 1;  // the largest ratio of a measured step to its expected time, or back
};
void describe(Of<Efficiency> auto& e, auto&& f) {
  constexpr Reals times{0, 1e4};
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
  f(e.forward_op_ms, {.name = "forward_op_ms", .real = times});
  f(e.backward_op_ms, {.name = "backward_op_ms", .real = times});
  f(e.link, {.name = "link", .real = times});
  f(e.within, {.name = "within", .real = {1, 1e4}});
}

struct Efficiencies {
  std::vector<Efficiency> by_precision;
  Ceilings ceilings;  // that their rooflines are made of
  std::string source;
};

}  // namespace headroom
