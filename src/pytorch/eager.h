// The memory of PyTorch's eager operators: each allocates its result, tells autograd what it keeps, and, in its
// backward, allocates and frees temporaries in PyTorch's order (a product's second operand gets its gradient first, for instance).
// The orders come from allocation traces of PyTorch 2.11 (torch.cuda.memory._record_memory_history).
#pragma once
#include <map>
#include <optional>
#include <string>

#include "pytorch/autograd.h"

namespace headroom::pytorch {

// cuBLAS gets one workspace per thread that has run a product: the caller's, and autograd's once a backward has run. They belong
// to the process and outlive every tensor.
class Eager : public Engine {
 public:
  Eager(Allocator& memory, std::uint64_t workspace_bytes) : Engine(memory), workspace_bytes_(workspace_bytes) {}

  void backward(Value root, Value gradient);  // on autograd's thread
  // torch.utils.checkpoint, not reentrant: f runs without a history; backward runs it once more, with one, when it comes to its end. That
  // second run stops at the last tensor that it keeps, so f is told to leave out what comes after.
  enum class Visit : std::uint8_t { first, again };
  using Body = std::function<Value(const Value& x, Visit)>;
  // selected: what every second product and fused attention make is kept, and not made again (torchtitan's policy "op").
  // input_on_host: the input is copied to the host, and back when backward comes to it.
  enum class Keeps : std::uint8_t { input, selected, input_on_host };
  Value checkpointed(const std::string& name, const Value& x, const Body& f, Visit = Visit::first, Keeps = Keeps::input);
  Value unmade(DType t, Shape s) { return {memory().make("left out", t, {0}), t, s, Layout::fresh, nullptr}; }
  // Something that happens when backward passes here: before what is older, and after what is newer.
  Value when_backward(const Value& x, std::function<void()> act);

  Value operand(const std::string& name, const Value& v, DType);  // as autocast hands it to a product: a copy when the type differs

  // Under autocast products run in this type; copies of parameters are cached until autocast ends.
  void autocast(std::optional<DType> to) {
    autocast_ = to;
    if (!to) cast_parameters_.clear();
  }
  void in_block(int layer) { layer_ = layer; }
  void touch_workspace();       // a product runs on this thread
  void touch_bias_workspace();  // one that adds a bias, which cuBLASLt does

  Value matmul(const std::string& name, Value a, Value b);
  Value linear(const std::string& name, const Value& x, const Parameter& weight, Visit = Visit::first);
  // A frozen weight of [out, in] in 4 bits, as bitsandbytes' Linear4bit: it is written out in the compute type around each product.
  Value linear_4bit(const std::string& name, const Value& x, const Value& packed, Shape weight, DType compute, Visit = Visit::first);
  Value biased(const std::string& name, const Value& x, const Parameter& bias);  // a product's result
  Value transposed(const Value& x);                                              // the last two dimensions change places
  Value copied(const std::string& name, const Value& x);                         // the rows put in order; a gradient comes back as a view
  Value cast(const std::string& name, const Value& x, DType, Visit = Visit::first);
  Value heads_apart(const Value& x, Shape apart);  // [b, n, w] → [b, h, n, d], a view; a gradient is copied back in order
  Value heads_joined(const std::string& name, const Value& x, Shape joined);
  Value heads_in_place(const Value& x, Shape joined);                           // the same of what a kernel wrote as [b, n, h, d]: a view
  Value repeated(const std::string& name, const Value& x, std::int64_t times);  // key heads for every query head of the group

  Value add(const std::string& name, const Value& a, const Value& b, Visit = Visit::first);
  Value subtract(const std::string& name, const Value& a, const Value& b);                        // b may be one column
  Value multiply(const std::string& name, const Value& a, const Value& b, Visit = Visit::first);  // b may be one column or one row
  Value divide(const std::string& name, const Value& a, const Value& b);                          // b is one column
  Value scaled(const std::string& name, const Value& x);                                          // by a number
  Value shifted(const std::string& name, const Value& x);  // by a number: the gradient passes as it is
  Value constant_times(const std::string& name, const Value& x, const Value& constant, DType result);  // times what requires no gradient
  Value where(const std::string& name, const Value& mask, const Value& x);
  Value exp(const std::string& name, const Value& x);
  Value sigmoid(const std::string& name, const Value& x);
  Value silu(const std::string& name, const Value& x);
  Value square(const std::string& name, const Value& x);
  Value reciprocal_root(const std::string& name, const Value& x);
  Value rms_norm(const std::string& name, const Value& x, const Parameter& weight);  // F.rms_norm: a kernel of its own
  Value row_maximum(const std::string& name, const Value& x);                        // with indices, which autograd keeps
  Value row_sum(const std::string& name, const Value& x);
  Value row_mean(const std::string& name, const Value& x);
  Value sum(const std::string& name, const Value& x);
  enum class Kept : std::uint8_t { by_autocast, in_its_type };  // a call that names its dtype is left alone by autocast
  Value softmax(const std::string& name, Value x, Kept = Kept::by_autocast);
  Value every_second(const Value& x);  // x[..., 0::2], a view
  Value stacked(const std::string& name, const Value& a, const Value& b);
  Value embedding(const std::string& name, const Parameter& table, Shape tokens, std::int64_t width);
  Value cross_entropy(const std::string& name, const Value& logits);
  // The head and its loss in one, for `parts` equal parts of the rows. eager: torchtune's CEWithChunkedOutputLoss, FP32 log-probabilities are
  // kept; compiled: the same under torch.compile, logits are kept; fused: Liger's fused linear cross-entropy, whose forward makes the gradients.
  enum class Chunks : std::uint8_t { eager, compiled, fused };
  Value chunked_loss(const std::string& name, const Value& h, const Parameter& head, Chunks);
  // scaled_dot_product_attention's kernels; a mask of truths is written out in the type of q, for each sequence.
  Value fused_attention(const std::string& name, Value q, Value k, Value v, const Value& mask = {});

