// Passes — what the passes of any decoder (engine/counted.h) are made of: a layer's two halves over rows = batch · len tokens, run dry.
// A kind of attention says how q, k and v come from the stream, a kind of feed-forward layer what a half is: each is one file here and one
// row of the table in attention.cpp or ffn.cpp.
#pragma once
#include <utility>
#include <vector>

#include "engine/decoder.h"
#include "engine/serving.h"
#include "engine/training.h"

namespace headroom::engine::counted {

using matmul::transposed;

inline Tensor view(DType type, Shape shape) { return Tensor(nullptr, type, shape); }

struct Item {  // a tensor that a half of a layer makes: kept for backward at this level and those that keep more
  const char* name;
  DType type;
  Shape shape;
  Keep last;
};

// What a half finds of what it made before, when it runs: `have` is the level that is kept, `nothing` that nothing is.
struct Half {
  Keep have;
  bool nothing, out;  // out: the half's result is wanted
  bool lacks(Keep last) const { return nothing || have > last; }
};

struct Passes {
  const Decoder& d;
  std::int64_t batch, len;  // lengths of queries
  std::int64_t len_k;       // length of keys: len, or the cache
  Precision precision;
  std::string_view wanted;
  Context& ctx;
  WeightFormat weights_as{};   // while a model answers
  double bytes_of_cached = 0;  // a number in the cache; 0: as the precision's

  std::int64_t rows() const { return batch * len; }
  DType type() const { return precision.dtype; }
  double size() const { return double(size_of(type())); }
  attention::Problem problem(const SelfAttention& a) const { return problem_of(a, batch, len, len_k, precision); }

  Tensor make(const char* name, int layer, DType t, Shape s) { return ctx.arena.make({name, layer}, t, s); }
  void make_items(const std::vector<Item>&, Keep, bool kept, int layer);
  void elementwise(const char* name, int layer, double elements_moved, double flops = 0);

  // Y = X · Wᵀ, its dX, its dW. weights: how many of that shape are read (an expert's product touches several).
  void product(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights = 1, float beta = 0);
  void product_dx(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights = 1, float beta = 0);
  void product_dw(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, DType dw, std::int64_t weights = 1);
  void add_bias(std::int64_t width);
  void bias_gradient(std::int64_t width);

  // Of a latent or of all heads: RMSNorm. Of the stream: what the model has; after a half it adds the stream.
  void norm(const Tensor& y, std::int64_t width, const Tensor& residual = {});
  void norm_backward(std::int64_t width, Gradient into_dx = Gradient::accumulate);
  void stream_norm();
  void stream_norm_backward(Gradient into_dx = Gradient::accumulate);
  void norm_after() { norm(view(type(), {rows(), d.width}), d.width, view(type(), {rows(), d.width})); }

 private:
  void other_weights(int layer, std::int64_t weights, double bytes_of_one);
};

// What stands while weights' gradients are made and updated: as Products do it, for any number of products.
struct WeightGradients {
  Passes& p;
  const Recipe& recipe;
  Tensor numbers;
  std::vector<std::pair<std::int64_t, std::int64_t>> waiting{};  // sides of the weights

  bool none() const { return recipe.purpose == Purpose::training && recipe.holding.gradients == Gradients::none; }
  DType type() const { return recipe.holding.gradients == Gradients::whole ? DType::f32 : p.type(); }
  void add(const char* name, int layer, std::int64_t n, std::int64_t out, std::int64_t in, std::int64_t weights = 1);
  void finish(std::int64_t n);
};

// The two halves of a layer.
std::vector<Item> attention_items(const Passes&, const SelfAttention&);
void attention_forward(Passes&, const SelfAttention&, int layer, Half);
void attention_backward(Passes&, const SelfAttention&, int layer, WeightGradients&);
std::vector<Item> ffn_items(const Passes&, const FeedForward&);
void ffn_forward(Passes&, const FeedForward&, int layer, Half);
void ffn_backward(Passes&, const FeedForward&, int layer, Keep, WeightGradients&);

// How q, k and v are made of the stream, and what goes back to it.
struct AttentionInputs {
  bool (*serves)(const SelfAttention&);
  void (*items)(const Passes&, const SelfAttention&, std::vector<Item>&);
  std::int64_t (*gradient_width)(const SelfAttention&);  // elements of a row of their gradients
  void (*forward)(Passes&, const SelfAttention&, int layer);
  void (*weight_gradients)(Passes&, const SelfAttention&, int layer, WeightGradients&);
  void (*into_stream)(Passes&, const SelfAttention&, int layer);
};
extern const AttentionInputs grouped_inputs, latent_inputs;

// What stands between the norm and the stream in the other half.
struct FeedForwardKind {
  bool (*serves)(const FeedForward&);
  void (*items)(const Passes&, const FeedForward&, std::vector<Item>&);
  void (*forward)(Passes&, const FeedForward&, int layer, Half);
  void (*backward)(Passes&, const FeedForward&, int layer, bool act_kept, WeightGradients&);
};
extern const FeedForwardKind dense_layer, routed_experts;

void activate(Passes&, const FeedForward&, std::int64_t n, std::int64_t width);

// The gradient of the activated numbers, through the product down and the function, of n rows. weights: as Passes::product has them.
struct ActivationNames {
  const char *dact, *down_dx;
};
void activation_gradient(Passes&, const FeedForward&, ActivationNames, int layer, std::int64_t n, std::int64_t width, bool act_kept,
                         std::int64_t weights = 1);

}  // namespace headroom::engine::counted
