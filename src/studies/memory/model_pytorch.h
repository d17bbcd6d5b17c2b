// memory_model_pytorch — the bytes of a language model's training step in PyTorch eager, row by row, and the largest sizes.
#pragma once
#include "studies/memory/model.h"
#include "studies/memory/pytorch_peak.h"

namespace headroom::studies {

Outcome memory_model_as_pytorch(const ModelMemory&);  // yes: any of the rows fits

pytorch::LanguageModel language_model_of(const ModelMemory&);  // for its first case; batch, len, precision and keep differ by row

std::string options_of(const pytorch::LanguageModel&);  // the options of `memory model --as pytorch` for it
// The command whose account is of it.
std::string command_of(const pytorch::LanguageModel&, const std::string& model_and_device, std::optional<std::uint64_t> memory);
std::string levers_of(const pytorch::LanguageModel&);  // the same without --batch, --len, --precision and --attention

// What a description leaves open. Programs of one description differ, and so do their peaks: by how much is what was measured.
struct PyTorchInterval {
  std::uint64_t at_most = 0;
  std::string why;  // in words
};
PyTorchInterval interval_of(const pytorch::LanguageModel&, std::uint64_t peak, std::uint64_t workspace);

// What the allocator takes of the card: no card lends more than it has, and unused segments go back before it runs out.
std::uint64_t reserved_bytes(const pytorch::LanguageModelAccount&, const Room&);
inline constexpr const char* about_reserved =
    "reserved_bytes is what the allocator takes of the card; where that is all of it, it returns unused segments before it runs out, and "
    "fragments can be in its way.";

}  // namespace headroom::studies
