// The studies behind `headroom profile`: they profile one problem at a time and keep its tables in the store.
#pragma once
#include "studies/attention/sweep.h"
#include "studies/life.h"
#include "studies/profile/profile.h"
#include "studies/step/step_time.h"

namespace headroom::studies {

struct KeptProfile {
  ProfileResult result;
  Outcome outcome;  // has no record: where it is shown decides how much (profile_record)
};

// Each list of the sweep, or of the step, has one value: one step or one problem is profiled. phase: the largest; those before it run too.
KeptProfile profile_attention_study(const AttentionSweep&, const Device&, const ProfileOptions&, const Host&);
engine::Recipe only_step(const StepTime&, engine::Purpose phase);  // throws an Error if it is not exactly one step of the engine
KeptProfile profile_step_study(const StepTime&, engine::Purpose phase, const Device&, const ProfileOptions&, const Host&);

// Variants that serve the sweep's one problem. A named variant that does not serve is an Error, before any runs.
std::vector<std::string> variants_that_serve(const AttentionSweep&, const Device&);

}  // namespace headroom::studies
