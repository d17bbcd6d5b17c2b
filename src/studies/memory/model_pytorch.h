// memory_model_pytorch — the bytes of a language model's training step in PyTorch eager, row by row, and the largest sizes.
#pragma once
#include "studies/memory/model.h"

namespace headroom::studies {

Outcome memory_model_as_pytorch(const ModelMemory&);  // yes: any of the rows fits

pytorch::LanguageModel language_model_of(const ModelMemory&);  // for its first case; batch, len, precision and keep differ by row

std::string options_of(const pytorch::LanguageModel&);  // the options of `memory model --as pytorch` for it
std::string levers_of(const pytorch::LanguageModel&);   // the same without --batch, --len, --precision and --attention

// How many GPUs hold the step with this batch each, as FSDP2 shards it; memory: of each, empty: all of the device.
std::optional<int> gpus_that_hold(const pytorch::LanguageModel&, const Device&, std::optional<std::uint64_t> memory);

}  // namespace headroom::studies
