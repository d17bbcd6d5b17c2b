// train_run — train a language model on a file, keep checkpoints, go on from the newest; print text from what it learned.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "base/precision_words.h"
#include "dist/group.h"
#include "engine/data/data.h"
#include "engine/forecast/keep_auto.h"
#include "engine/pass/training.h"
#include "engine/recipe/schedule.h"
#include "studies/life.h"
#include "studies/step/words.h"

namespace headroom::studies {

struct TrainRun {
  engine::Recipe recipe;  // keep auto is found by the study
  std::optional<std::uint64_t> memory{};
  std::string data;
  engine::TokenFormat format = engine::TokenFormat::text;
  std::optional<engine::DocumentsBy> documents{};  // how documents end; none: sequences begin anywhere
  double held_out = 0.1;
  engine::Optimizer::Hyper hyper;
  engine::Schedule schedule;
  std::uint64_t seed = 0;
  std::string init;          // a folder whose weights a fresh run begins with: Hugging Face's, or of checkpoints; empty: random ones
  std::string folder;        // folder of checkpoints; empty: none are kept
  std::string hugging_face;  // a folder for the weights at the end, as transformers reads them; empty: none
  std::int64_t every = 100;
  bool resume = false;
  bool switch_precision = false;         // the checkpoint may have another precision or other scales
  std::int64_t log_every = 50;           // steps between rows
  std::int64_t validation_batches = 64;  // batches of the held-out part, evenly spread; 0: all
  std::int64_t sample = 0;               // tokens to print at the end: bytes of a text, else numbers
  std::string prompt = "\n";             // start of the sampled text, or of a document
  double temperature = 0.8;
  int threads = 0;  // 0: every core
};

// What is asked has to be the same for a resumed run to give the same bits, beside model, data and seed; the rest is noted.
void describe(Of<TrainRun> auto& r, auto&& f) {
  using enum Role;
  describe(r.recipe, [&](auto& member, Description d) {
    // Gradients have the same bits whatever is kept (but in 8 bits), and however many ranks make them.
    for (const std::string_view same_bits : {"keep", "ranks", "shard", "split_tokens"})
      if (d.name == same_bits) d.role = noted;
    f(member, d);
  });
  f(r.documents, {.name = "documents",
                  .about = "What ends a document; documents are packed into rows of --len tokens, and none sees another. lines, paragraphs "
                           "and jsonl need --text; token:N is for any file"});
  f(r.schedule.steps, {.name = "steps", .about = "Steps of the whole run; 0: only validate and sample", .allowed = {0, 1ll << 40}});
  f(r.memory, {.name = "memory", .role = noted, .unit = Unit::bytes, .about = "Memory limit of a rank [what is available]"});
  f(r.schedule.peak, {.name = "lr", .about = "Learning rate after warm-up", .real = {0, 1e6}});
  f(r.schedule.floor, {.name = "floor"});
  f(r.schedule.warmup,
    {.name = "warmup", .about = "Steps of warm-up, at most half of --steps; then a cosine to a tenth of --lr", .allowed = {0, 1 << 30}});
  f(r.hyper.decay, {.name = "decay", .about = "Weight decay", .real = {0, 1e6}});
  f(r.hyper.clip, {.name = "clip", .about = "Largest global norm of the gradients; 0: no clipping", .real = {0, 1e6}});
  f(r.hyper.beta1, {.name = "beta1"});
  f(r.hyper.beta2, {.name = "beta2"});
  f(r.held_out, {.name = "held_out"});
  f(r.every, {.name = "every", .role = noted, .about = "Steps between checkpoints", .allowed = {1, 1 << 30}});
  f(r.log_every, {.name = "log_every", .role = noted, .about = "Steps between rows: loss, gradient norm", .allowed = {1, 1 << 30}});
  f(r.validation_batches,
    {.name = "validate", .role = noted, .about = "Batches of the held-out tenth at the end; 0: all of it", .allowed = {0, 1 << 30}});
  f(r.sample, {.name = "sample",
               .role = noted,
               .about = "Tokens to print at the end, one model run each: a text, or with --tokens numbers",
               .allowed = {0, 1 << 20}});
  f(r.temperature, {.name = "temperature",
                    .role = noted,
                    .about = "Temperature of sampling: small prefers likely tokens, large is more random",
                    .real = {1e-3, 1e3}});
  f(r.threads, {.name = "threads", .role = noted, .about = "Threads; 0: every core", .allowed = {0, 4096}});
}

struct TrainRow {
  std::int64_t step = 0;
  double loss = 0, lr = 0;
  std::optional<double> grad_norm;  // unknown if updates happen during backward
  double tokens_per_s = 0;
  std::optional<std::int64_t> clipped{};  // numbers that fp8 clipped in this step
  std::optional<double> flushed{};        // the share that became zero
};
void describe(Of<TrainRow> auto& r, auto&& f) {
  f(r.step, {.name = "step"});
  f(r.loss, {.name = "loss", .role = Role::measured});
  f(r.lr, {.name = "lr", .role = Role::noted});
  f(r.grad_norm, {.name = "grad_norm", .role = Role::noted});
  f(r.tokens_per_s, {.name = "tokens_per_s", .role = Role::measured, .unit = Unit::per_s});
  f(r.clipped, {.name = "clipped", .role = Role::noted});
  f(r.flushed, {.name = "flushed", .role = Role::noted, .unit = Unit::share});
}

// The table of losses, which are kept in the store as they come; validation loss, unigram entropy, peak and forecast. A loss that is not
// finite ends it with an Error that says at which step and where it began. A run that is stopped is saved first, and fails; one that does
// not fit is answered no.
// group: of the ranks that train together, each of which calls; the first keeps rows and writes checkpoints.
Outcome train_study(const TrainRun&, const Device&, const Host&, dist::Group* group = nullptr);

}  // namespace headroom::studies
