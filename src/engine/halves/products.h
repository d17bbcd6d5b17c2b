// Products — the products of a layer's weights, forward and backward, in the formats of the recipe.
//
// In 16 or 32 bits a product reads its operands as they are. In fp8 it reads 8-bit copies: an activation or a gradient is quantised once,
// as it is and transposed, and both serve until their brace closes; a weight is quantised just before each use and not kept, unless the
// store keeps its copies (WeightCopies::kept).
// With gradients in memory each gradient's product runs at once; without (Gradients::none) it runs together with its update, in one op,
// after the last use of the old weights: then what dw() was given must stand, as it is, until finish().
#pragma once
#include <array>
#include <span>

#include "engine/recipe/formats.h"
#include "engine/store/store.h"
#include "ops/gated_product/gated_product.h"
#include "ops/gradient.h"
#include "ops/product_update/product_update.h"
#include "ops/quantise/quantise.h"

namespace headroom::engine {

// What fp8 quantises in a block, in the order of the forward pass, then backward.
enum class Quantised : std::uint8_t { norm1, qkv, o, out, norm2, gate_up, act, down, d_ffn, d_gate_up, d_attention, d_qkv };
constexpr int quantised_count = 12;
constexpr Quantised quantised_weight(WeightRole role) {
  return role == WeightRole::qkv       ? Quantised::qkv
         : role == WeightRole::out     ? Quantised::out
         : role == WeightRole::gate_up ? Quantised::gate_up
                                       : Quantised::down;
}

enum class Copies : std::uint8_t { as_is, transposed, both };

struct Read {  // a tensor as products read it
  Tensor x;
  Scaled as_is = {}, transposed = {};  // in fp8
};

enum class Multiplied : std::uint8_t { forward, dx, dw };  // a weight's three products

// Sees every product after it ran: of a study. a and b are its operands before they were quantised.
struct ProductSeen {
  Name name;
  Multiplied which;
  Tensor a, b, c;  // [m, k], [k, n], [m, n]; a or b none where only its quantised copy was kept
};
class ProductWatch {
 public:
  virtual ~ProductWatch() = default;
  virtual void product(const ProductSeen&) = 0;
};

class Products {
 public:
  struct With {
    Formats formats{};
    Tensor counts = {};    // int64 [layers, quantised_count, quantise::count_size], to which is added; none in 16 and 32 bits
    bool watched = false;  // a study will see what products read: it is stored, also where it could be quantised as it is made
    ProductWatch* watch = nullptr;
    std::int64_t experts_of_token = 1;  // rows of experts' products that are one token's

    Tensor counts_of(Quantised, int layer) const;
    // Whether what this makes of a tensor of that type is quantised as it is made, and not stored.
    bool as_made(quantise::Of, std::int64_t rows, std::int64_t columns, DType, const Device&) const;
    // Whether SwiGLU runs in the products beside it, as one op: then its product's gradient is not stored. A study sees products by themselves.
    bool gated(const gated_product::Sizes&, const Device&) const;
  };
  Products(const With& with, int layer, const ParamStore::Lease& weights, Context& ctx, Gradient into = Gradient::overwrite)
      : with_(with), layer_(layer), weights_(weights), ctx_(ctx), into_(into) {}

  bool quantised() const { return with_.formats.quantised(); }
  bool watched() const { return with_.watched || with_.watch != nullptr; }  // ops beside each other stay ops of their own
  // In fp8 its copies, made in the caller's scope; kept: where the transposed one goes, made before. from: x, or what it is made from (With::as_made).
  Read read(Quantised, const quantise::Request& from, Copies, const Scaled& kept = {});
  Read read(Quantised which, const Tensor& x, Copies copies, const Scaled& kept = {}) {
    return read(which, quantise::Request{x}, copies, kept);
  }
  // For forward, which may run again for backward: the copy as it is if the product runs, the transposed one if it has a place.
  Read read_missing(Quantised, const quantise::Request& from, bool as_is, const Scaled& transposed);
  static Scaled make_transposed(const Formats&, Quantised, std::int64_t rows, std::int64_t columns, int layer, Context&);

  void forward(Name, const Read& x, WeightRole, const Tensor& y, const Tensor& add = {});            // y = x·Wᵀ (+ add)
  void dx(Name, const Read& dy, WeightRole, const Tensor& dx, Gradient into = Gradient::overwrite);  // dx (+)= dy·W
  void dw(Name, const Read& dy, const Read& x, WeightRole);                                          // dW = dyᵀ·x
  // With::gated: gate_up = x·Wᵀ and act of it; and gate_up's gradient from dy·W, in its place, with act again. No act: not made.
  void gated_forward(Name, const Read& x, WeightRole, const Tensor& gate_up, const Tensor& act);
  void gated_dx(Name, const Read& dy, WeightRole, const Tensor& gate_up, const Tensor& act);
  // Every head by itself, y = x·Wᵀ (forward) or x·W (dx), where x and y are [heads, rows, …] and W those rows of a head's weight. Not in fp8.
  struct RowsOfHead {
    std::int64_t begin, end;
  };
  void each_head(Name, Multiplied, const Tensor& x, WeightRole, RowsOfHead, const Tensor& y);
  bool waiting() const { return count_ > 0; }
  void finish();

 private:
  Scaled weight(WeightRole, Copies);
  void multiply(Name, Multiplied, const matmul::Product&, const Tensor& a, const Tensor& b);

  With with_;
  int layer_;
  const ParamStore::Lease& weights_;
  Context& ctx_;
  Gradient into_;
  std::array<product_update::Item, 6> waiting_;  // a half's products; two run together
  std::size_t count_ = 0;
  Tensor numbers_;
};

}  // namespace headroom::engine

template <>
inline constexpr auto headroom::names_of<headroom::engine::Quantised> = headroom::names<headroom::engine::Quantised>(
    "norm1.y", "attention.qkv.weight", "attention.o", "attention.out.weight", "norm2.y", "ffn.gate_up.weight", "ffn.act", "ffn.down.weight",
    "ffn.d", "ffn.dgate_up", "attention.d", "attention.dqkv");
template <>
inline constexpr auto headroom::names_of<headroom::engine::Multiplied> = headroom::names<headroom::engine::Multiplied>("forward", "dx",
                                                                                                                       "dw");
