// The studies behind `headroom profile`: they profile one problem at a time and keep its tables in the store.
#pragma once
#include "studies/attention/sweep.h"
#include "studies/life.h"
#include "studies/profile/profile.h"
#include "studies/step/step_time.h"

namespace headroom::studies {

struct KeptProfile {
  ProfileResult result;
  Outcome outcome;  // without its record: how much of a profile is shown depends on where (profile_record)
};

// Of the sweep, or of the step: one value of each list, as one step or one problem is profiled; phase: the largest, those before it are too.
KeptProfile profile_attention_study(const AttentionSweep&, const Device&, const ProfileOptions&, const Host&);
engine::Recipe only_step(const StepTime&, engine::Purpose phase);  // an Error where it is no one step, or none of the engine's
KeptProfile profile_step_study(const StepTime&, engine::Purpose phase, const Device&, const ProfileOptions&, const Host&);

// Variants that serve the sweep's one problem; who was asked for by name and does not is an Error, before the first is run.
std::vector<std::string> variants_that_serve(const AttentionSweep&, const Device&);

}  // namespace headroom::studies
