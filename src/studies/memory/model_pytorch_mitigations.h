// What saves bytes in PyTorch's step: ways to make it fit, cheapest first, and each way by itself with what it costs.
#pragma once
#include <string_view>
#include <vector>

#include "studies/memory/answer.h"
#include "studies/memory/model.h"

namespace headroom::studies {

// Cheapest first, for the combination that fits. LoRA trains other numbers, so it comes after what trains the same ones.
std::vector<Lever<pytorch::LanguageModel>> levers_of_pytorch(const pytorch::LanguageModel& now);
Table mitigations_of(const pytorch::LanguageModel&, const ModelMemory& asked, std::uint64_t workspace,
                     const Combination<pytorch::LanguageModel>& together, std::string_view the_step);

}  // namespace headroom::studies
