// A block: h = x + attention half, y = h + feed-forward half. y may be x where x is not needed again (a forward pass alone).
#pragma once
#include <variant>

#include "engine/halves/dense.h"
#include "engine/halves/experts.h"
#include "engine/halves/grouped_attention.h"
#include "engine/halves/latent_attention.h"

namespace headroom::engine {

// A half around one of several cores. What it keeps is the core's, a value as well.
template <class... Cores>
struct HalfOf {
  using Saved = std::variant<typename Half<Cores>::Saved...>;
  std::variant<Half<Cores>...> half;

  Saved make_kept(Keep keep, Context& ctx) const {
    return std::visit([&](const auto& h) -> Saved { return h.make_kept(keep, ctx); }, half);
  }
  Saved complete(const Saved& kept, Pass pass, Context& ctx, const Lent& lent = {}) const {
    return std::visit([&](const auto& h) -> Saved { return h.complete(of(h, kept), pass, ctx, lent); }, half);
  }
  void forward(const Tensor& x, const ParamStore::Lease& w, const Saved& all, const Saved& have, const Tensor& out, Context& ctx) const {
    std::visit([&](const auto& h) { h.forward(x, w, of(h, all), of(h, have), out, ctx); }, half);
  }
  void backward(const Tensor& x, const ParamStore::Lease& w, const Saved& all, const Tensor& d, Gradient into_dw, Context& ctx) const {
    std::visit([&](const auto& h) { h.backward(x, w, of(h, all), d, into_dw, ctx); }, half);
  }

 private:
  template <class H>
  static const typename H::Saved& of(const H&, const Saved& s) {  // {}: nothing is kept
    static const typename H::Saved nothing{};
    const auto* its = std::get_if<typename H::Saved>(&s);
    return its ? *its : nothing;
  }
};
using AttentionHalf = HalfOf<GroupedAttention, LatentAttention>;
using FeedForwardHalf = HalfOf<Dense, Experts>;

struct BlockSaved {
  AttentionHalf::Saved attention;
  Tensor h;
  FeedForwardHalf::Saved ffn;
};

struct DecoderBlock {
  InBlock at;
  AttentionHalf attention;
  FeedForwardHalf ffn;
  int shared_by = 1;  // ranks that make a part of each half, and add those up; dry

  BlockSaved make_kept(Keep, Context&) const;
  void forward(const Tensor& x, const ParamStore::Lease&, const BlockSaved& kept, const Tensor& y, Context&) const;
  void backward(const Tensor& x, const ParamStore::Lease&, const BlockSaved& kept, const Tensor& d, Gradient into_dw, Context&) const;
  // Attention for rows of its own; the feed-forward half, a part of it, for the rows of so many ranks, gathered before it and added up after it. Dry.
  void forward_apart(const Tensor& x, const ParamStore::Lease&, const FeedForwardHalf& of_all, std::int64_t rows_of_all, int ranks,
                     Context&) const;

 private:
  Tensor make(const char* name, Context&) const;
  Lent lent(const BlockSaved& kept, Pass, Context&) const;
  void add_up(Context&) const;
};

DecoderBlock block_of(const Attending&, const FeedForward&);

}  // namespace headroom::engine
