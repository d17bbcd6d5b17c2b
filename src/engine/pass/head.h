// The end of the model: final norm, logits, loss. The logits are made one chunk of rows at a time, turned into losses and, in place,
// into their own gradient, and used for the gradients of the head's weight and input before the next chunk is made.
#pragma once
#include "base/described.h"
#include "engine/halves/norm.h"
#include "engine/model/decoder.h"
#include "ops/gradient.h"

namespace headroom::engine {

enum class Logits : std::uint8_t {
  whole,  // FP32
  half    // in the precision's type where that has 16 bits: the loss reads them rounded, as PyTorch's autocast does
};

}  // namespace headroom::engine

template <>
inline constexpr auto headroom::names_of<headroom::engine::Logits> = headroom::names<headroom::engine::Logits>("whole", "half");

namespace headroom::engine {

constexpr DType type_of(Logits l, DType compute) { return l == Logits::half ? compute : DType::f32; }

struct Head {
  const Decoder& decoder;
  Precision precision;
  std::int64_t rows;
  std::int64_t chunk = 0;          // rows of logits at once
  DType logits_type = DType::f32;  // dtype of the logits, and of their gradient in the same place unless that is smaller

  struct Targets {
    Tensor tokens;                       // int32 [rows]
    Tensor losses;                       // FP32 [rows], written
    const double* loss_scale = nullptr;  // on the device
    double share = 1;                    // this micro-batch's share of the step's gradient
    int parts = 1;                       // ranks that have a part of its rows each
    const double* predicted = nullptr;   // set if not every row predicts: how many in the step do, on the device; share is 1
  };

  void loss(const Tensor& x, const ParamStore::Lease&, const Targets&, Context&) const;
  // Also the weights' gradients and d, the gradient of x.
  void loss_and_gradient(const Tensor& x, const ParamStore::Lease&, const Targets&, const Tensor& d, Gradient into_dw, Context&) const;
  // Logits of the rows listed, FP32 [count, vocab]: what sampling reads.
  void logits(const Tensor& x, const ParamStore::Lease&, std::int64_t first, const Tensor& out, Context&) const;

 private:
  Norm norm(std::int64_t of) const {
    return {decoder, WeightRole::final_norm, WeightRole::final_norm_bias, "final_norm.rstd", "final_norm.mean", of};
  }
  void run(const Tensor& x, const ParamStore::Lease&, const Targets&, const Tensor* d, Gradient into_dw, Context&) const;
};

// Rows of logits at once, the same number in every chunk. Every chunk reads and writes the whole gradient of the head's weight, so
// wide chunks are faster; their logits stand at the peak. On a GPU they may take a sixteenth of what the blocks keep for backward when
// they keep everything, and at least 256 MiB; on a CPU 16 MiB. Never fewer than 256 rows.
std::int64_t chunk_of(const Decoder&, DType compute, DType logits, const Device&, std::int64_t rows);

}  // namespace headroom::engine
