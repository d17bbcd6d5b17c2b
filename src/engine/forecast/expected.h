// The time of a step that was not run, where steps of such a machine were measured: every op at its roofline times what ops of its kind
// took there, and a time for each op; or, on an H100 and H200, what its kernels take on their units (hopper.h). fit.h has the fit of the factors.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/efficiency.h"
#include "engine/pass/training.h"

namespace headroom::engine {

struct Expected {
  double ms = 0, low_ms = 0, high_ms = 0;
  std::string by;        // what the interval stands on, where it is more than the card's own steps in this precision
  double longer = 1;     // what computes takes so much longer, because the step's power holds the card's clock back
  double begins_ms = 0;  // the step's beginning, beside its ops
  double waits_ms = 0;   // for other ranks and the host
};

// What the ops of a recipe take on a device, and how far that can be trusted.
struct OpTimes {
  Efficiency efficiency;
  Ceilings ceilings;                       // the rooflines'
  int units = 0;                           // a card's multiprocessors: products are tiles over them
  std::optional<Efficiency> over_units{};  // factors over the times of hopper.h, for cards whose every kernel was timed
  double within = 1, wider = 1;            // how far its own steps lay from what others foretold, and what was not measured makes of that
  std::string by;
  bool by_other_precisions = false;  // no steps in this one were measured
};
struct OpTimesOrWhy {
  std::optional<OpTimes> times;
  std::string why;
};
OpTimesOrWhy op_times(const Recipe&, const Device&);
double expected_ms(const OpCall&, const Recipe&, const OpTimes&, double longer = 1);  // longer: as Expected says

// Other ranks and the host: how long their links are busy, and what the step waits for them, where its ops take what OpTimes says.
struct LinkTime {
  double ms = 0, exposed_ms = 0, host_ms = 0, host_exposed_ms = 0;
};

// What a step's time is made of. Its interval follows from that: large products are known to a few percent, kernels that are over as soon as they
// begin are not (docs/performance.md, "Intervals").
enum class Known : std::uint8_t {
  product,
  derived_product,
  attention,
  older_attention,
  loss,
  elementwise,
  update,
  rounding_update,
  quantise,
  begin,
  wait
};
class Composition {
 public:
  void add(const OpCall&, const Recipe&, const OpTimes&, double often);
  void wait(double ms) { (*this)[Known::wait] += ms; }
  void begin(double ms) { (*this)[Known::begin] += ms; }
  double hold_back();  // what computes takes so much longer where the step needs more power than the card may draw
  double ms() const;
  double doubt() const;  // the logarithm of the ratio that a step may lie from its time, either way

 private:
  using ByKind = std::array<double, std::size_t(Known::wait) + 1>;
  double& operator[](Known k) { return ms_[std::size_t(k)]; }
  ByKind ms_{}, computes_ms_{};
  double joules_ = 0;
  bool over_units_ = false;
};

// ms_at_least: of the same step, with every op as fast as it can be (least_ms in forecast.h); no interval begins below it.
Expected expected_time(Composition of_ops, const LinkTime&, const OpTimes&, double ms_at_least);

}  // namespace headroom::engine
