// Forecast — the step, run dry: the same Training, the same calls, no memory behind the arena.
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/forecast/expected.h"
#include "memory/ledger.h"

namespace headroom::engine {

// The sums and the bytes of a step.
struct ForecastTotals {
  std::size_t peak_bytes = 0;
  std::size_t standing_bytes = 0;                              // between steps: weights, gradients, optimiser, inputs
  std::array<std::size_t, phase_count> peak_bytes_by_phase{};  // tensors that are live at the peak
  double flops = 0, bytes = 0;                                 // sums over the ops
  double link_bytes = 0;                                       // sent to other ranks
  double link_ms = 0;                                          // time on the link; 0: the link's rate is unknown
  double exposed_ms = 0;                                       // the part that the step waits for; the rest runs beside other work
  std::size_t host_bytes = 0;                                  // pinned host memory that holds what blocks keep
  double host_moved_bytes = 0;                                 // to the host and back
  double host_ms = 0;                                          // time on the host's link; 0: its rate is unknown
  double host_exposed_ms = 0;                                  // the part that the step waits for
  double ms = 0;                                               // a lower bound (least_ms); 0: a ceiling that is needed is unknown
  std::optional<Expected> expected;                            // if efficiencies say something of it
  std::string why_no_ms;                                       // if they do not

  std::size_t bytes_at_peak(Phase p) const { return peak_bytes_by_phase[std::size_t(p)]; }
};

struct Forecast : ForecastTotals {
  std::vector<Entry> at_peak;         // tensors that are live at the peak
  std::vector<Ledger::Event> events;  // takes and gives in order: the timeline
  std::vector<Entry> entries;         // the tensors that events refer to
  Walk walk;                          // every op with its cost
  double model_flops = 0;             // for MFU: without recomputation
};

// Forward alone, forward and backward, or a whole step, as recipe.purpose says. workers: the CPU's threads, which take scratch each.
Forecast forecast(const Recipe&, const Device&, int workers);

// The same numbers without the lists: quicker for deep models, whose equal blocks are not all walked (trace.h).
ForecastTotals forecast_totals(const Recipe&, const Device&, int workers);

// The peak alone, without ledger and walk: searches call it thousands of times.
std::size_t forecast_peak(const Recipe&, const Device&, int workers);

// One line that says which kernels' tensors were counted for a GPU; empty on a CPU, which runs its own kernels.
std::string counted_by(std::span<const Recipe>, const Device&);

// One line that says what a forecast of fp8 assumes; empty if no recipe is in fp8.
std::string in_words_of_fp8(std::span<const Recipe>, const Device&);

// The roofline's time of one op: the longest of its arithmetic, its traffic and what it sends.
double roofline_ms(const OpCall&, Precision of_model, const Ceilings&);

// No call of the op is faster: its roofline, or its expected time where that is less. A ceiling is a measured rate, and an op may exceed it: products,
// while the card has power to spare; small tensors, from the card's cache. Of all op.times calls.
double least_ms(const OpCall&, const Recipe&, const Ceilings&, const std::optional<OpTimes>& expected);

// 6 FLOPs (2 forward alone) for each weight that a token is multiplied with, and attention's forward and backward, causal counted by half.
double model_flops(const Recipe&);

}  // namespace headroom::engine
