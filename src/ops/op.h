// What every op is handed and what every op answers. Ops never allocate (scratch comes from the arena, by name), never
// synchronise, and read no tensor's values on the host. In a dry context they take their scratch, note their cost and return.
#pragma once
#include <string>
#include <vector>

#include "base/device.h"
#include "base/threads.h"
#include "memory/arena.h"
#include "memory/listener.h"

namespace headroom {

struct Support {  // can it serve this problem here, and if not, why not
  bool ok = true;
  std::string why;
  explicit operator bool() const { return ok; }
  static Support no(std::string reason) { return {false, std::move(reason)}; }
};

struct Step {  // one op of a walk
  Name op;
  Phase phase;
  Precision precision;
  Cost cost;
};

struct Walk {  // the ops in the order they ran (or would have run)
  std::vector<Step> steps;
};

struct Context {
  Arena& arena;
  const Device& device;
  Threads* threads = nullptr;    // the CPU's; ops on a GPU leave it alone
  void* stream = nullptr;        // a cudaStream_t; null on the CPU
  Walk* walk = nullptr;          // hears of every op, when somebody listens
  int dry_workers = 1;           // without threads: how many the scratch is counted for
  Listener* listener = nullptr;  // hears when ops, their parts and the modules around them begin and end

  bool dry() const { return arena.dry(); }
  bool on_gpu() const { return device.kind == DeviceKind::cuda; }
  int workers() const { return threads ? threads->count() : dry_workers; }
  template <class Body>
  void share(std::int64_t pieces, Body&& body) const {  // body(piece, worker), by the pool or by the caller alone
    if (threads) return threads->share(pieces, body);
    for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece, 0);
  }
  // Every op says what it is once, and is that until the closing brace: const auto op = ctx.note(…).
  Running note(Name op, Precision precision, Cost cost, Work work = Work::other) const {
    if (walk) walk->steps.push_back({op, arena.phase(), precision, cost});
    return {listener, {Region::Kind::op, op, arena.phase(), precision, cost, work}};
  }
  // A part of an op that one wants to see apart; its cost is what is really done, the op's is by convention.
  Running part(const char* name, Precision precision, Cost cost, Work work) const {
    return {listener, {Region::Kind::part, name, arena.phase(), precision, cost, work}};
  }
  Running inside(Name module) const { return {listener, {Region::Kind::module, module, arena.phase(), {}, {}}}; }
};

}  // namespace headroom
