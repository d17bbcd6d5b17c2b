// Forecast — the step, run dry: the same Training, the same calls, no memory behind the arena.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/expected.h"
#include "memory/ledger.h"

namespace headroom::engine {

struct Forecast {
  std::size_t peak_bytes = 0;
  std::size_t standing_bytes = 0;     // between steps: weights, gradients, optimiser, inputs
  std::vector<Entry> at_peak;         // who stands at the peak
  std::vector<Ledger::Event> events;  // takes and gives in order: the timeline
  std::vector<Entry> entries;         // what events point to
  Walk walk;                          // every op with its cost
  double flops = 0, bytes = 0;        // of the walk
  double link_bytes = 0;              // sent to other ranks
  double link_ms = 0;                 // that takes; 0 where the link is not known
  double exposed_ms = 0;              // of it, what the step waits for: the rest runs beside other work
  std::size_t host_bytes = 0;         // of pinned host memory, where what blocks keep waits
  double host_moved_bytes = 0;        // there and back
  double host_ms = 0;                 // that takes; 0 where the host's link is not known
  double host_exposed_ms = 0;         // of it, what the step waits for
  double model_flops = 0;             // what MFU is counted by: no recomputation
  double ms = 0;                      // by roofline; 0 when a ceiling that is needed is not known
  std::optional<Expected> expected;   // where steps of such a card are on record

  std::size_t bytes_at_peak(Phase) const;
};

// Forward alone, forward and backward, or a whole step, as recipe.purpose says. workers: threads that take scratch on a CPU.
Forecast forecast(const Recipe&, const Device&, int workers);

// Only the peak, without ledger and walk: what searches ask thousands of times.
std::size_t forecast_peak(const Recipe&, const Device&, int workers);

// Where no kernel of this build serves a GPU, the CPU's tensors stand in for its kernels' (counted_by says so). This is how much more
// than counted those may take at most; 0 where the tensors are the kernels' own.
std::size_t stand_in_bytes(const Recipe&, const Device&);
std::size_t stand_in_bytes(const attention::Problem&, std::string_view variant);  // where the CPU's does stand in

// Whose kernels' tensors were counted for a GPU, in one line; nothing on a CPU, whose kernels are the ones that run.
std::string counted_by(std::span<const Recipe>, const Device&);

// What a forecast of fp8 stands for, in one line; nothing where none of them is in fp8.
std::string in_words_of_fp8(std::span<const Recipe>, const Device&);

// The roofline's time of one op: the longest of its arithmetic, its traffic and what it sends.
double roofline_ms(const OpCall&, Precision of_model, const Ceilings&);

// 6 FLOPs for each weight that is multiplied and each token, and attention's forward and backward, causal counted by half.
double model_flops(const Recipe&);

}  // namespace headroom::engine
