// Training — one model with everything a step needs, and the step itself. Made in an arena: a wet one trains, a dry one is the
// forecast. Several ranks take a step together: each makes the same calls, with its own micro-batches. Nothing is allocated after the constructor but from the arena, and no value is read by the host during a step.
//
// Order of calls in a step: feed(k, …) every micro-batch, then step(hyper); loss() may be read after that. A step is backward(k) of
// every micro-batch, then update(hyper). forward() alone gives the loss of micro-batch 0 without gradients.
// On a GPU passes() can be recorded (recorded.h); a step is then set_rate() and one launch. loss(), state() and what else reads
// values wait for the card; nothing else does.
#pragma once
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/comm.h"
#include "engine/block.h"
#include "engine/decoder.h"
#include "engine/feed.h"
#include "engine/head.h"
#include "engine/host_keep.h"
#include "engine/recipe.h"
#include "engine/split_tokens.h"
#include "engine/store.h"

namespace headroom::engine {

// What became of the numbers that fp8 quantised since the step began, of one tensor of one layer.
struct QuantisedCount {
  int layer;
  Quantised which;
  std::int64_t numbers, clipped, flushed, nan;
};

class Training {
 public:
  // Makes all that outlives a step. comm: of more than one rank; a dry run makes its own. It outlives the training.
  Training(const Recipe&, Context&, dist::Comm* comm = nullptr);
  ~Training();

  void initialise(std::uint64_t seed);
  // On a GPU: everything a step does, once, so that kernels are loaded and plans made before a step is recorded. Tokens,
  // gradients and losses are meaningless afterwards; weights, moments and state are to the bit what they were. On a CPU: nothing.
  void warm();
  Tensor tokens(int micro = 0) const { return feed_.tokens(micro); }  // of this rank, each below vocab: the writer has checked
  Tensor targets(int micro = 0) const { return feed_.targets(micro); }
  // Whole sequences, [batch · len]: a rank that computes a part of each takes it. Does not wait.
  void feed(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    feed_.take(micro, tokens, targets, split());
  }
  // The same where rows hold documents. Without it each row is one, and everything is predicted.
  void feed(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const FedDocuments& d) {
    feed_.take(micro, tokens, targets, d, split());
  }
  void forward();
  void backward(int micro = 0);
  void update(const adamw::Hyper&);  // not where updates happen during backward: there passes() is the whole
  void set_rate(double lr);
  void passes(const adamw::Hyper&);                     // every backward and the update, at the rate that was set; hyper.lr is not read
  void step(const adamw::Hyper&);                       // set_rate and passes
  void logits_at(std::int64_t row, const Tensor& out);  // after feeding micro-batch 0: logits of one row, FP32 [1, vocab]
  std::vector<double> losses() const;  // each micro-batch's part of that, in the order of all; after forward, each rank's own
  double loss() const;                 // mean over the tokens that the step predicts
  double state(adamw::Field) const;
  Tensor state_tensor() const { return state_; }
  std::vector<QuantisedCount> quantised() const;  // of the last step, or forward pass; nothing in other precisions
  void watch(ProductWatch* watch) {               // of a study on a CPU; null: nobody
    check(products_.watched || !products_.formats.quantised(), Code::bad_argument, "in fp8 a watched step is asked for in its recipe");
    products_.watch = watch;
  }
  ParamStore& store() { return store_; }
  const HostKeep* host_keep() const { return host_keep_.get(); }  // null: no block keeps anything on the host
  int rank() const { return comm_ ? comm_->rank() : 0; }
  dist::Comm* comm() { return comm_; }
  const Recipe& recipe() const { return recipe_; }
  const attention::Variant& variant() const { return *attention_.front().variant; }  // of the first layer
  bool stands_in() const;  // the variant only lends its tensors to a forecast: it does not serve this device
  Context& context() { return ctx_; }

  // Where the first value that is not finite appears, in words: a weight's name, or the block after which it is seen. Runs forward.
  std::string first_not_finite();
  std::string first_gradient_not_finite() const;  // the weight nearest to the loss, which backward reaches first

 private:
  void apply(const adamw::Hyper&);
  void in_parts(const adamw::Hyper&, bool idle);
  void descend(int block, const Tensor& x, const Tensor& d, const Head::Targets&);
  void keep_and_forward(int block, const Tensor& x, const Tensor& y);
  void forward_group(int begin, int end, const Tensor& x, const Tensor& y);
  void backward_group(int begin, int end, const Tensor& x, const Tensor& d);
  Keep keep_of(int block) const { return recipe_.keep_of(block); }
  void make_host_keep(dist::Comm* of_forecast);
  void backward_block(int block, const Tensor& x, const Tensor& d);
  DType stored_type() const { return recipe_.formats().stored.dtype; }
  Tensor stream(Name) const;
  Block block(int) const;
  void begin_counts();
  void forward_blocks(const Tensor& x, const std::function<bool(int)>& after = {});
  void embed(const ParamStore::Lease&, int micro, const Tensor& x);
  void embedding_gradients(int micro, const Tensor& d);
  void make_attention();
  Tensor make_rope_table(const SelfAttention&, Name);
  const TokenSplit* split() const { return attention_.front().split.get(); }

  struct LayerAttention {
    const attention::Variant* variant = nullptr;
    attention::Problem asked{};                    // what its kernel is chosen for
    attention::Problem problem{};                  // of this rank's tokens
    std::shared_ptr<const TokenSplit> split = {};  // none: this rank has all tokens
    Tensor rope_table = {};                        // none: positions are learned
  };

  Recipe recipe_;
  const Decoder decoder_;
  Context& ctx_;
  std::vector<LayerAttention> attention_;  // of each layer
  std::unique_ptr<dist::Comm> owned_comm_;
  dist::Comm* comm_;
  ParamStore store_;
  void gather_losses();
  void add_losses(int micro, double scale);
  int losses_made_ = 0;    // micro-batches
  double loss_share_ = 1;  // what their sum is divided by
  Tensor loss_of(int micro) const;
  Products::With products_;
  Tensor losses_, loss_, state_;
  int micro_ = 0;  // that runs
  Head head_;
  Feed feed_;
  std::vector<BlockSaved> kept_;  // by each block, from its forward to its backward
  std::unique_ptr<HostKeep> host_keep_;
};

}  // namespace headroom::engine
