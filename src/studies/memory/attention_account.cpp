// The run behind attention.h: the same calls that a user of the library makes; in an arena with no memory behind it, or on
// the machine.
#include <algorithm>
#include <set>

#include "engine/forecast/forecast.h"
#include "ops/attention/choose_dry.h"
#include "ops/attention/symbols.h"
#include "studies/memory/attention.h"

namespace headroom::studies {

namespace {

using attention::Problem;

Account run(const Problem& p, const attention::Variant& variant, Context& ctx) {
  Arena& arena = ctx.arena;
  Account totals;
  attention::Forward f;
  {
    const auto phase = arena.in_phase(Phase::input);
    f.q = arena.make("q", p.precision.dtype, p.q_shape());
    f.k = arena.make("k", p.precision.dtype, p.k_shape());
    f.v = arena.make("v", p.precision.dtype, p.k_shape());
  }
  const std::size_t inputs = arena.used();
  {
    const auto phase = arena.in_phase(Phase::saved);
    f.o = arena.make("o", p.precision.dtype, p.q_shape());
    f.lse = arena.make("lse", DType::f32, p.lse_shape());
  }
  f.saved = make_saved(variant, p, ctx);
  {
    const auto phase = arena.in_phase(Phase::forward);
    forward(variant, p, f, ctx);
  }
  totals.saved_bytes = arena.used() - inputs;
  totals.before_backward_bytes = arena.used();
  totals.forward_peak_bytes = arena.peak();
  arena.start_peak();
  attention::Backward b{f.q, f.k, f.v, f.o, f.lse, {}, {}, {}, {}, {}, f.saved};
  {
    const auto phase = arena.in_phase(Phase::gradient);
    b.d_o = arena.make("dO", p.precision.dtype, p.q_shape());
    b.dq = arena.make("dQ", p.precision.dtype, p.q_shape());
    b.dk = arena.make("dK", p.precision.dtype, p.k_shape());
    b.dv = arena.make("dV", p.precision.dtype, p.k_shape());
  }
  const auto phase = arena.in_phase(Phase::backward);
  backward(variant, p, b, ctx);
  totals.backward_peak_bytes = arena.peak();
  totals.peak_bytes = std::max(totals.forward_peak_bytes, totals.backward_peak_bytes);
  return totals;
}

struct DryRun {
  Ledger ledger;
  Account totals;

  DryRun(const Problem& p, const attention::Variant& variant, const Device& device, int workers) {
    Arena arena(&ledger);
    Context ctx{.arena = arena, .device = device, .dry_workers = workers};
    totals = run(p, variant, ctx);
  }
};

}  // namespace

std::uint64_t attention_peak_bytes(const Problem& p, const Device& device, std::string_view wanted, int workers) {
  return DryRun(p, attention::choose_dry(p, device, wanted), device, workers).totals.peak_bytes;
}

MeasuredMemory attention_measured(const Problem& p, const Device& device, std::string_view wanted, int threads) {
  const attention::Variant& variant = attention::choose(p, device, wanted);
  Account totals;
  MeasuredMemory m = measure_memory(device, threads, DryRun(p, variant, device, threads).totals.peak_bytes,
                                    [&](Context& ctx, const Place&) { totals = run(p, variant, ctx); });
  m.peak_bytes = totals.peak_bytes;
  return m;
}

Account attention_account(const Problem& p, const Device& device, std::string_view wanted, int workers) {
  const attention::Variant& by = attention::choose_dry(p, device, wanted);
  const auto [sizes, symbols] = probe_of(p);
  DryRun probe(sizes, by, device, workers), dry(p, by, device, workers);
  Account a = dry.totals;
  const auto& entries = dry.ledger.entries();
  const auto& events = dry.ledger.events();
  std::size_t top = 0;
  for (std::size_t e = 0; e < events.size(); ++e) {
    a.timeline.push_back({(events[e].take ? "+ " : "- ") + entries[events[e].entry].name.full(), events[e].live});
    if (events[e].live > events[top].live) top = e;
  }
  a.peak_moment = top;
  std::set<std::uint32_t> standing;
  for (std::size_t e = 0; e <= top && e < events.size(); ++e) {
    if (events[e].take)
      standing.insert(events[e].entry);
    else
      standing.erase(events[e].entry);
  }
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    const Shape& symbolic = i < probe.ledger.entries().size() ? probe.ledger.entries()[i].shape : e.shape;
    Component c{e.name.full(),
                shape_text(e.shape),
                std::string(name_of(e.dtype)),
                e.bytes,
                e.taken,
                formula_of(symbolic, e.shape, size_of(e.dtype), symbols),
                std::string(name_of(e.phase)),
                standing.contains(i),
                0};
    if (c.at_peak && a.peak_bytes) c.share = double(e.taken) / double(a.peak_bytes);
    a.components.push_back(std::move(c));
  }
  return a;
}

OnPaper on_paper(const Problem& p) {
  const std::uint64_t size = size_of(p.precision.dtype), q = std::uint64_t(p.q_shape().count()) * size,
                      k = std::uint64_t(p.k_shape().count()) * size;
  const auto rows = std::uint64_t(p.batch * p.heads * p.len_q);
  return {2 * q + 4 * k, 2 * q, rows * std::uint64_t(p.len_k) * size, rows * 4};
}

}  // namespace headroom::studies
