// memory_inference — where the bytes go when a model answers: weights, the cache of keys and values, the peak of reading a prompt
// (prefill) and of making one more token for each sequence (decode). Any decoder, from the passes run dry; on several GPUs by tensor
// parallelism, the bytes of one.
#pragma once
#include "engine/pass/inference.h"
#include "studies/memory/model.h"

namespace headroom::studies {

struct InferenceBytes {
  std::uint64_t weight_bytes = 0, cache_bytes = 0, prefill_peak_bytes = 0, decode_peak_bytes = 0;
  double prefill_ms_at_least = 0, decode_ms_at_least = 0;  // 0: the device's ceilings are not known
  std::uint64_t peak() const { return prefill_peak_bytes > decode_peak_bytes ? prefill_peak_bytes : decode_peak_bytes; }
};
InferenceBytes inference_bytes(const ModelMemory&, std::int64_t batch, std::int64_t len, Precision);

// An Error where a lever of backward is not as the command has it unasked, or attention is several variants of the caller's.
void check_levers_of_inference(const engine::LeverLists& asked, const engine::LeverLists& unasked);

Outcome memory_inference(const ModelMemory&);  // yes: any of the rows fits

// The largest batch for each length that doubles, up to most_len; yes: `batch` sequences of `len` fit, in some precision.
Outcome plan_inference(const ModelMemory&, std::int64_t most_len = 131072);

}  // namespace headroom::studies
