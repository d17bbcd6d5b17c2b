// What torch.compile makes of a block, and of the whole model with its loss, in bytes: the order in which Inductor's code allocates and
// frees, and what the partitioner (min-cut) keeps for backward. Read off allocation traces of PyTorch 2.11 on an H200
// (bench/peers/pytorch_steps.py --trace); fused attention only.
//
// Kept of a block: the inputs of every product, 16-bit copies of the weights where autocast makes them, what attention's backward reads,
// and the residual stream. Elementwise work is fused into what comes next and made again in backward.
#pragma once
#include <array>

#include "pytorch/eager.h"

namespace headroom::pytorch {

enum class Weight : std::uint8_t { norm1, norm2, q, k, v, o, up, gate, down };
constexpr std::size_t weights_of_block = 9;
using BlockParameters = std::array<const Parameter*, weights_of_block>;

class Compiled {
 public:
  struct Sizes {
    std::int64_t batch = 0, len = 0, width = 0, heads = 0, kv_heads = 0, dim = 0, ffn = 0, vocab = 0;
    DType low = DType::f32;        // the products' type
    bool casts = false;            // weights are FP32, and copied to it
    std::int64_t written_out = 0;  // numbers of the largest matrix that is packed, and written out for its product
  };
  Compiled(Eager& torch, const Sizes& sizes) : torch_(torch), s_(sizes) {}

  // A block compiled by itself; checkpointed within, only its input is kept.
  enum class Keeps : std::uint8_t { all, input, input_on_host };
  // Parameters without a node are frozen; adapters are what is trained instead.
  Value block(int layer, const Value& x, const BlockParameters&, std::vector<Value> constants, Keeps,
              std::vector<const Parameter*> adapters = {});

  struct Ends {
    const Parameter *embedding, *norm, *head;
    bool tied = false;
  };
  Value model(const Ends&, const std::vector<BlockParameters>&);  // the loss

 private:
  struct Given;  // compiled_launches.cpp
  enum class What : std::uint8_t { embedding, block, end, end_backward, block_backward, embedding_backward };
  void give(What);  // to the card, where launches are recorded

  enum class Residual : std::uint8_t { branch, stream };  // what is kept of attention's end: its product, or the stream after it
  struct Kept {
    Value x, r1, h1, q, k, v, out, lse, seed, offset, joined, branch, middle, r2, h2, gate, up, act;
    std::array<Value, weights_of_block> copies;
    std::vector<Value> constants;
  };
  struct Work {  // buffers that one block's backward hands to the next
    Value feed_forward, matrix, head_matrix;
    std::vector<Value> rows;
  };
  struct Collected {
    const Parameter* of;
    Value gradient;
  };
  struct WholeModel {  // what the graph of the whole model keeps for its backward
    std::vector<Kept> blocks;
    Value x, root, h, head_copy, logits, maximum, sum;
  };

  Value tensor(const std::string& name, DType t, Shape s);
  Value stream(const std::string& name, DType t) { return tensor(name, t, {s_.batch, s_.len, s_.width}); }
  Value hidden(const std::string& name) { return tensor(name, s_.low, {s_.batch, s_.len, s_.ffn}); }
  Value heads(const std::string& name, DType t, std::int64_t n) { return tensor(name, t, {s_.batch, n, s_.len, s_.dim}); }
  Value per_row(const std::string& name) { return tensor(name, DType::f32, {s_.batch, s_.len, 1}); }
  void copy(Kept&, const BlockParameters&, Weight);
  void attention(Kept&, const BlockParameters&);
  void attention_backward(Kept&);
  Value forward(Kept&, const BlockParameters&, Residual);
  Value forward_in_passing(const Value& x);
  Value backward(Kept&, const BlockParameters&, const Value& incoming, std::vector<Collected>&);
  void backward_in_model(Kept&, const BlockParameters&, Work&, std::vector<Collected>&, bool last, bool first);
  Value head_and_loss(WholeModel&, const Ends&);
  void backward_of_head(WholeModel&, const Ends&, std::vector<Collected>&);
  void backward_of_model(WholeModel&, const Ends&, const std::vector<BlockParameters>&);
  Value gradient(const Parameter& p, std::vector<Collected>&);
  Value written_out() { return s_.written_out ? tensor("weight, written out", s_.low, {s_.written_out}) : Value{}; }
  void hand_over(std::vector<Collected>&);

  Eager& torch_;
  Sizes s_;
  int layer_ = -1;
};

}  // namespace headroom::pytorch
