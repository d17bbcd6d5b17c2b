// ParamStore — who owns the weights, their gradients and the optimiser's state. A layer works on what it leases and gives back at
// the brace; whether the whole of it lies here (WholeStore) or a shard does, the model file does not know.
//
// Order of calls: prefetch(group) as early as one knows, lease(group) when the weights are needed. Groups: 0 the embedding,
// 1 … layers the blocks, layers + 1 the final norm and the head.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "engine/params.h"
#include "ops/adamw/adamw.h"
#include "ops/op.h"

namespace headroom::engine {

struct Weight {
  Tensor w;   // in the compute type when it is multiplied, else FP32
  Tensor dw;  // FP32, or as Gradients say; none when the store was made for forward passes only, or where update is set
  const adamw::Update* update = nullptr;  // instead of dw: who makes the gradient updates the weight too, once nothing needs it as it was
  Tensor numbers = {};                    // of that update
};

class ParamStore {
 public:
  virtual ~ParamStore() = default;

  class [[nodiscard]] Lease {
   public:
    Lease(ParamStore& store, int group) : store_(store), group_(group) {}
    ~Lease() { store_.release(group_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Weight operator[](Role role) const { return store_.weight(group_, role); }

   private:
    ParamStore& store_;
    int group_;
  };
  Lease lease(int group) {
    gather(group);
    return {*this, group};
  }
  virtual void prefetch(int group) = 0;
  virtual void update(const adamw::Hyper&, const Tensor& state, Context&) = 0;  // norm, clipping, AdamW; state: ops/adamw
  void update_with(const Tensor& numbers) { numbers_ = numbers; }  // of adamw::begin, while backward updates; none when it is over
  bool updating() const { return bool(numbers_); }

 protected:
  virtual void gather(int group) = 0;
  virtual void release(int group) = 0;
  virtual Weight weight(int group, Role role) const = 0;

  Tensor numbers_;
};

enum class Purpose : std::uint8_t { forward, gradients, training };  // each holds what the one before holds, and more

// How long things stand. Both ways compute the same; the second holds less and gives something up.
enum class Masters : std::uint8_t {
  whole,  // FP32 beside the copy that is multiplied
  halves  // of multiplied weights the copy is one half, and the other lies beside it (ops/copy/split.h); for bf16
};
enum class Updating : std::uint8_t {
  after,  // all gradients stand until the update: their norm can be known
  during  // a gradient stands until backward has its whole group; then the group is updated: no clipping, no loss scaling
};
enum class Gradients : std::uint8_t {
  whole,  // FP32
  half,   // of a block's multiplied weights in the compute type: summed in FP32, rounded once, as PyTorch's autocast does
  none    // of a block's multiplied weights: the product that makes one updates its weight (ops/product_update)
};
struct Holding {  // of a store: what stands, in which type, for how long
  Masters masters = Masters::whole;
  Updating updating = Updating::after;
  Gradients gradients = Gradients::whole;
};
constexpr const char* name_of(Masters m) { return m == Masters::whole ? "whole" : "halves"; }
constexpr const char* name_of(Updating u) { return u == Updating::after ? "after" : "during"; }
constexpr const char* name_of(Gradients g) { return g == Gradients::whole ? "whole" : g == Gradients::half ? "half" : "none"; }
constexpr Gradients gradients_named(std::string_view name) {  // whole, unless it is another's name
  return name == "half" ? Gradients::half : name == "none" ? Gradients::none : Gradients::whole;
}

struct Param {
  ParamSpec spec;
  Tensor master, copy, rest, grad, m, v;  // copy: of multiplied weights when the compute type is not FP32; rest: then instead of master
};

class WholeStore final : public ParamStore {
 public:
  WholeStore(const ModelConfig&, DType compute, Purpose, Holding, Context&);  // makes everything in the arena

  void prefetch(int) override {}
  void initialise(std::uint64_t seed, Context&);  // normal numbers by counter: the same for any number of threads
  void refresh_copies(Context&);                  // after the masters were written from outside
  void update(const adamw::Hyper&, const Tensor& state, Context&) override;  // norm, clipping, AdamW; state: ops/adamw
  void advance(int group, Context&);                                         // while updating: a group's weights whose gradients stand

  const std::vector<Param>& params() const { return params_; }

 private:
  void gather(int) override {}
  void release(int) override {}
  Weight weight(int group, Role role) const override;

  int group_of(const ParamSpec&) const;
  void make_gradients(DType compute, Holding, Context&);

  std::vector<Param> params_;
  std::vector<adamw::Update> updates_;  // in the order of params_
  int layers_;
  bool tied_;
};

}  // namespace headroom::engine
