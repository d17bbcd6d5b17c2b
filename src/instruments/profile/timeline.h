// Timeline — what ran, and when: slices of time, each attributed to the region (op, or part of one) that launched
// it, and so to module, layer and phase. On a CPU it is made from marks alone, on a GPU from marks and activity records.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "instruments/profile/marks.h"

namespace headroom::profile {

enum class SliceKind : std::uint8_t { host, kernel, copy, fill };
std::string_view name_of(SliceKind);

struct Slice {
  std::string kernel;  // on a CPU: the op, and after a colon its part
  SliceKind kind = SliceKind::host;
  int mark = -1;  // the mark that launched it; −1: none
  int step = 0;
  std::int64_t start_ns = 0, end_ns = 0;  // since the timeline began
  int stream = 0;
  std::int64_t bytes = 0;  // moved by a copy, written by a fill

  std::int64_t ns() const { return end_ns - start_ns; }
};

struct Span {
  std::int64_t start_ns = 0, end_ns = 0;
  std::int64_t ns() const { return end_ns - start_ns; }
};

struct Moment {  // a point of the memory timeline
  std::int64_t at_ns = 0, live_bytes = 0;
  std::int64_t bytes = 0;  // allocated; negative: freed
  std::string name, shape;
  Phase phase = Phase::workspace;
};

struct Timeline {
  std::vector<Mark> marks;
  std::vector<Slice> slices;   // in order of their start
  std::vector<Span> steps;     // one after the other
  std::vector<Moment> memory;  // the last step's, after what was allocated before it
  int repeats = 0;             // how often the whole ran, if it takes several steps; 0: every step is the whole
};

// The regions around a mark.
struct Regions {
  std::string op = "(not an op of ours)", part, module;
  int layer = -1;
  Phase phase = Phase::workspace;
  Work work = Work::other, work_of_op = Work::other;  // the part's, where there is one; and that of the op around it
  Precision precision;
  int cost_of = -1;  // the mark whose cost a slice here has; −1: none

  std::string label() const { return part.empty() ? op : op + ": " + part; }
  std::string place_name() const;  // a readable name: norms, projections, scores, softmax, values, feed-forward, …
};
std::vector<Regions> places_of(const std::vector<Mark>&);          // one for each mark
void add_places(std::vector<Regions>&, const std::vector<Mark>&);  // adds places for marks that have none yet; no op among them may be open

// On a CPU an op is its own kernel. An op with parts is split into them; the remaining time is the op's. For the marks from `first` on.
std::vector<Slice> host_slices(const std::vector<Mark>&, const std::vector<Regions>&, const std::vector<Span>& steps,
                               std::int64_t origin_ns, std::size_t first = 0);

// Tensors live in the ledger before event `first`, each as if allocated at that moment.
std::vector<Moment> standing_before(const Ledger&, std::size_t first, std::int64_t at_ns);

// Events [first, last) of the ledger, each at the moment of the next mark. `when`: how far the ledger was at which moment, in order.
std::vector<Moment> memory_of(const Ledger&, std::size_t first, std::size_t last,
                              const std::vector<std::pair<std::uint32_t, std::int64_t>>& when);

// Time in which nothing ran, within the steps.
struct Gap {
  int after = -1, before = -1;  // slices; −1: the step's edge
  Span span;
};
std::vector<Gap> gaps_of(const Timeline&);

}  // namespace headroom::profile
