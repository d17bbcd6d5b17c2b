// forecast — does a program fit on a card, and what takes its bytes: the program itself, run dry.
#pragma once
#include <functional>

#include "dry/launch.h"
#include "studies/forecast/asked.h"
#include "studies/forecast/told.h"
#include "studies/life.h"

namespace headroom::studies {

// What the program writes while it runs.
using ProgramOutput = std::function<void(std::string_view)>;

// The program with one setting. `change`: environment of --try. Runs it once more, with unlimited memory, where it runs out.
Told forecast_one(const Forecast&, const std::vector<std::string>& program, const Host&, const ProgramOutput&,
                  const std::vector<std::string>& change = {});

Record told_record(const Told&, bool for_people);

Outcome forecast(const Forecast&, const Host&, const ProgramOutput&, bool for_people);

// The card that is described, as the library that stands in for CUDA answers for it.
dry::Dry dry_of(const Device&, const Room&, int cards);
Room room_of_program(const Device&, std::optional<std::uint64_t> asked, int ranks, RunBy = RunBy::dry_pytorch);

}  // namespace headroom::studies
