// The end of the model: final norm, logits, loss. The logits of the whole batch never exist at once: chunk by chunk of rows they
// are made, turned into losses and, in place, into their own gradient, and used up.
#pragma once
#include "engine/config.h"
#include "engine/store.h"
#include "ops/gradient.h"

namespace headroom::engine {

struct Head {
  const ModelConfig& config;
  Precision precision;
  std::int64_t rows;
  std::int64_t chunk;  // rows of logits at once

  struct Targets {
    Tensor tokens;                       // int32 [rows]
    Tensor losses;                       // FP32 [rows], written
    const double* loss_scale = nullptr;  // on the device
    double share = 1;                    // of this micro-batch in the step's gradient
  };

  void loss(const Tensor& x, const ParamStore::Lease&, const Targets&, Context&) const;
  // Also the weights' gradients and d, the gradient of x.
  void loss_and_gradient(const Tensor& x, const ParamStore::Lease&, const Targets&, const Tensor& d, Gradient into_dw, Context&) const;
  // Logits of the rows listed, FP32 [count, vocab]: what sampling reads.
  void logits(const Tensor& x, const ParamStore::Lease&, std::int64_t first, const Tensor& out, Context&) const;

 private:
  void run(const Tensor& x, const ParamStore::Lease&, const Targets&, const Tensor* d, Gradient into_dw, Context&) const;
};

// Rows whose FP32 logits take at most about 16 MiB (128 MiB on a GPU) or are 256, the same in every chunk: matmuls stay large, the
// logits small.
std::int64_t chunk_of(const ModelConfig&, const Device&, std::int64_t rows);

}  // namespace headroom::engine
