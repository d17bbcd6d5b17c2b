// A norm of the residual stream, or of a half's result: RMSNorm, or LayerNorm with a bias, whichever the model has.
//
// Order of calls: stats = complete(kept); forward; in backward the same stats. What is kept is the caller's choice.
// In fp8 an RMSNorm's result is quantised as it is made and never stored (as_made): then measure() stands in for forward, and products read made().
#pragma once
#include "engine/halves/products.h"
#include "engine/model/decoder.h"
#include "ops/layernorm/layernorm.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace headroom::engine {

struct NormStats {  // FP32 [rows]
  Tensor rstd, mean;
  explicit operator bool() const { return bool(rstd); }
};

struct Norm {
  const Decoder& decoder;
  WeightRole weight, bias;  // bias: of LayerNorm
  Name rstd_name, mean_name;
  std::int64_t rows;

  NormStats make(Context& ctx) const {
    NormStats s;
    s.rstd = ctx.arena.make(rstd_name, DType::f32, {rows});
    if (decoder.layer_norm) s.mean = ctx.arena.make(mean_name, DType::f32, {rows});
    return s;
  }
  void forward(const Tensor& x, const ParamStore::Lease& w, const Tensor& y, const NormStats& s, Context& ctx,
               const Tensor& residual = {}) const {
    const auto eps = float(decoder.norm_eps);
    if (decoder.layer_norm)
      return layernorm::forward({x, w[weight].w, decoder.norm_bias ? w[bias].w : Tensor(), y, s.mean, s.rstd, eps}, ctx);
    rmsnorm::forward({x, w[weight].w, y, s.rstd, eps, residual}, ctx);
  }
  bool as_made(const Products::With& with, const Device& device) const {
    return !decoder.layer_norm && with.as_made(quantise::Of::rmsnorm, rows, decoder.width, with.formats.stored.dtype, device);
  }
  void measure(const Tensor& x, const ParamStore::Lease& w, const NormStats& s, Context& ctx) const {
    rmsnorm::forward({.x = x, .weight = w[weight].w, .y = {}, .rstd = s.rstd, .eps = float(decoder.norm_eps)}, ctx);
  }
  quantise::Request made(const Tensor& x, const ParamStore::Lease& w, const NormStats& s) const {
    return {.x = x, .of = quantise::Of::rmsnorm, .weight = w[weight].w, .rstd = s.rstd};
  }
  void backward(const Tensor& x, const ParamStore::Lease& w, const NormStats& s, const Tensor& dy, const Tensor& dx, Gradient into_dx,
                Gradient into_dw, Context& ctx) const {
    const Weight scale = w[weight];
    if (!decoder.layer_norm) return rmsnorm::backward({x, scale.w, s.rstd, dy, dx, scale.dw, into_dx, into_dw}, ctx);
    const Tensor dbias = decoder.norm_bias ? w[bias].dw : Tensor();
    layernorm::backward({x, scale.w, s.mean, s.rstd, dy, dx, scale.dw, dbias, into_dx, into_dw}, ctx);
  }
};

}  // namespace headroom::engine
