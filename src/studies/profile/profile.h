// profile — one timeline of a training step or of attention, and the tables made from it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dist/group.h"
#include "engine/pass/training.h"
#include "gpu/place.h"
#include "instruments/profile/clock_samples.h"
#include "instruments/profile/counters.h"
#include "instruments/profile/record.h"
#include "studies/attention/sweep.h"
#include "studies/profile/tables.h"

namespace headroom::studies {

struct ProfileOptions {
  int steps = 3, warmup = 1;  // recorded, and before them
  std::string trace;          // a file; empty: none
  bool counters = false;      // the hardware's own, where it permits
  bool only = false;          // profile the last phase alone
  std::uint64_t seed = 0;
  int threads = 0;  // 0: every core
  std::function<bool()> stop = [] { return false; };
  std::function<void(const std::string& doing)> announce = [](const std::string&) {};
  dist::Group* group = nullptr;  // the ranks that take the step together; each of them calls
};

struct Profile {      // one thing that was run
  std::string phase;  // forward, forward+backward, train; of attention: forward, backward, both
  profile::Timeline timeline;
  std::vector<Entry> at_peak;
  std::size_t peak_bytes = 0;
  double recording_ms = 0;  // time of a step that recording took
  double sm_hz = 0;         // a GPU's clock while it was recorded
  std::optional<profile::Counted> counted{};
  std::vector<std::string> notes{};
  std::vector<engine::QuantisedCount> quantised{};  // for fp8: counts of the last step
  std::vector<RankRow> ranks{};                     // one for each of several ranks
  std::vector<LaneRow> lanes{};
};

struct ProfileResult {
  std::string title;
  std::vector<Profile> profiles;  // the last is the one that is shown in full
  Ceilings ceilings;
  Precision precision;
  Device device{};
};

struct ProfileStep {
  engine::Recipe recipe;  // its purpose is the largest: train is profiled as forward, forward+backward and train
  std::uint64_t memory_bytes = 0;
  std::vector<std::int64_t> documents = {};  // lengths, where the recipe has them
};
ProfileResult profile_step(const ProfileStep&, const Device&, const ProfileOptions&);

struct ProfileAttention {
  attention::Problem problem;
  std::vector<std::string> variants;  // names or families
  Passes passes = Passes::both;
  AttentionSweep of{};  // the problem's sweep: it fills the inputs beside Q, K and V
};
ProfileResult profile_attention(const ProfileAttention&, const Device&, const ProfileOptions&);

std::unique_ptr<profile::Recording> recording_of(const Place&, const Ledger&, profile::TimelineTrace*);

// Counts while `call` runs, together with what was counted before.
void count(const Place&, const Device&, const std::function<void()>& call, std::optional<profile::Counted>& into);

// How busy the tensor cores were, three ways: by the measured ceiling, by the pipes at the clock that ran, by the hardware's count.
void add_tensor_use(const Profile&, const ProfileResult&, Record&);

// For people: the tables that fit a screen. For data: all of them, and the timeline first.
Record profile_record(const ProfileResult&, bool for_people);

}  // namespace headroom::studies
