// train_run — train a language model on a file, keep checkpoints, go on from the newest; print text from what it learned.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "engine/data.h"
#include "engine/schedule.h"
#include "engine/training.h"
#include "report/record.h"

namespace headroom {

struct TrainRun {
  engine::Recipe recipe;
  std::string data;
  engine::TokenFormat format = engine::TokenFormat::text;
  double held_out = 0.1;
  adamw::Hyper hyper;
  engine::Schedule schedule;
  std::uint64_t seed = 0;
  std::string folder;  // of checkpoints; empty: none are kept
  std::int64_t every = 100;
  bool resume = false;
  std::int64_t report_every = 50;
  std::int64_t sample = 0;  // bytes to print at the end, of a text model
  double temperature = 0.8;
};

struct TrainProgress {
  std::int64_t step, steps;
  double loss, tokens_per_s;
};

// The table of losses, validation loss, unigram entropy, peak and forecast. A loss that is not finite stops it with an Error that says
// at which step and where it began. stop: asked after every step; a stopped run is saved first.
Record train_run(const TrainRun&, const Device&, int threads, const std::function<void(const TrainProgress&)>&,
                 const std::function<bool()>& stop);

}  // namespace headroom
