// Live bytes over a step, stacked by phase, from the events of a dry run.
#pragma once
#include <functional>

#include "engine/forecast/forecast.h"
#include "memory/account.h"
#include "report/record.h"

namespace headroom::studies {

// memory_bytes: drawn as a line where it is in sight of the peak; 0: not known.
Chart live_bytes_chart(const engine::Forecast&, std::uint64_t memory_bytes);
// The same of any account. what: a moment of its timeline in words.
Chart live_bytes_chart(const Account&, const std::function<std::string(std::size_t)>& what, std::uint64_t memory_bytes);

// The order of the stack: parameters at the bottom, what comes and goes on top.
constexpr std::array<Phase, phase_count> stacking = {Phase::parameter, Phase::optimizer, Phase::gradient, Phase::input,
                                                     Phase::saved,     Phase::forward,   Phase::backward, Phase::workspace};

}  // namespace headroom::studies
