// One attention problem from empty memory to gradients: the same calls run dry (a forecast) and wet (a measurement), so that what
// is promised and what happens cannot differ.
#pragma once
#include <functional>
#include <string>

#include "base/described.h"
#include "base/threads.h"
#include "memory/ledger.h"
#include "ops/attention/attention.h"

namespace headroom::studies {

enum class Passes : std::uint8_t { forward, backward, both };  // the passes that are measured; backward needs a forward before it

struct AttentionTensors {
  attention::Forward fwd;
  Tensor d_o, dq, dk, dv, dsink;  // without shape until forward is done
};

struct AttentionVisit {  // hooks of a wet walk; empty in a dry one
  std::function<void(const AttentionTensors&)> fill_inputs, fill_d_o;
  std::function<void(const std::function<void()>&)> forward, backward;  // may run the call several times
  std::function<void(const AttentionTensors&)> judge;
  std::uint64_t seed = 0;  // dropout's
};

struct AttentionBytes {
  std::int64_t saved = 0;  // bytes kept for backward: Q, K, V, O, LSE and the variant's own
  std::int64_t peak = 0;   // the ledger's, with the arena's rounding
};

// Walks the case in the context's arena; its ledger must be attached.
AttentionBytes walk_case(const attention::Problem&, const attention::Variant&, Passes, Context&, const AttentionVisit& = {});

struct AttentionForecast {
  AttentionBytes bytes;
  std::vector<Entry> at_peak;  // tensors that are live at the peak
};
AttentionForecast forecast_case(const attention::Problem&, const attention::Variant&, Passes, const Device&, int workers);

// "" if it fits; else a sentence with the first tensor that could not be allocated.
std::string first_misfit(const attention::Problem&, const attention::Variant&, Passes, const Device&, int workers, std::uint64_t memory);

}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::Passes> = names<studies::Passes>("forward", "backward", "both");
}
