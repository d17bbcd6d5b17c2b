// Ways to save bytes of a step of ours, each with what it saves and costs.
#pragma once
#include "engine/forecast.h"
#include "report/record.h"
#include "studies/memory/model.h"

namespace headroom::studies {

Table mitigations_of(const engine::Recipe&, const engine::Forecast&, const ModelMemory&);

}  // namespace headroom::studies
