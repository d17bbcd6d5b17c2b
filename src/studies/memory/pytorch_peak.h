// The peak of PyTorch's step, remembered, and the searches that begin at it: a shorter length, a larger card, more GPUs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/device.h"
#include "pytorch/language_model.h"
#include "studies/memory/room.h"

namespace headroom::studies {

// A command asks for one step's peak several times, so the last ones are remembered.
std::uint64_t step_peak(const pytorch::LanguageModel&, std::uint64_t workspace);
std::optional<std::uint64_t> peak_or_none(const pytorch::LanguageModel&, std::uint64_t workspace);  // empty: no account is made of it
void remember_peak(const pytorch::LanguageModel&, std::uint64_t workspace, std::uint64_t peak);

// The longest sequence, shorter than its own, with which the step fits.
std::optional<std::int64_t> length_that_fits(const pytorch::LanguageModel&, const Room&, std::uint64_t workspace);

// " It fits on NVIDIA L40S (--device l40s).": the known card with the least memory that does; empty: none does, or memory limits each.
std::string larger_card_in_words(const pytorch::LanguageModel&, const Device&, std::optional<std::uint64_t> memory);

// How many GPUs hold the step with this batch each, as FSDP2 shards it; memory: of each, empty: all of the device.
std::optional<int> gpus_that_hold(const pytorch::LanguageModel&, const Device&, std::optional<std::uint64_t> memory);

}  // namespace headroom::studies
