// Training — one model with everything a step needs, and the step itself. Made in an arena: a wet one trains, a dry one is the
// forecast. Nothing is allocated after the constructor but from the arena, and no value is read by the host during a step.
//
// Order of calls in a step: for each micro-batch: set tokens() and targets(), then backward(k, of); once: update(hyper). loss() may
// be read after that. forward() alone gives the loss without gradients.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/block.h"
#include "engine/head.h"
#include "engine/ranks.h"
#include "engine/store.h"

namespace headroom::engine {

struct Recipe {
  ModelConfig model;
  std::int64_t batch = 1, len = 128;
  Precision precision;                          // of activations and matmul operands; bf16 and fp16 keep FP32 master weights
  std::vector<Keep> keep = {Keep::everything};  // one for all blocks, or one for each
  std::string attention = "flash";              // a family or a variant
  std::int64_t loss_rows = 0;                   // rows of logits at once; 0: by chunk_of
  Purpose purpose = Purpose::training;
  Ranks ranks{};  // more than one: forecast only, `batch` is of each
};

void check(const Recipe&);

class Training {
 public:
  Training(const Recipe&, Context&);  // makes all that outlives a step

  void initialise(std::uint64_t seed);
  Tensor tokens() const { return tokens_; }  // int32 [batch · len], each below vocab: the writer has checked
  Tensor targets() const { return targets_; }

  void forward();
  void backward(int micro = 0, int of = 1);  // forward and backward of one micro-batch of a step of `of`
  void update(const adamw::Hyper&);
  void logits_at(std::int64_t row, const Tensor& out);  // after setting tokens(): logits of one row, FP32 [1, vocab]

  double loss() const { return *loss_.as<double>(); }  // mean over the step's tokens
  double state(adamw::Field f) const { return state_.as<double>()[f]; }
  Tensor state_tensor() const { return state_; }
  WholeStore& store() { return static_cast<WholeStore&>(store_); }  // of one rank alone
  const Recipe& recipe() const { return recipe_; }
  const attention::Variant& variant() const { return variant_; }
  bool stands_in() const;  // the variant only lends its tensors to a forecast: it does not serve this device
  Context& context() { return ctx_; }

  // Where the first value that is not finite appears, in words: a weight's name, or the block after which it is seen. Runs forward.
  std::string first_not_finite();
  std::string first_gradient_not_finite() const;  // the weight nearest to the loss, which backward reaches first

 private:
  void descend(int block, const Tensor& x, const Tensor& d, const Head::Targets&, Gradient into_dw);
  Tensor stream(Name) const;
  Block block(int) const;
  void forward_blocks(const Tensor& x, const std::function<bool(int)>& after = {});

  Recipe recipe_;
  Context& ctx_;
  const attention::Variant& variant_;
  attention::Problem problem_;
  std::unique_ptr<ParamStore> owned_;
  ParamStore& store_;
  Tensor tokens_, targets_, losses_, loss_, state_, rope_table_;
  Head head_;
};

}  // namespace headroom::engine
