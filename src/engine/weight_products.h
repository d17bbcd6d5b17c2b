// WeightProducts — the products that form the gradients of a layer's weights. With gradients in memory each runs at once; without
// (Gradients::none) they run together with their updates, in one op, after the last use of the old weights.
#pragma once
#include <array>
#include <span>

#include "engine/store.h"
#include "ops/gradient.h"
#include "ops/matmul/matmul.h"
#include "ops/product_update/product_update.h"

namespace headroom::engine {

class WeightProducts {
 public:
  WeightProducts(Math math, Gradient into, Context& ctx) : math_(math), into_(into), ctx_(ctx) {}
  void add(Name name, const Tensor& dy, const Tensor& x, const Weight& w) {
    if (!w.update) return matmul::multiply({matmul::transposed(dy), x, w.dw, 1, beta_of(into_), math_}, ctx_, name);
    waiting_.at(count_++) = {dy, x, *w.update};
    numbers_ = w.numbers;
  }
  bool waiting() const { return count_ > 0; }  // what was added must stand, as it is, until finish
  void finish() {
    if (waiting()) product_update::advance(std::span(waiting_).first(count_), numbers_, ctx_);
    count_ = 0;
  }

 private:
  Math math_;
  Gradient into_;
  Context& ctx_;
  std::array<product_update::Item, 2> waiting_;
  std::size_t count_ = 0;
  Tensor numbers_;
};

}  // namespace headroom::engine
