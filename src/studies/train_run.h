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
  std::string init;    // a folder whose weights a fresh run begins with: Hugging Face's, or of checkpoints; empty: random ones
  std::string folder;  // of checkpoints; empty: none are kept
  std::int64_t every = 100;
  bool resume = false;
  std::int64_t report_every = 50;
  std::int64_t validation_batches = 64;  // of the held-out part, evenly spread; 0: all
  std::int64_t sample = 0;               // tokens to print at the end: bytes of a text, else numbers
  std::string prompt = "\n";             // what a sampled text goes on from
  double temperature = 0.8;
};

// Of init: what model its weights are of.
engine::ModelConfig model_of_init(const std::string& folder);

struct TrainProgress {
  std::int64_t step, steps;
  double loss, tokens_per_s;
};

struct Trained {
  Record record;  // the table of losses, validation loss, unigram entropy, peak and forecast
  std::int64_t steps;
  bool stopped;  // before its last step; without validation and sample then
};

// A loss that is not finite stops it with an Error that says at which step and where it began. stop: asked after every step; a
// stopped run is saved first.
Trained train_run(const TrainRun&, const Device&, int threads, const std::function<void(const TrainProgress&)>&,
                  const std::function<bool()>& stop);

}  // namespace headroom
