// memory_model_pytorch — the bytes of a language model's training step in PyTorch eager, row by row, and the largest sizes.
#pragma once
#include "studies/memory/model.h"

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

// The longest sequence, shorter than its own, with which the step fits.
std::optional<std::int64_t> length_that_fits(const pytorch::LanguageModel&, const Room&, std::uint64_t workspace);

// " It fits on NVIDIA L40S (--device l40s).": the known card with the least memory that does; empty: none does, or memory limits each.
std::string larger_card_in_words(const pytorch::LanguageModel&, const Device&, std::optional<std::uint64_t> memory);

// How many GPUs hold the step with this batch each, as FSDP2 shards it; memory: of each, empty: all of the device.
std::optional<int> gpus_that_hold(const pytorch::LanguageModel&, const Device&, std::optional<std::uint64_t> memory);

}  // namespace headroom::studies
