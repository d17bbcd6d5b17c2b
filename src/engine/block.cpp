#include "engine/block.h"

namespace headroom::engine {

Tensor Block::make_h(Context& ctx) const {
  const Dense& half = ffn.core;
  return ctx.arena.make({"h", half.layer}, half.stored(), {half.rows, half.decoder.width});
}

BlockSaved Block::make_kept(Keep keep, Context& ctx) const {
  BlockSaved s;
  s.attention = attention.make_kept(set_of(keep), ctx);
  if (keep != Keep::input) s.h = make_h(ctx);
  s.ffn = ffn.make_kept(keep, ctx);
  return s;
}

void Block::forward(const Tensor& x, const ParamStore::Lease& w, const BlockSaved& kept, const Tensor& y, Context& ctx) const {
  auto scope = ctx.arena.scope();
  const Tensor h = kept.h ? kept.h : make_h(ctx);
  {
    auto half = ctx.arena.scope();
    attention.forward(x, w, attention.complete(kept.attention, Pass::forward, ctx), {}, h, ctx);
  }
  auto half = ctx.arena.scope();
  ffn.forward(h, w, ffn.complete(kept.ffn, Pass::forward, ctx), {}, y, ctx);
}

void Block::backward(const Tensor& x, const ParamStore::Lease& w, const BlockSaved& kept, const Tensor& d, Gradient into_dw,
                     Context& ctx) const {
  auto scope = ctx.arena.scope();
  Tensor h = kept.h;
  GroupedAttention::Saved again;
  if (!h) {  // the feed-forward half goes back first and needs h, so the attention half runs forward before it
    h = make_h(ctx);
    again = attention.complete(kept.attention, Pass::backward, ctx);
    attention.forward(x, w, again, kept.attention, h, ctx);
  }
  {
    auto half = ctx.arena.scope();
    const Dense::Saved all = ffn.complete(kept.ffn, Pass::backward, ctx);
    ffn.forward(h, w, all, kept.ffn, {}, ctx);
    ffn.backward(h, w, all, d, into_dw, ctx);
  }
  if (kept.h) {
    again = attention.complete(kept.attention, Pass::backward, ctx);
    attention.forward(x, w, again, kept.attention, {}, ctx);
  }
  attention.backward(x, w, again, d, into_dw, ctx);
}

}  // namespace headroom::engine