  // What transformers' models have beside a Llama's.
  Value add_to_each(const std::string& name, const Value& rows, const Value& one);  // one sequence to every sequence
  Value layer_norm(const std::string& name, const Value& x, const Parameter& weight, const Parameter& bias);
  Value conv1d(const std::string& name, const Value& x, const Parameter& weight, const Parameter& bias, Visit = Visit::first);  // [in, out]
  Value dropout(const std::string& name, const Value& x);
  std::vector<Value> split(const std::string& name, const Value& x, std::int64_t parts);
  Value for_each_head(const std::string& name, const Value& x,
                      std::int64_t times);  // as repeated, but one key head is only looked at often
  Value cubed(const std::string& name, const Value& x);
  Value gelu(const std::string& name, const Value& x);
  Value written_out_gelu(const std::string& name, const Value& x);

  // Experts.
  Value best(const std::string& name, const Value& x, std::int64_t of_row);             // torch.topk of each row
  Value shares_of_best(const std::string& name, const Value& x);                        // x /= x.sum(-1, keepdim=True), in place
  Value gathered(const std::string& name, const Value& x, Shape to, Value index = {});  // x[index]; no index: one of its own is made
  Value grouped_product(const std::string& name, const Value& x, const Parameter& weights, const Value& ends);  // F.grouped_mm
  Value clamped(const std::string& name, const Value& x, std::int64_t limits);                                  // by one number or two
  Value added_in_place(const std::string& name, const Value& x, const Value& more);
  Value masked(const std::string& name, const Value& x, const Value& mask);  // x + mask, in the wider type
  Value with_sinks(const std::string& name, const Value& x,
                   const Parameter& sinks);  // one more column of scores, the same in every row of a head
  Value without_sinks(const Value& x);       // a view
  Value summed_experts(const std::string& name, const Value& x, Shape to, Visit);  // adds up a token's experts

 private:
  struct ChunkedLoss;
  // The sizes of a product [rows, inner] · [inner, columns], `batch` of them.
  struct Sizes {
    std::int64_t rows, inner, columns, batch = 1;
  };
  // Both gradients of a · b, where g is that of the result.
  Node::Gradients of_operands(const std::string& name, const Value& a, const Value& b, const Value& g, Sizes);
  // A weight in 4 bits written out in the type that computes, with its scales.
  Value written_out(const std::string& name, Shape weight, DType compute);
  // g · other, the gradient of the factor beside `other`; sums make it one row or one column again.
  Value of_factor(const std::string& name, const Value& g, const Value& other);
  Value of_factor_summed(const std::string& name, Value products, DType, Shape);
  Value derived_by_result(const std::string& name, const Value& x);  // an elementwise function whose derivative is one of its result
  Value powered(const std::string& name, const Value& x, const char* lower,
                const char* times_lower);  // autograd's names of xⁿ⁻¹ and n · xⁿ⁻¹
  Value parts_of_sums(std::int64_t rows, std::int64_t columns);
  std::string full(const std::string& name) const { return layer_ < 0 ? name : "block " + std::to_string(layer_) + " " + name; }
  static std::string d_of(const std::string& name) { return "d(" + name + ")"; }
  Value fresh(const std::string& name, DType t, Shape s) { return make(full(name), t, s); }
  Value fresh(const std::string& name, const Value& like) { return fresh(name, like.dtype, like.shape); }
  Value fresh(Visit pass, const std::string& name, DType t, Shape s) { return pass == Visit::again ? unmade(t, s) : fresh(name, t, s); }
  Value as_type(const std::string& name, const Value& v, DType t) {
    return v.dtype == t ? v : by(copy(v.dtype, t), make(name, t, v.shape), v);
  }
  // The gradient of a tensor that was cast, as wide as the tensor.
  Value cast_back(const std::string& name, const Value& g, DType t) { return as_type(d_of(name) + " cast", g, t); }

  std::uint64_t workspace_bytes_;
  std::shared_ptr<Storage> forward_workspace_, backward_workspace_, bias_workspace_;
  bool in_backward_ = false;
  std::optional<DType> autocast_;
  std::map<const Node*, Value> cast_parameters_;
  int layer_ = -1;
  bool again_ = false;  // a checkpoint runs once more: what its ops save goes as backward returns, before autograd casts the gradients

  struct Selected {  // what one checkpoint keeps
    std::vector<Value> kept;
    std::size_t products = 0, next = 0;
    bool again = false;
  };
  // Runs a checkpoint's body once more, with a history.
  Value run_again(const Body& f, const Value& x, std::optional<DType> autocast, const std::shared_ptr<Selected>&);
  Value* kept_before();                               // what the first run kept of this op; null: it is made again
  void keep_selected(const std::vector<Value>& out);  // called in the first run
  std::shared_ptr<Selected> selected_;
};

}  // namespace headroom::pytorch
