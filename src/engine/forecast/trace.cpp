#include "engine/forecast/trace.h"

#include <functional>
#include <optional>

#include "base/interrupt.h"
#include "engine/forecast/op_kinds.h"
#include "engine/pass/training.h"

namespace headroom::engine {

void walk_passes(Training& t, const std::function<void(bool begins)>& around_second) {
  const Recipe& recipe = t.recipe();
  const int micros = recipe.micro_batches;
  if (recipe.purpose == Purpose::forward) return t.forward();
  if (recipe.purpose == Purpose::training && !recipe.knows_norm()) return t.passes(recipe.hyper());
  t.backward();
  if (around_second && micros > 2) {
    around_second(true);
    t.backward(1);
    around_second(false);
  }
  if (micros > 1) t.backward(micros - 1);
  if (recipe.purpose == Purpose::training) t.update(recipe.hyper());
}

namespace {

struct TracedRun {  // a dry run with everything that its trace points to
  Ledger ledger;
  Walk walk;
  Arena arena{&ledger};
  Context ctx;
  dist::DryComm comm;
  std::optional<Training> step;

  TracedRun(const Recipe& r, const Device& device, int workers)
      : ctx{arena, device}, comm(0, r.ranks.count, device.ceilings.link_bytes_per_s, [this] { return walk.steps.size(); }) {
    ctx.dry_workers = workers;
    ctx.walk = &walk;
    step.emplace(r, ctx, &comm);
  }
};

}  // namespace

Trace walked_trace(const Recipe& recipe, const Device& device, int workers, Ledger* ledger, Walk* walk) {
  stop_if_interrupted();                  // a model of thousands of layers takes a second, and commands ask for dozens
  thread_local std::size_t most_ops = 0;  // the last run's count: runs are much alike
  const auto run = std::make_shared<TracedRun>(recipe, device, workers);
  run->walk.steps.reserve(most_ops);
  Trace t;
  t.standing = run->ledger.events().size();
  walk_passes(*run->step, [&](bool begins) {
    (begins ? t.second_ops.begin : t.second_ops.end) = run->walk.steps.size();
    (begins ? t.second_calls.begin : t.second_calls.end) = run->comm.log().size();
  });
  if (const HostKeep* host = run->step->host_keep())
    t.on_host = true, t.host_bytes = host->host_bytes(), t.host_moved_bytes = host->moved_bytes();
  most_ops = run->walk.steps.size();
  Kinds kinds(t.kinds);
  t.ops.reserve(most_ops);
  for (const OpCall& s : run->walk.steps) t.ops.push_back(kinds.of(s));
  t.moved.reserve(run->ledger.events().size());
  for (const Ledger::Event& e : run->ledger.events()) {
    const Entry& entry = run->ledger.entries()[e.entry];
    t.moved.push_back(e.take ? Trace::Moved{false, entry.bytes, entry.taken, entry.phase} : Trace::Moved{.ends = true});
  }
  t.calls = run->comm.log();
  t.joints = run->comm.joints();
  if (ledger) *ledger = std::move(run->ledger);
  if (walk) *walk = std::move(run->walk);
  t.run = run;
  return t;
}

}  // namespace headroom::engine
