// memory_model_pytorch — the bytes of a language model's training step in PyTorch eager, row by row, and the largest sizes.
#pragma once
#include "studies/memory/model.h"

namespace headroom::studies {

Outcome memory_model_as_pytorch(const ModelMemory&);  // yes: any of the rows fits

pytorch::LanguageModel language_model_of(const ModelMemory&);  // of its first case; batch, len, precision and keep are each row's

}  // namespace headroom::studies
