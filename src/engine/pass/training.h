// Training — one model with everything a step needs, and the step itself. Made in an arena: a wet one trains, a dry one is the
// forecast. Ranks make the same calls, each with its own micro-batches. After the constructor only the arena allocates; a step reads no value on the host.
//
// Order of calls in a step: feed(k, …) every micro-batch, then step(hyper); loss() may be read after that. A step is backward(k) of
// every micro-batch, then update(hyper). forward() alone gives the loss of micro-batch 0 without gradients.
// On a GPU passes() can be recorded (recorded.h); a step is then set_rate() and one launch. Only calls that
// read values, as loss() and state(), wait for the card.
#pragma once
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/comm.h"
#include "engine/data/feed.h"
#include "engine/halves/block.h"
#include "engine/halves/split_tokens.h"
#include "engine/model/decoder.h"
#include "engine/pass/head.h"
#include "engine/pass/host_keep.h"
#include "engine/recipe/recipe.h"
#include "engine/store/store.h"

namespace headroom::engine {

// Counts of one layer's tensor that fp8 quantised in this step: how many numbers, and what happened to them.
struct QuantisedCount {
  int layer;
  Quantised which;
  std::int64_t numbers, clipped, flushed, nan;
};

class Training {
 public:
  // Makes everything that outlives a step. `comm` is needed for more than one rank and must outlive the training; a dry run makes its own.
  Training(const Recipe&, Context&, dist::Comm* comm = nullptr);
  ~Training();

  void initialise(std::uint64_t seed);
  // On a GPU: runs everything in a step once, so that kernels are loaded and plans made before a step is recorded. Afterwards tokens,
  // gradients and losses are meaningless; weights, moments and state have the bits they had. On a CPU: does nothing.
  void warm();
  Tensor tokens(int micro = 0) const { return feed_.tokens(micro); }  // this rank's; each must be below vocab, which the writer checks
  Tensor targets(int micro = 0) const { return feed_.targets(micro); }
  // Takes whole sequences, [batch · len]; a rank that computes a part of each picks its part. Does not wait.
  void feed(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    feed_.take(micro, tokens, targets, split());
  }
  // The same for rows that hold documents. Otherwise each row is one document, and every token is predicted.
  void feed(int micro, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, const FedDocuments& d) {
    feed_.take(micro, tokens, targets, d, split());
  }
  void forward();
  void backward(int micro = 0);
  void update(const Optimizer::Hyper&);  // invalid if updates happen during backward: use passes()
  void set_rate(double lr);
  void passes(const Optimizer::Hyper&);                 // every backward and the update, at the rate of set_rate; ignores hyper.lr
  void step(const Optimizer::Hyper&);                   // set_rate and passes
  void logits_at(std::int64_t row, const Tensor& out);  // after feeding micro-batch 0: logits of one row, FP32 [1, vocab]
  std::vector<double> losses() const;  // each micro-batch's part of loss(), in the order of all ranks'; after forward(), this rank's alone
  double loss() const;                 // mean over the tokens that the step predicts
  double state(Optimizer::Field) const;
  Tensor state_tensor() const { return state_; }
  std::vector<QuantisedCount> quantised() const;  // counts of the last step or forward pass; empty in other precisions
  void watch(ProductWatch* watch) {               // for a study on a CPU; null: none
    check(products_.watched || !products_.formats.quantised(), Code::bad_argument, "in fp8 a watched step is asked for in its recipe");
    products_.watch = watch;
  }
  ParamStore& store() { return store_; }
  const HostKeep* host_keep() const { return host_keep_.get(); }  // null: no block keeps anything on the host
  int rank() const { return comm_ ? comm_->rank() : 0; }
  dist::Comm* comm() { return comm_; }
  const Recipe& recipe() const { return recipe_; }
  const attention::Variant& variant() const { return *attention_.front().variant; }  // the first layer's
  Context& context() { return ctx_; }

  // Names where the first value that is not finite appears: a weight, or the block after which it is seen. Runs forward.
  std::string first_not_finite();
  std::string first_gradient_not_finite() const;  // the weight nearest to the loss, which backward reaches first

 private:
  void apply(const Optimizer::Hyper&);
  void in_parts(const Optimizer::Hyper&, bool idle);
  void descend(int block, const Tensor& x, const Tensor& d, const Head::Targets&);
  void keep_and_forward(int block, const Tensor& x, const Tensor& y);
  void forward_group(int begin, int end, const Tensor& x, const Tensor& y);
  void backward_group(int begin, int end, const Tensor& x, const Tensor& d);
  Keep keep_of(int block) const { return recipe_.keep_of(block); }
  void make_host_keep(dist::Comm* of_forecast);
  void backward_block(int block, const Tensor& x, const Tensor& d);
  DType stored_type() const { return recipe_.formats().stored.dtype; }
  Tensor stream(Name) const;
  DecoderBlock block(int) const;
  void begin_counts();
  void forward_blocks(const Tensor& x, const std::function<bool(int)>& after = {});
  Norm embedding_norm() const;
  void embed(const ParamStore::Lease&, int micro, const Tensor& x);
  void embedding_gradients(int micro, const Tensor& d);
  void make_attention();
  Tensor make_rope_table(const SelfAttention&, Name);
  const TokenSplit* split() const { return attention_.front().split.get(); }

  struct LayerAttention {
    const attention::Variant* variant = nullptr;
    attention::Problem asked{};                    // the problem by which its kernel is chosen
    attention::Problem problem{};                  // the same for this rank's tokens
    std::shared_ptr<const TokenSplit> split = {};  // none: this rank has all tokens
    Tensor rope_table = {};                        // none: positions are learned
  };

  Recipe recipe_;
  Context& ctx_;
  std::vector<LayerAttention> attention_;  // one for each layer
  std::unique_ptr<dist::Comm> owned_comm_;
  dist::Comm* comm_;
  ParamStore store_;
  void gather_losses();
  void add_losses(int micro, double scale);
  int losses_made_ = 0;    // micro-batches
  double loss_share_ = 1;  // divisor of their sum
  Tensor loss_of(int micro) const;
  Products::With products_;
  Tensor losses_, loss_, state_;
  int micro_ = 0;  // the micro-batch that runs
  struct {
    Tensor x;
    NormStats stats;
  } embedded_;  // what a norm of the embedding takes, from forward to backward; else the norm is in place
  Head head_;
  Feed feed_;
  std::vector<BlockSaved> kept_;  // one for each block, from its forward to its backward
  std::unique_ptr<HostKeep> host_keep_;
};

}  // namespace headroom::engine
