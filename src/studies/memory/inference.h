// memory_inference — where the bytes go when a model answers: weights, the cache of keys and values, the peak of reading a prompt
// (prefill) and of making one more token for each sequence (decode). Any decoder, from the passes run dry.
#pragma once
#include <optional>
#include <vector>

#include "engine/counted.h"
#include "studies/memory/room.h"

namespace headroom {

struct InferenceMemory {
  engine::ModelConfig model;
  std::vector<std::int64_t> batches{1}, lens{1024};
  std::vector<Precision> precisions{{DType::bf16, Math::exact}};
  std::string attention = "flash";
  Device device;
  int workers = 1;
  std::optional<std::uint64_t> memory_bytes;  // empty: all that a program can have of the device
};

struct InferenceBytes {
  std::uint64_t weight_bytes = 0, cache_bytes = 0, prefill_peak_bytes = 0, decode_peak_bytes = 0;
  double prefill_ms_at_least = 0, decode_ms_at_least = 0;  // 0: the device's ceilings are not known
  std::uint64_t peak() const { return prefill_peak_bytes > decode_peak_bytes ? prefill_peak_bytes : decode_peak_bytes; }
};
InferenceBytes inference_bytes(const InferenceMemory&, std::int64_t batch, std::int64_t len, Precision);

Answer memory_inference(const InferenceMemory&);  // fits: any of the rows does

// The largest batch for each length that doubles, up to most_len; fits: `batch` sequences of `len` do, in some precision.
Answer plan_inference(const InferenceMemory&, std::int64_t most_len = 131072);

}  // namespace headroom
