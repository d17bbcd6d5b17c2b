// O = softmax(scale · Q Kᵀ + mask) V, exactly, and its gradients.
//
// Q, dQ are [batch, len_q, heads, head_dim]; O, dO [batch, len_q, heads, dim_v]; K, dK [batch, len_k, kv_heads, head_dim]; V, dV
// [batch, len_k, kv_heads, dim_v]; any strides, the last dimension's is 1.
// LSE and dLSE are FP32 [batch, heads, len_q], contiguous: the natural logarithm of the softmax's sum.
// In fp8, Q, K and V are E4M3 with a scale to a head, V is stored as fp8_layout.h says, O is bf16; there is no backward.
// A row whose keys are all masked gives O = 0, LSE = −∞ and zero gradients.
// Order of calls: saved = variant.make_saved, variant.forward, …, variant.backward with the same saved tensors.
//
// What a problem may have beside that:
//   softcap c    a score s becomes c · tanh(s / c)
//   sink         a logit per head joins the softmax's sum (and LSE) and has no value; its gradient is dsink
//   documents    sequences packed one behind another into each row of the batch: document d of row b has queries cu_q[b][d] … cu_q[b][d + 1]
//                and keys cu_k[b][d] … cu_k[b][d + 1], the mask holds inside it, and no row sees another document's. Any may be empty;
//                positions past the last one belong to none. One document whose cu_k ends early is a cache with a length of its own.
//   dropout      a probability is dropped with this chance, the others grow so that the mean stays; LSE does not include it. Which ones: dropout.h
//   alibi        a score falls by a slope of its head times the distance of row and key: alibi.h
//   page         K and V are stored in pages of so many positions, [pages, page, kv_heads, dim]; with.pages[b][j] is the j-th one of sequence b
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "base/divide.h"
#include "base/tensor.h"
#include "ops/attention/fp8/fp8_layout.h"
#include "ops/attention/mask_name.h"
#include "ops/op.h"

namespace headroom::attention {

enum class ScaledBy : std::uint8_t { nothing, head };  // FP32 factors of an 8-bit tensor, [batch, its heads]

struct Operand {  // how a tensor is stored
  DType dtype;
  ScaledBy scaled = ScaledBy::nothing;
};
struct Operands {
  Operand q, k, v, o;  // a gradient is stored as O is
};

struct Problem {  // what is asked, in words; nothing about how
  std::int64_t batch = 1, heads = 1, kv_heads = 1;
  std::int64_t len_q = 0, len_k = 0, head_dim = 0;
  Mask mask;
  Precision precision;                        // storage of Q, K, V, O and their gradients; sums are FP32 everywhere
  std::optional<float> scale = std::nullopt;  // empty: 1/√head_dim
  bool deterministic = false;                 // the caller requires the same bits on every run
  std::int64_t dim_v = 0;                     // dimension of V and O; 0: head_dim
  float softcap = 0;                          // 0: none
  bool sink = false;
  std::int64_t documents = 0;  // in each row of the batch; 0: not packed
  double visible_in_documents =
      0;  // visible pairs for each row of the batch and head, given by the caller, who has the lengths; FLOPs count them
  std::int64_t page = 0, pages = 0;  // positions in a page, and the number of pages; 0: K and V are not paged
  float dropout = 0;                 // the chance of a probability to be dropped, below 1, in steps of 1/32 768
  bool alibi = false;

  float scale_or_default() const;
  std::int64_t value_dim() const { return dim_v ? dim_v : head_dim; }
  Band band() const { return band_of(mask, len_q, len_k); }     // without documents; with them documents.h lists it
  bool asks_by_place() const { return dropout != 0 || alibi; }  // for what depends on where a score is
  double visible() const { return documents ? visible_in_documents : band().visible(); }
  Operands operands() const;
  std::int64_t group() const { return heads / kv_heads; }  // query heads that share a key head
  std::int64_t pages_of_sequence() const { return page ? ceil_div(len_k, page) : 0; }
  Shape q_shape() const { return {batch, len_q, heads, head_dim}; }
  Shape o_shape() const { return {batch, len_q, heads, value_dim()}; }
  Shape k_shape() const { return keys_shape(head_dim); }
  Shape v_shape() const {
    if (size_of(precision.dtype) > 1) return keys_shape(value_dim());
    return {batch, kv_heads, ceil_div(len_k, keys_of_v_block), keys_of_v_block * value_dim()};
  }
  Shape lse_shape() const { return {batch, heads, len_q}; }
  friend bool operator==(const Problem&, const Problem&) = default;

