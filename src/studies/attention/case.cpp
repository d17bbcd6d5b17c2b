#include "studies/attention/case.h"

#include "base/error.h"
#include "base/text.h"

namespace headroom::studies {

namespace {

void call(const std::function<void(const std::function<void()>&)>& how, const std::function<void()>& pass) {
  if (how)
    how(pass);
  else
    pass();
}

attention::Extras make_extras(const attention::Problem& p, std::uint64_t seed, Arena& arena) {
  attention::Extras with{.seed = seed};
  if (p.sink) with.sink = arena.make("sink", DType::f32, {p.heads});
  if (p.alibi) with.alibi = arena.make("alibi", DType::f32, {p.heads});
  if (p.documents != 0) {
    with.cu_q = arena.make("cu_q", DType::i32, {p.batch, p.documents + 1});
    with.cu_k = arena.make("cu_k", DType::i32, {p.batch, p.documents + 1});
  }
  if (p.operands().q.scaled == attention::ScaledBy::head) {
    with.q_scale = arena.make("q_scale", DType::f32, {p.batch, p.heads});
    with.k_scale = arena.make("k_scale", DType::f32, {p.batch, p.kv_heads});
    with.v_scale = arena.make("v_scale", DType::f32, {p.batch, p.kv_heads});
  }
  if (p.page != 0) with.pages = arena.make("pages", DType::i32, {p.batch, p.pages_of_sequence()});
  return with;
}

}  // namespace

AttentionBytes walk_case(const attention::Problem& p, const attention::Variant& v, Passes passes, Context& ctx,
                         const AttentionVisit& visit) {
  Arena& arena = ctx.arena;
  const attention::Operands stored = p.operands();
  AttentionTensors t;
  const auto all = arena.scope();
  {
    const auto phase = arena.in_phase(Phase::input);
    t.fwd.q = arena.make("q", stored.q.dtype, p.q_shape());
    t.fwd.k = arena.make("k", stored.k.dtype, p.k_shape());
    t.fwd.v = arena.make("v", stored.v.dtype, p.v_shape());
    t.fwd.with = make_extras(p, visit.seed, arena);
  }
  if (visit.fill_inputs) visit.fill_inputs(t);
  {
    const auto phase = arena.in_phase(Phase::saved);
    t.fwd.o = arena.make("o", stored.o.dtype, p.o_shape());
    t.fwd.lse = arena.make("lse", DType::f32, p.lse_shape());
  }
  t.fwd.saved = attention::make_saved(v, p, ctx);
  {
    const auto phase = arena.in_phase(Phase::forward);
    call(visit.forward, [&] { attention::forward(v, p, t.fwd, ctx); });
  }
  AttentionBytes bytes;
  for (const Entry& e : arena.ledger()->standing()) bytes.saved += std::int64_t(e.bytes);
  if (passes != Passes::forward) {
    const auto phase = arena.in_phase(Phase::backward);
    t.d_o = arena.make("d_o", stored.o.dtype, p.o_shape());
    t.dq = arena.make("dq", stored.o.dtype, p.q_shape());
    t.dk = arena.make("dk", stored.o.dtype, p.k_shape());
    t.dv = arena.make("dv", stored.o.dtype, p.v_shape());
    if (p.sink) t.dsink = arena.make("dsink", DType::f32, {p.heads});
    if (visit.fill_d_o) visit.fill_d_o(t);
    const auto& f = t.fwd;
    call(visit.backward, [&] {
      attention::backward(v, p, {f.q, f.k, f.v, f.o, f.lse, t.d_o, {}, t.dq, t.dk, t.dv, f.saved, f.with, t.dsink}, ctx);
    });
  }
  if (visit.judge) visit.judge(t);
  bytes.peak = std::int64_t(arena.ledger()->peak_bytes());
  return bytes;
}

AttentionForecast forecast_case(const attention::Problem& p, const attention::Variant& v, Passes passes, const Device& device,
                                int workers) {
  Ledger ledger;
  Arena arena(&ledger);
  Context ctx{.arena = arena, .device = device, .dry_workers = workers};
  const AttentionBytes bytes = walk_case(p, v, passes, ctx);
  return {bytes, ledger.at_peak()};
}

std::string first_misfit(const attention::Problem& p, const attention::Variant& v, Passes passes, const Device& device, int workers,
                         std::uint64_t memory) {
  Ledger ledger;
  Arena arena(nullptr, memory, &ledger);
  Context ctx{.arena = arena, .device = device, .dry_workers = workers};
  try {
    walk_case(p, v, passes, ctx);
    return "";
  } catch (const Error& e) {
    if (e.at.code != Code::out_of_memory) throw;
    return e.what();
  }
}

}  // namespace headroom::studies
