// O = softmax(scale · Q Kᵀ + mask) V, exactly, and its gradients.
//
// Q, O, dO, dQ are [batch, len_q, heads, dim]; K, V, dK, dV [batch, len_k, kv_heads, dim]; any strides, the last dimension's is 1.
// LSE and dLSE are FP32 [batch, heads, len_q], contiguous: the natural logarithm of the softmax's sum.
// A row whose keys are all masked gives O = 0, LSE = −∞ and zero gradients.
// Order of calls: saved = variant.make_saved, variant.forward, …, variant.backward with the same saved tensors.
#pragma once
#include <span>
#include <string_view>

#include "base/tensor.h"
#include "ops/attention/mask.h"
#include "ops/op.h"

namespace headroom::attention {

struct Problem {  // what is asked, in words; nothing about how
  std::int64_t batch = 1, heads = 1, kv_heads = 1;
  std::int64_t len_q = 0, len_k = 0, head_dim = 0;
  Mask mask;
  Precision precision;         // of Q, K, V, O and their gradients; sums are FP32 everywhere
  float scale = 0;             // 0: 1/√head_dim
  bool deterministic = false;  // the caller insists on the same bits on every run

  float scale_or_default() const;
  Band band() const { return band_of(mask, len_q, len_k); }
  std::int64_t group() const { return heads / kv_heads; }  // query heads that share a key head
  Shape q_shape() const { return {batch, len_q, heads, head_dim}; }
  Shape k_shape() const { return {batch, len_k, kv_heads, head_dim}; }
  Shape lse_shape() const { return {batch, heads, len_q}; }
};

void check(const Problem&);  // an Error (bad_argument) that says what is allowed

// FLOPs by convention: 4 per visible pair and dimension forward, 2.5 times that backward, whatever a variant recomputes.
double forward_flops(const Problem&);
double backward_flops(const Problem&);

struct Saved {  // what lives between forward and backward beside Q, K, V, O and LSE
  Tensor p;     // plain: softmax's result [batch, heads, len_q, len_k]; flash: nothing
};

struct Forward {
  Tensor q, k, v;
  Tensor o, lse;  // written
  Saved saved;    // written
};

struct Backward {
  Tensor q, k, v, o, lse, d_o;
  Tensor dlse;        // optional
  Tensor dq, dk, dv;  // overwritten
  Saved saved;
};

enum class Pass : std::uint8_t { forward, backward };

// One row per implementation. Dispatch, tests, benchmarks, the sweep and `headroom kernels` walk the same rows.
struct Variant {
  std::string_view name;    // in rows, tests, profiles
  std::string_view family;  // "plain" or "flash": what a user asks for when any of them will do
  std::string_view about;   // one line for `headroom kernels`
  bool deterministic;       // promises the same bits on every run, for any number of threads; on CUDA, of dQ only when the problem asks
  Support (*supports)(const Problem&, const Device&, Pass);
  Saved (*make_saved)(const Problem&, Context&);
  void (*forward)(const Problem&, const Forward&, Context&);
  void (*backward)(const Problem&, const Backward&, Context&);
};

std::span<const Variant> variants();  // best first
const Variant* variant_named(std::string_view name);

// The first row that serves both passes (or the one asked for), or an Error that quotes every refusal. `wanted`: "", a name or a family.
const Variant& choose(const Problem&, const Device&, std::string_view wanted = "");

// The checked doors: shapes, types and strides are verified here; implementations trust.
Saved make_saved(const Variant&, const Problem&, Context&);
void forward(const Variant&, const Problem&, const Forward&, Context&);
void backward(const Variant&, const Problem&, const Backward&, Context&);

// Scratch that a pass takes from the arena, from running it dry; `workers` threads on a CPU.
std::size_t workspace_bytes(const Variant&, const Problem&, const Device&, Pass, int workers);

}  // namespace headroom::attention
