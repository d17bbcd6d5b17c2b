// Optimizer — which tensors an optimizer keeps beside a weight, and what it does to weights once their gradients are known. A store
// (engine/store/store.h) makes these tensors, whole or a rank's part of each, and hands them back in that order; it does not know what they are.
//
// AdamW: it takes its part of a weight by itself, so ranks may own any elements from a multiple of `grain` on (params.h). With clipping or
// loss scaling it needs the norm of all gradients first, and no weight changes before.
#pragma once
#include <span>
#include <vector>

#include "base/described.h"
#include "base/divide.h"
#include "engine/model/params.h"
#include "ops/adamw/adamw.h"
#include "ops/product_update/product_update.h"

namespace headroom::engine {

enum class Moments : std::uint8_t {  // for matrices and tables of rows; moments of vectors are always whole
  whole,                             // FP32
  half,                              // bf16
  eight                              // 8 bits, with an FP32 scale for every 256
};

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Moments> = names<engine::Moments>("whole", "half", "8bit");
}

namespace headroom::engine {

constexpr std::string_view name_of(Moments m) { return names_of<Moments>.of(m); }

struct StateTensor {
  const char* suffix;  // added to the weight's name, in files
  DType type;
  std::int64_t per = 1;  // elements of the weight that share a number
  Shape shape_for(const Shape& weight) const { return per == 1 ? weight : Shape{ceil_div(weight.count(), per)}; }
  friend bool operator==(const StateTensor&, const StateTensor&) = default;
};

// A weight, or a run of its elements from `first` on, and what an optimizer keeps for it. Tensors are contiguous.
struct Updated {
  Tensor grad;                // the gradient, or the first of its parts
  Tensor master, copy, rest;  // in the store's formats
  std::vector<Tensor> state;
  bool decay = true;
  std::uint32_t parameter = 0;  // the weight's number
  std::int64_t first = 0;
  int parts = 1;
  std::int64_t apart = 0;              // elements from one part to the next
  Scaled as_is = {}, transposed = {};  // 8-bit copies, where they are kept
  Tensor counts = {};                  // what the copies counted (Store)
};

class Optimizer {
 public:
  using Update = adamw::Update;
  using Hyper = adamw::Hyper;
  using Field = adamw::Field;
  using enum adamw::Field;
  explicit Optimizer(Moments moments = Moments::whole) : moments_(moments) {}

  static constexpr const char* scalars_name = "adamw.state";  // in files too
  // Its scalars: the count of updates, rate, loss scale, seed of rounding. One tensor of a training, of which a store knows nothing.
  static Tensor make_scalars(Context& ctx) { return ctx.arena.make(scalars_name, DType::f64, {adamw::state_size}); }

  static void start(const Tensor& scalars, double loss_scale_at_first, Context& ctx) { adamw::start(scalars, loss_scale_at_first, ctx); }
  static void set_rate(const Tensor& scalars, double lr, Context& ctx) { adamw::set_rate(scalars, lr, ctx); }
  static void set_seed(const Tensor& scalars, std::uint64_t s, Context& ctx) { adamw::set_seed(scalars, s, ctx); }

  static constexpr std::size_t most_states = 4;
  // At most so many; equal for all weights of a segment.
  std::vector<StateTensor> states(const ParamSpec& spec) const {
    const bool large = spec.multiplied || spec.looked_up;
    if (!large || moments_ == Moments::whole) return {{".m", DType::f32}, {".v", DType::f32}};
    if (moments_ == Moments::half) return {{".m", DType::bf16}, {".v", DType::bf16}};
    constexpr std::int64_t per = adamw::moments_block;
    static_assert(grain % per == 0, "a rank's part is whole blocks");
    return {{".m", DType::u8}, {".v", DType::u8}, {".m_scale", DType::f32, per}, {".v_scale", DType::f32, per}};
  }
  // As the ops take it (ops/adamw, ops/product_update).
  Update update(const Updated& u) const {
    return {.grad = u.grad,
            .master = u.master,
            .m = u.state.at(0),
            .v = u.state.at(1),
            .copy = u.copy,
            .decay = u.decay,
            .rest = u.rest,
            .parts = u.parts,
            .apart = u.apart,
            .m_scale = u.state.size() > 2 ? u.state[2] : Tensor(),
            .v_scale = u.state.size() > 2 ? u.state[3] : Tensor(),
            .parameter = u.parameter,
            .first = u.first,
            .as_is = u.as_is,
            .transposed = u.transposed,
            .counts = u.counts};
  }

  // An update of weights whose gradients are known: the numbers of it, with the norm that all ranks' sums of squares give or without any,
  // then any of the weights in any order. Numbers and sums are made in the caller's scope.
  static Tensor make_sums(int ranks, Context& ctx) { return adamw::make_sums(ranks, ctx); }
  static void squares(std::span<const Update> all, const Tensor& sums, int rank, Context& ctx) { adamw::squares(all, sums, rank, ctx); }
  static Tensor begin(const Tensor& scalars, const Hyper& h, Context& ctx, const Tensor& sums = {}) {
    return adamw::begin(scalars, h, ctx, sums);
  }
  // … for weights that the products of their gradients update (ops/product_update), and any others.
  static Tensor begin_in_products(const Tensor& scalars, const Hyper& h, Context& ctx) { return product_update::begin(scalars, h, ctx); }
  static void advance(std::span<const Update> all, const Tensor& numbers, Context& ctx) { adamw::advance(all, numbers, ctx); }

 private:
  Moments moments_;
};

}  // namespace headroom::engine
