#include "engine/halves/block.h"

namespace headroom::engine {

DecoderBlock block_of(const Attending& a, const FeedForward& f) {
  const InBlock at = a;
  InBlock of_experts = at;
  of_experts.products.experts_of_token = f.experts_of_token;
  return {.at = at,
          .attention = {a.shape.latent() ? decltype(AttentionHalf::half)(Half<LatentAttention>{{a}}) : Half<GroupedAttention>{{a}}},
          .ffn = {f.experts > 0 ? decltype(FeedForwardHalf::half)(Half<Experts>{{of_experts, f}}) : Half<Dense>{{at, f}}}};
}

Tensor DecoderBlock::make(const char* name, Context& ctx) const {
  return ctx.arena.make({name, at.layer}, at.stored(), {at.rows, at.decoder.width});
}

namespace {
Tensor norm_of(const BlockSaved& s) {
  return std::visit([](const HalfSaved& half) { return half.n; }, s.attention);
}
}  // namespace

// One norm for both halves: its result is there until both have read it, and its gradient until both have added to it.
Lent DecoderBlock::lent(const BlockSaved& kept, Pass pass, Context& ctx) const {
  if (!at.decoder.one_norm) return {};
  const Tensor n = norm_of(kept);
  return {n ? n : make("norm1.y", ctx), pass == Pass::backward ? make("norm1.dy", ctx) : Tensor()};
}

void DecoderBlock::add_up(Context& ctx) const {
  if (shared_by == 1) return;
  check(ctx.dry(), Code::unsupported, "block: sums of ranks that share it are counted, not made");
  const double bytes = double(at.rows * at.decoder.width) * double(size_of(at.stored()));
  const auto op = ctx.note({"all_reduce", at.layer}, at.products.formats.stored, {0, 0, 2 * bytes * double(shared_by - 1) / shared_by});
}

BlockSaved DecoderBlock::make_kept(Keep keep, Context& ctx) const {
  BlockSaved s;
  s.attention = attention.make_kept(set_of(keep), ctx);
  if (keep != Keep::input) s.h = make("h", ctx);
  s.ffn = ffn.make_kept(keep, ctx);
  return s;
}

void DecoderBlock::forward(const Tensor& x, const ParamStore::Lease& w, const BlockSaved& kept, const Tensor& y, Context& ctx) const {
  auto scope = ctx.arena.scope();
  const Tensor h = kept.h ? kept.h : make("h", ctx);
  const Lent one_norm = lent(kept, Pass::forward, ctx);
  {
    auto half = ctx.arena.scope();
    attention.forward(x, w, attention.complete(kept.attention, Pass::forward, ctx, one_norm), {}, h, ctx);
  }
  add_up(ctx);
  auto half = ctx.arena.scope();
  ffn.forward(h, w, ffn.complete(kept.ffn, Pass::forward, ctx, one_norm), {}, y, ctx);
  add_up(ctx);
}

void DecoderBlock::forward_apart(const Tensor& x, const ParamStore::Lease& w, const FeedForwardHalf& of_all, std::int64_t rows_of_all,
                                 int ranks, Context& ctx) const {
  check(ctx.dry() && !at.decoder.one_norm, Code::unsupported,
        "block: a rank that attends for sequences of its own is counted, and not where one norm serves both halves");
  auto scope = ctx.arena.scope();
  const Tensor h = make("h", ctx);
  {
    auto half = ctx.arena.scope();
    attention.forward(x, w, attention.complete({}, Pass::forward, ctx), {}, h, ctx);
  }
  const Tensor gathered = ctx.arena.make({"h.gathered", at.layer}, at.stored(), {rows_of_all, at.decoder.width});
  const double sent = double(gathered.bytes()) * double(ranks - 1) / ranks;
  { const auto op = ctx.note({"all_gather", at.layer}, at.products.formats.stored, {0, 0, sent}); }
  {
    auto half = ctx.arena.scope();
    of_all.forward(gathered, w, of_all.complete({}, Pass::forward, ctx), {}, gathered, ctx);
  }
  const auto op = ctx.note({"reduce_scatter", at.layer}, at.products.formats.stored, {0, 0, sent});
}

void DecoderBlock::backward(const Tensor& x, const ParamStore::Lease& w, const BlockSaved& kept, const Tensor& d, Gradient into_dw,
                            Context& ctx) const {
  auto scope = ctx.arena.scope();
  Tensor h = kept.h;
  AttentionHalf::Saved again;
  const auto attention_again = [&](const Lent& one_norm, const Tensor& out) {
    again = attention.complete(kept.attention, Pass::backward, ctx, one_norm);
    attention.forward(x, w, again, kept.attention, out, ctx);
  };
  // The feed-forward half goes back first, and needs h, or the norm that both halves read: then the attention half runs forward before it.
  const bool before = !h || (at.decoder.one_norm && !norm_of(kept));
  if (!h) h = make("h", ctx);
  const Lent one_norm = lent(kept, Pass::backward, ctx);
  if (before) attention_again(one_norm, kept.h ? Tensor() : h);
  {
    auto half = ctx.arena.scope();
    const FeedForwardHalf::Saved all = ffn.complete(kept.ffn, Pass::backward, ctx, one_norm);
    ffn.forward(h, w, all, kept.ffn, {}, ctx);
    ffn.backward(h, w, all, d, into_dw, ctx);
  }
  if (!before) attention_again(one_norm, {});
  attention.backward(x, w, again, d, into_dw, ctx);
}

}  // namespace headroom::engine
