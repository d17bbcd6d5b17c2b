// A block: h = x + attention half, y = h + feed-forward half. y may be x where x is not needed again (a forward pass alone).
#pragma once
#include "engine/attention_layer.h"
#include "engine/ffn.h"

namespace headroom::engine {

struct BlockSaved {
  AttentionSaved attention;
  Tensor h;
  FfnSaved ffn;
};

struct Block {
  AttentionLayer attention;
  Ffn ffn;

  BlockSaved make_kept(Keep, Context&) const;
  void forward(const Tensor& x, const ParamStore::Lease&, const BlockSaved& kept, const Tensor& y, Context&) const;
  void backward(const Tensor& x, const ParamStore::Lease&, const BlockSaved& kept, const Tensor& d, Gradient into_dw, Context&) const;
};

}  // namespace headroom::engine
