// What every op receives, and what it reports. An op never allocates (scratch comes from the arena, by name), never
// synchronises, and reads no tensor's values on the host. In a dry context it takes its scratch, notes its cost and returns.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "base/threads.h"
#include "memory/arena.h"
#include "memory/listener.h"

namespace headroom {

struct Support {  // whether a kernel can serve this problem here, and the reason if not
  bool ok = true;
  std::string why;
  explicit operator bool() const { return ok; }
  static Support no(std::string reason) { return {false, std::move(reason)}; }
};

struct OpCall {  // one op of a walk
  Name op;
  Phase phase;
  Precision precision;
  Cost cost;
  double times = 1;  // how often it runs: equal micro-batches are walked once
  Work work = Work::other;
  Making making = Making::values;
};

// Whether a product makes the gradient of a weight: in tf32 libraries take other kernels for it.
inline bool makes_weights(const OpCall& s) { return std::string_view(s.op.text).ends_with(".dw"); }

struct Walk {  // the ops in the order they ran (or would have run)
  std::vector<OpCall> steps;
};

struct Context {
  Arena& arena;
  const Device& device;
  Threads* threads = nullptr;    // for ops on the CPU
  void* stream = nullptr;        // a cudaStream_t; null on the CPU
  Walk* walk = nullptr;          // records every op, if not null
  int dry_workers = 1;           // without threads: the number that scratch is counted for
  Listener* listener = nullptr;  // called when ops, their parts and modules begin and end

  bool dry() const { return arena.dry(); }
  bool forecasts() const { return walk != nullptr; }  // costs are asked for
  bool on_gpu() const { return device.kind == DeviceKind::cuda; }
  int workers() const { return threads ? threads->count() : dry_workers; }
  template <class Body>
  void share(std::int64_t pieces, Body&& body) const {  // calls body(piece, worker), on the pool or on this thread
    if (threads) return threads->share(pieces, body);
    for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece, 0);
  }
  // Every op calls this once; the result lasts until the op's closing brace: const auto op = ctx.note(…).
  Running note(Name op, Precision precision, Cost cost, Work work = Work::other, Making making = Making::values) const {
    if (walk) walk->steps.push_back({op, arena.phase(), precision, cost, 1, work, making});
    return {listener, {Region::Kind::op, op, arena.phase(), precision, cost, work}};
  }
  // A part of an op that a profile shows. A part's cost is what it computes; an op's cost follows the convention.
  Running part(const char* name, Precision precision, Cost cost, Work work) const {
    return {listener, {Region::Kind::part, name, arena.phase(), precision, cost, work}};
  }
  Running inside(Name module) const { return {listener, {Region::Kind::module, module, arena.phase(), {}, {}}}; }
};

}  // namespace headroom
