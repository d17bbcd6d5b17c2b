// Runs a CPU variant on a case's tensors: forward and backward in arenas of exactly the size that a dry run asked for, all poisoned.
#pragma once
#include "memory/block.h"
#include "tests/attention_cases.h"

namespace headroom::attention::cases {

inline const Device cpu;

inline bool serves(const Variant& v, const Problem& p) {
  return v.supports(p, cpu, Pass::forward).ok && v.supports(p, cpu, Pass::backward).ok;
}
inline bool serves_forward(const Variant& v, const Problem& p) { return v.supports(p, cpu, Pass::forward).ok; }

struct Views {  // views of a case's tensors, wherever they lie
  Tensor q, k, v, d_o, dlse, o, lse, dq, dk, dv;
  Extras with = {};
  Tensor dsink = {};
};
inline Views views_of(const Case& c, Tensors& x) {
  return {x.q.view(),  x.k.view(),  x.v.view(),  x.d_o.view(), c.with_dlse ? x.dlse.view() : Tensor(),    x.o.view(), x.lse.view(),
          x.dq.view(), x.dk.view(), x.dv.view(), extras_of(x), c.problem.sink ? x.dsink.view() : Tensor()};
}

inline void run(const Variant& variant, const Case& c, const Views& x, Threads* pool) {
  const Problem& p = c.problem;
  const int workers = pool ? pool->count() : 1;
  Arena dry;
  Context dry_ctx{dry, cpu};
  make_saved(variant, p, dry_ctx);
  Block saved_block(std::max<std::size_t>(dry.peak(), 1));
  std::memset(saved_block.data(), 0xff, dry.peak());
  Arena saved_arena(saved_block.data(), saved_block.bytes());
  Context saving{saved_arena, cpu};
  const Saved saved = make_saved(variant, p, saving);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (!variant.supports(p, cpu, pass).ok) continue;
    const auto bytes = workspace_bytes(variant, p, cpu, pass, workers);
    Block block(bytes + 64);
    std::memset(block.data(), 0xff, block.bytes());
    Ledger ledger;
    Arena arena(block.data(), bytes, &ledger);
    Context ctx{arena, cpu, pool};
    if (pass == Pass::forward)
      forward(variant, p, {x.q, x.k, x.v, x.o, x.lse, saved, x.with}, ctx);
    else
      backward(variant, p, {x.q, x.k, x.v, x.o, x.lse, x.d_o, x.dlse, x.dq, x.dk, x.dv, saved, x.with, x.dsink}, ctx);
    EXPECT_EQ(arena.peak(), bytes) << "the dry run promised other scratch: " << variant.name << " " << in_words(c);
    EXPECT_EQ(ledger.peak_bytes(), bytes);
    EXPECT_EQ(arena.used(), 0u);
    for (std::size_t i = bytes; i < block.bytes(); ++i)
      ASSERT_EQ(static_cast<std::byte*>(block.data())[i], std::byte{0xff})
          << "written past its scratch: " << variant.name << " " << in_words(c);
  }
}
inline void run(const Variant& variant, const Case& c, Tensors& x, Threads* pool) { run(variant, c, views_of(c, x), pool); }

// The oracle's own gradients, with whatever the case asks, against finite differences of its results.
inline void expect_gradients_by_finite_differences(const Case& c) {
  const Problem& p = c.problem;
  Tensors x = tensors_of(c);
  const auto loss = [&] {
    const Reference r = reference(p, x.q.view(), x.k.view(), x.v.view(), {}, {}, extras_of(x));
    double sum = 0;
    const auto d_o = x.d_o.values(), dlse = x.dlse.values();
    for (std::size_t i = 0; i < r.o.size(); ++i) sum += r.o[i] * d_o[i];
    for (std::size_t i = 0; i < r.lse.size(); ++i) sum += r.lse[i] * dlse[i];
    return sum;
  };
  const Reference exact = reference(p, x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), x.dlse.view(), extras_of(x));
  for (auto [input, gradient] : {std::pair{&x.q, &exact.dq}, {&x.k, &exact.dk}, {&x.v, &exact.dv}, {&x.sink, &exact.dsink}})
    for (std::size_t i = 0; i < gradient->size(); ++i) {
      float& at = input->view().as<float>()[i];
      const float kept = at, above = kept + 1e-3f, below = kept - 1e-3f;
      at = above;
      const double high = loss();
      at = below;
      const double low = loss();
      at = kept;
      ASSERT_NEAR((*gradient)[i], (high - low) / (double(above) - double(below)), 3e-5) << i;
    }
}

inline Problem problem_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t len_q, std::int64_t len_k, std::int64_t dim,
                          Mask mask = {}, DType dtype = DType::f32) {
  Problem p;
  p.batch = 2, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = dim, p.mask = mask;
  p.precision.dtype = dtype;
  return p;
}

}  // namespace headroom::attention::cases
