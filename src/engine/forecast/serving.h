// Serving — how a model that answers is held: the numbers of its weights.
#pragma once
#include <cstdint>
#include <vector>

#include "base/described.h"
#include "engine/model/decoder.h"
#include "engine/model/params.h"

namespace headroom::engine {

enum class WeightsAs : std::uint8_t {
  checkpoint,  // as the file's quantization_config says, else in the precision
  precision,
  fp8,   // a scale for each 128 × 128
  int8,  // a scale for each row
  int4,  // a scale of 16 bits and a zero of 4 for each 128, as GPTQ and AWQ have it
  nf4,   // 64 numbers share a scale of 8 bits, as bitsandbytes with double quantisation
  mxfp4  // 32 numbers share a scale of 8 bits
};

// What each of several GPUs attends for: some heads of all sequences (tensor parallelism), or all heads of sequences of its own (attention in data
// parallel). Keys that heads do not divide, as latents, are then on one GPU and not on every one.
enum class AttentionBy : std::uint8_t { heads, sequences };

// Which weights are quantised: the matrices of the blocks but for routers, or, as gpt-oss has it, experts' alone. Embedding, head, norms and
// biases stay in the precision.
struct WeightFormat {
  WeightsAs as = WeightsAs::precision;
  bool experts_only = false;

  bool quantises(const ParamSpec&) const;
  bool quantises_product(const std::vector<ParamSpec>& weights, const Name& op) const;  // whether that product's weight is
  double bytes_of(std::int64_t numbers, std::int64_t in, DType type) const;  // bytes of a matrix with rows of `in`, if it quantises
};
// Empty where the file names a way that is not known here.
std::optional<WeightFormat> weight_format(const Decoder&, WeightsAs asked);

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::WeightsAs> = names<engine::WeightsAs>("checkpoint", "precision", "fp8", "int8", "int4", "nf4",
                                                                             "mxfp4");
template <>
inline constexpr auto names_of<engine::AttentionBy> = names<engine::AttentionBy>("heads", "sequences");
}  // namespace headroom
