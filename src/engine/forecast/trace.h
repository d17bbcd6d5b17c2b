// Trace — a dry run as sequences: its ops, its calls to other ranks and the host, its tensors. A forecast's numbers are sums over them.
//
// A deep model repeats itself: blocks in the middle leave the same stretch of each sequence. Three shallow runs, whose depths are a period
// apart, show which stretches a deeper model repeats, so the trace of hundreds of blocks is written down without walking them. It is the
// trace that the deep run leaves, in the same order, and sums over it have the same bits. Only names are missing: those of blocks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dist/dry.h"
#include "engine/recipe/recipe.h"
#include "memory/ledger.h"
#include "ops/op.h"

namespace headroom::engine {

class Training;

// Walks the passes that the recipe's purpose asks for. Of many micro-batches the first, the second and the last are walked: those between
// are like the second. around_second is called before it and after it; without around_second it is left out, as for a peak.
void walk_passes(Training&, const std::function<void(bool begins)>& around_second);

struct Trace {
  struct Stretch {
    std::size_t begin = 0, end = 0;
    friend bool operator==(const Stretch&, const Stretch&) = default;
  };
  struct Moved {  // a tensor is made, or the newest one ends
    bool ends = false;
    std::size_t bytes = 0, taken = 0;
    Phase phase{};
    friend bool operator==(const Moved&, const Moved&) = default;
  };

  std::vector<OpCall> kinds;       // ops that differ in what they cost
  std::vector<std::uint32_t> ops;  // in the order they run: a kind each
  std::vector<dist::Sent> calls;
  std::vector<dist::Joint> joints;
  std::vector<Moved> moved;
  std::size_t standing = 0;           // `moved` before the first pass
  Stretch second_ops, second_calls;   // the micro-batch that stands for those between the second and the last; else empty
  bool on_host = false;               // blocks keep tensors there:
  std::size_t host_bytes = 0;         // their places
  double host_moved_bytes = 0;        // by all copies
  std::shared_ptr<const void> run{};  // owns the lanes that calls and joints name
};

// The trace of a run that walks every block. If not null, `ledger` and `walk` get its tensors and ops with their names.
Trace walked_trace(const Recipe&, const Device&, int workers, Ledger* ledger, Walk* walk);

// The same from shallow models; nothing if the model has too few blocks for that, or does not repeat itself.
std::optional<Trace> repeated_trace(const Recipe&, const Device&, int workers);

}  // namespace headroom::engine
