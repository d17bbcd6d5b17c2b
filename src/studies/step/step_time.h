// step_time — times of forward, forward + backward and a whole step of a language model, beside the forecast. A size that
// does not fit is a row too; the forecast knows it without a run.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/precision_words.h"
#include "dist/group.h"
#include "engine/forecast/keep_auto.h"
#include "instruments/bench/bench.h"
#include "studies/life.h"
#include "studies/status.h"
#include "studies/step/words.h"

namespace headroom::studies {

struct StepTime {
  std::vector<engine::Decoder> models;
  std::int64_t batch = 4;
  std::vector<std::int64_t> lens{128};
  std::vector<std::int64_t> documents{};  // lengths, packed into every row in place of a length; none: a row is one sequence
  engine::LeverLists levers{};            // a row for each combination
  std::vector<engine::Purpose> phases{engine::Purpose::forward, engine::Purpose::gradients, engine::Purpose::training};
  int steps = 10;
  double seconds = 0;                     // > 0: a row that counts longer than this stops as soon as it has three
  std::vector<std::int64_t> warmups{5};   // steps before those that count; a row for each
  int threads = 0;                        // 0: every core
  std::optional<std::uint64_t> memory{};  // pretend to have no more; else what is available
  std::uint64_t seed = 0;
  engine::Ranks ranks{};    // more than one: every rank calls, with its group
  double matmul_flops = 0;  // the CPU's measured ceiling that MFU is counted against; 0: measured here by one large matmul
};

void describe(Of<StepTime> auto& s, auto&& f) {
  f(s.models, {.name = "models"});
  f(s.batch,
    {.name = "batch", .about = "Sequences; of each rank where there are several, of all with --split-tokens", .allowed = {1, 1 << 30}});
  f(s.lens, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(s.documents, {.name = "documents",
                  .about = "Lengths of documents, packed into each row in place of --len; attention stays within each",
                  .allowed = {0, 1 << 30}});
  describe(s.levers, f);
  f(s.phases, {.name = "phases", .about = "Phases to time; a row for each", .option = "--phase"});
  f(s.steps, {.name = "steps", .about = "Measured calls", .allowed = {1, 1 << 20}});
  f(s.seconds, {.name = "seconds", .about = "Time limit of a row, after at least three samples; 0: none", .real = {0, 1e6}});
  f(s.warmups, {.name = "warmup", .about = "Warm-up calls; a row for each", .allowed = {0, 1 << 20}});
  f(s.threads, {.name = "threads", .about = "Threads; 0: every core", .allowed = {0, 4096}});
  f(s.memory, {.name = "memory", .unit = Unit::bytes, .about = "Pretend to have no more than this [what is available]"});
  f(s.seed, {.name = "seed"});
  describe(s.ranks, f);
}

struct StepRow {
  std::string model;
  std::int64_t batch = 0, len = 0;
  std::string documents{};  // lengths, with commas between them
  engine::Levers levers{};  // as asked for
  engine::Purpose phase = engine::Purpose::forward;
  bench::Stats samples{};  // not a column: its mean and spread are
  std::optional<double> ms{}, ms_std{}, tokens_per_s{}, model_tflops{}, mfu{};
  std::optional<double> forecast_ms{}, forecast_ms_low{}, forecast_ms_high{};
  std::optional<std::int64_t> peak_bytes{}, forecast_peak_bytes{};
  Status status = Status::ok;
  std::string why{};
  std::int64_t params = 0, steps = 0, warmup = 0;
  std::optional<std::int64_t> driver_bytes{}, loaded_bytes{}, unexplained_bytes{};
  engine::Ranks ranks{};
  std::optional<std::int64_t> link_bytes{}, comm_bytes{};
  std::optional<double> link_ms{}, exposed_ms{};                    // forecast, where the link is known
  std::string kept{};                                               // what each block keeps
  std::optional<std::int64_t> host_bytes{}, forecast_host_bytes{};  // pinned, where blocks keep there
  std::optional<double> host_ms{}, host_exposed_ms{};               // forecast, where the host's link is known
};

void describe(Of<StepRow> auto& r, auto&& f) {
  using enum Role;
  using enum Show;
  f(r.model, {.name = "model"});
  f(r.batch, {.name = "batch", .show = detail});
  f(r.len, {.name = "len"});
  f(r.documents, {.name = "documents", .show = detail});
  describe_columns(r.levers, f, {.shown = {"precision"}, .paired = {"precision", "scales", "logits"}});
  f(r.phase, {.name = "phase"});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.ms_std, {.name = "ms_std", .role = noted, .unit = Unit::ms, .show = spread});
  f(r.forecast_ms, {.name = "forecast_ms", .role = noted, .unit = Unit::ms});
  f(r.forecast_ms_low, {.name = "forecast_ms_low", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.forecast_ms_high, {.name = "forecast_ms_high", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.tokens_per_s, {.name = "tokens_per_s", .role = noted, .unit = Unit::per_s});
  f(r.model_tflops, {.name = "model_tflops", .role = noted, .unit = Unit::tflops});
  f(r.mfu, {.name = "mfu", .role = noted, .unit = Unit::share});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.forecast_peak_bytes, {.name = "forecast_peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted});
  f(r.params, {.name = "params", .role = noted, .show = detail});
  f(r.steps, {.name = "steps", .role = noted, .show = detail});
  f(r.warmup, {.name = "warmup", .show = detail});
  f(r.driver_bytes, {.name = "driver_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.loaded_bytes, {.name = "loaded_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.unexplained_bytes, {.name = "unexplained_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.ranks.count, {.name = "ranks", .show = detail});
  f(r.ranks.sharding, {.name = "shard", .show = detail});
  f(r.ranks.split_tokens, {.name = "split_tokens", .show = detail});
  f(r.link_bytes, {.name = "link_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.comm_bytes, {.name = "comm_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.link_ms, {.name = "link_ms", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.exposed_ms, {.name = "exposed_ms", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.kept, {.name = "kept", .role = noted, .show = detail});
  f(r.host_bytes, {.name = "host_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.forecast_host_bytes, {.name = "forecast_host_bytes", .role = noted, .unit = Unit::bytes, .show = detail});
  f(r.host_ms, {.name = "host_ms", .role = noted, .unit = Unit::ms, .show = detail});
  f(r.host_exposed_ms, {.name = "host_exposed_ms", .role = noted, .unit = Unit::ms, .show = detail});
}

std::string in_words(const std::vector<std::int64_t>& documents);  // the words of StepRow::documents
// One of the steps that are asked for: what every command that takes a StepTime runs or forecasts.
engine::Recipe recipe_of(const StepTime&, const engine::Decoder&, const engine::Levers&, std::int64_t len, engine::Purpose);
std::vector<std::int64_t> lens_of(const StepTime&);  // with documents, their total length; an Error if that is 0

// group: of the ranks that take a step together, each of which calls. The first keeps rows; bytes are those of one rank, tokens those of all.
Outcome step_study(const StepTime&, const Device&, const Host&, dist::Group* group = nullptr);

}  // namespace headroom::studies
