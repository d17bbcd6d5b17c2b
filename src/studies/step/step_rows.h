// StepRows — measures steps of a language model one after the other, each in an arena of exactly the bytes forecast. Keeps nothing.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "gpu/place.h"
#include "instruments/bench/bench.h"
#include "studies/memory/driver_bytes.h"
#include "studies/step/step_time.h"

namespace headroom::studies {

struct StepCase {
  engine::Recipe recipe;
  std::int64_t warmup;
  std::string key{};  // the settings that ask for this row alone
  std::function<void(const std::string& doing)> progress = [](const std::string&) {};
};

class StepRows {
 public:
  // What is asked of a row beside its recipe is in StepTime. All are borrowed.
  StepRows(const StepTime&, const Device&, const std::function<bool()>& stop, dist::Group* group = nullptr);

  StepRow measured_row(const StepCase&);  // a failure, or a step that does not fit, is a row too
  bool on_gpu() const { return place_.on_gpu(); }
  double cpu_ceiling() const { return cpu_ceiling_; }
  std::int64_t context_bytes() const { return driver_.context(); }

 private:
  void measure(const StepCase&, StepRow&);
  bench::Measurement timed(const StepCase&, engine::Training&, const Context&);
  void add_times(const engine::Forecast&, const bench::Measurement&, StepRow&);

  const StepTime& s_;
  const Device& device_;
  const std::function<bool()>& stop_;
  dist::Group* group_;
  std::unique_ptr<dist::Comm> comm_;
  std::uint64_t memory_;
  std::uint64_t room_;  // for --keep auto
  Place place_;
  DriverBytes driver_;
  double cpu_ceiling_;
};

}  // namespace headroom::studies
