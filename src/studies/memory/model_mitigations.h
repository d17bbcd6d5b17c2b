// Ways to save bytes of a step of ours, each with what it saves and costs.
#pragma once
#include "engine/forecast/forecast.h"
#include "report/record.h"
#include "studies/memory/answer.h"
#include "studies/memory/model.h"

namespace headroom::studies {

// The cheapest combination of this library's levers with which the step fits, or the smallest where none does.
Combination<engine::Recipe> combination_of(const engine::Recipe&, const ModelMemory&, const Room&);

// How many GPUs hold the step with this batch each and everything sharded; empty: that cannot be had, or not even 1024 of them do.
std::optional<int> gpus_that_hold(const engine::Recipe&, const Device&, std::optional<std::uint64_t> memory);

Table mitigations_of(const engine::Recipe&, const engine::Forecast&, const ModelMemory&, const Combination<engine::Recipe>& together);

}  // namespace headroom::studies