 private:
  Shape keys_shape(std::int64_t dim) const { return page ? Shape{pages, page, kv_heads, dim} : Shape{batch, len_k, kv_heads, dim}; }
};

void check(const Problem&);  // an Error (bad_argument) that says what is allowed

// FLOPs by convention: 4 per visible pair and dimension forward, 2.5 times that backward, whatever a variant recomputes. Where V's dimension
// differs, two products forward and five backward count what each sums over or makes.
double forward_flops(const Problem&);
double backward_flops(const Problem&);
Cost forward_cost(const Problem&);  // FLOPs, and bytes: every tensor once
Cost backward_cost(const Problem&);
Cost capped(const Problem&, Cost, double operations);  // the same, where a capped score takes a kernel as long as so many in FP32

struct Saved {    // kept between forward and backward beside Q, K, V, O and LSE
  Tensor p = {};  // plain: softmax's result [batch, heads, len_q, len_k]; flash: nothing
};

struct Extras {                        // for problems that have them
  Tensor sink = {};                    // FP32 [heads]
  Tensor cu_q = {}, cu_k = {};         // i32 [batch, documents + 1], rising from 0
  Tensor pages = {};                   // i32 [batch, pages of a sequence]
  std::uint64_t seed = 0, offset = 0;  // dropout's; backward needs forward's
  Tensor alibi = {};                   // FP32 [heads], [batch, heads] or [batch, documents, heads]: slopes
  Tensor random = {};                  // i32 [4], optional: the same two, low halves first, read by the device as the pass runs
  Tensor q_scale = {}, k_scale = {}, v_scale = {};  // FP32 [batch, heads or kv_heads], where operands() says so
};

struct Forward {
  Tensor q, k, v;
  Tensor o, lse;  // written
  Saved saved;    // written
  Extras with = {};
};

struct Backward {
  Tensor q, k, v, o, lse, d_o;
  Tensor dlse;        // optional
  Tensor dq, dk, dv;  // overwritten
  Saved saved;
  Extras with = {};
  Tensor dsink = {};  // FP32 [heads], overwritten; optional
  // Optional, where turns_back() says so: rope's table, FP32 [≥ len, head_dim]; row i of q and of k is at position i. dQ and dK are then of q
  // and k as they were before rope::rotate, turned back before they are rounded.
  Tensor turned_by = {};
};

enum class Pass : std::uint8_t { forward, backward };

// One row per implementation. Dispatch, tests, benchmarks, the sweep and `headroom kernels` walk the same rows.
struct Variant {
  std::string_view name;    // in rows, tests, profiles
  std::string_view family;  // "plain" or "flash": a user may name the family when any of its variants will do
  std::string_view about;   // one line for `headroom kernels`
  bool deterministic;       // promises the same bits on every run, for any number of threads; on CUDA, of dQ only when the problem asks
  Support (*supports)(const Problem&, const Device&, Pass);
  Saved (*make_saved)(const Problem&, Context&);
  void (*forward)(const Problem&, const Forward&, Context&);
  void (*backward)(const Problem&, const Backward&, Context&);
  bool (*turns_back)(const Problem&) = nullptr;  // whether a backward that is served takes turned_by; null: none does
};

std::span<const Variant> variants();  // best first
const Variant* variant_named(std::string_view name);

// The first row that serves both passes, or the forward alone, or an Error that quotes every refusal. `wanted`: "", a name or a family.
const Variant& choose(const Problem&, const Device&, std::string_view wanted = "", Pass last = Pass::backward);

bool turns_back(const Variant&, const Problem&);  // whether its backward takes turned_by

// The checked doors: shapes, types and strides are verified here; implementations trust.
Saved make_saved(const Variant&, const Problem&, Context&);
void forward(const Variant&, const Problem&, const Forward&, Context&);
void backward(const Variant&, const Problem&, const Backward&, Context&);

Extras dry_extras(const Problem&);  // tensors of the required shapes without memory, for forecasts

// Scratch that a pass takes from the arena, found by running it dry; `workers`: threads on a CPU.
std::size_t workspace_bytes(const Variant&, const Problem&, const Device&, Pass, int workers);

}  // namespace headroom::attention
