// A block: h = x + attention half, y = h + feed-forward half. y may be x where x is not needed again (a forward pass alone).
#pragma once
#include "engine/halves/dense.h"
#include "engine/halves/grouped_attention.h"

namespace headroom::engine {

struct BlockSaved {
  GroupedAttention::Saved attention;
  Tensor h;
  Dense::Saved ffn;
};

struct Block {
  Half<GroupedAttention> attention;
  Half<Dense> ffn;

  BlockSaved make_kept(Keep, Context&) const;
  void forward(const Tensor& x, const ParamStore::Lease&, const BlockSaved& kept, const Tensor& y, Context&) const;
  void backward(const Tensor& x, const ParamStore::Lease&, const BlockSaved& kept, const Tensor& d, Gradient into_dw, Context&) const;

 private:
  Tensor make_h(Context&) const;
};

}  // namespace headroom::engine
