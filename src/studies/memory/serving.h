// What is asked of a model that answers: how its weights and its cache are held, and how its prompts are read.
#pragma once
#include <optional>

#include "base/described.h"
#include "engine/forecast/serving.h"

namespace headroom::studies {

enum class CacheAs : std::uint8_t { precision, fp8 };

struct ServingChoices {
  engine::WeightsAs weights = engine::WeightsAs::checkpoint;
  CacheAs cache = CacheAs::precision;
  std::int64_t page = 1, chunk = 0;
  engine::AttentionBy attention_by = engine::AttentionBy::heads;
};
void describe(Of<ServingChoices> auto& s, auto&& f) {
  f(s.weights, {.name = "weights", .about = "Inference: how weights are held [as the checkpoint has them, else in the precision]"});
  f(s.cache, {.name = "cache", .about = "Inference: dtype of the cache of keys and values"});
  f(s.page,
    {.name = "page", .about = "Inference: positions of a page of the cache; a sequence takes whole pages", .allowed = {1, 1 << 16}});
  f(s.chunk, {.name = "chunk", .about = "Inference: tokens of a prompt that prefill reads at once; 0: all", .allowed = {0, 1 << 30}});
  f(s.attention_by,
    {.name = "attention_by",
     .about = "Inference on several GPUs: each attends for some heads of all sequences, or for sequences of its own, with all heads"});
}

}  // namespace headroom::studies

namespace headroom {
template <>
inline constexpr auto names_of<studies::CacheAs> = names<studies::CacheAs>("precision", "fp8");
}
