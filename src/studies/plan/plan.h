// plan — the settings of a training step that fit a memory, fastest first; each a dry run of the step it stands for. Every lever of the
// engine is tried in every combination that the engine accepts: what may be combined is asked of engine::check, not known here.
// With --gpus every row of the settings runs; ways.h adds what is only forecast.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "base/precision_words.h"
#include "engine/forecast/keep_auto.h"
#include "studies/life.h"
#include "studies/memory/asked.h"
#include "studies/memory/room.h"
#include "studies/memory/serving.h"
#include "studies/plan/hosts.h"
#include "studies/step/words.h"

namespace headroom::studies {

// Every level that gives the same gradients, the least bytes: groups, and nothing made again: on the host.
inline std::vector<engine::Keeping> every_keep() {
  std::vector<engine::Keeping> all;
  for (int level = 0; level < engine::exact_levels; ++level) all.push_back({engine::Keep(level)});
  all.push_back({engine::Keep::input, 0});
  all.push_back(engine::Keeping::on_host());
  return all;
}

// What is tried where nothing is said: of every lever with named values all of them, but of logits and moments those that round nothing.
inline engine::LeverLists levers_to_try() {
  engine::LeverLists all;
  describe(all, [](auto& list, const Description&) {
    using One = typename std::remove_reference_t<decltype(list)>::value_type;
    if constexpr (NamedEnum<One>) {
      list.clear();
      for (std::size_t i = 0; i < names_of<One>.name.size(); ++i) list.push_back(One(i));
    }
  });
  all.precision.clear();  // the device decides
  all.attention = {"flash", "plain"};
  all.keep = every_keep();
  all.logits = {engine::Logits::whole};
  all.holding.moments = {engine::Moments::whole};
  all.holding.copies = {engine::WeightCopies::made};
  return all;
}

struct Plan {
  engine::Decoder model;
  std::int64_t batch = 4, len = 1024;
  int gpus = 1;
  int per_host = 8;
  std::optional<LinkRate> link;
  engine::LeverLists levers = levers_to_try();  // the values to try; no precision: fp32, bf16, and tf32 on a GPU
  std::optional<std::uint64_t> memory_bytes;
  std::int64_t most = 10;
  ModelUse use = ModelUse::train;
  Whose whose = Whose::headroom;
  ServingChoices serving{};
  Device device;
  std::string model_and_device{};                     // the options that named them, for commands that a reader can copy
  int workers = 1;                                    // threads that the CPU's scratch is counted for
  std::function<bool()> stop = [] { return false; };  // asked between forecasts
  std::function<void(double share, const std::string& doing)> progress = [](double, const std::string&) {};
};
void describe(Of<Plan> auto& p, auto&& f) {
  f(p.batch,
    {.name = "batch",
     .about =
         "Sequences of a step, of all GPUs together; micro-batches divide it. Without it, one for each GPU where 4 cannot be shared out",
     .allowed = {1, 4096}});
  f(p.len, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(p.gpus, {.name = "gpus", .about = "GPUs that share the batch, as replicas and in every way to shard them", .allowed = {1, 4096}});
  f(p.per_host, {.name = "per_host", .about = "GPUs in one host; traffic between hosts goes over the network", .allowed = {1, 4096}});
  f(p.link,
    {.name = "link", .about = "Rate of the network between hosts, for each GPU, one way, as 50GB/s [what usually comes with the card]"});
  describe(p.levers, [&](auto& list, Description d) {
    if (std::string_view(d.name) == "precision") d.about = "Precisions to try [fp32,bf16, and tf32 on a GPU]";
    f(list, d);
  });
  f(p.memory_bytes, memory_limit);
  f(p.most, {.name = "most", .about = "Rows to show", .allowed = {1, 10000}});
  f(p.use, {.name = "phase", .about = about_phase});
  f(p.whose, {.name = "as", .about = "Whose step: this library's, or PyTorch's (DDP, FSDP2, checkpoints, torch.compile)"});
  describe(p.serving, f);
}

struct PlanRow {
  ModelUse phase = ModelUse::train;
  engine::Levers levers{};  // keep: as it came to, of this model
  std::int64_t micro_batch = 0, micro_batches = 0;
  engine::Sharding sharding = engine::Sharding::none;
  bool split_tokens = false;
  std::uint64_t needed_bytes = 0, peak_bytes = 0;
  std::optional<double> ms{}, ms_low{}, ms_high{};  // expected
  std::string ms_by{};                              // what the interval stands on, or why there is no ms
  std::optional<double> ms_at_least{}, link_ms_at_least{}, exposed_ms{}, slower{};
  std::int64_t saves_bytes = 0;
  bool frontier = false;
  std::optional<double> tokens_per_s_at_most{};
  std::uint64_t standing_bytes = 0, saved_bytes = 0, parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  double flops = 0, traffic_bytes = 0, link_bytes = 0;
  int gpus = 1;
  std::uint64_t host_bytes = 0;
};
void describe(Of<PlanRow> auto& r, auto&& f) {
  using enum Role;
  f(r.phase, {.name = "phase", .show = Show::detail});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.ms_at_least, {.name = "ms_at_least", .role = measured, .unit = Unit::ms});
  describe_columns(r.levers, f,
                   {.shown = {"precision", "attention", "keep", "masters", "gradients", "update"},
                    .paired = {"precision", "attention", "keep", "logits", "masters", "gradients", "update", "moments", "copies"}});
  f(r.micro_batch, {.name = "micro_batch"});
  f(r.micro_batches, {.name = "micro_batches"});
  f(r.sharding, {.name = "sharding"});
  f(r.slower, {.name = "slower", .role = noted, .unit = Unit::share});
  f(r.frontier, {.name = "frontier", .role = noted});
  f(r.split_tokens, {.name = "split_tokens", .show = Show::detail});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.ms_low, {.name = "ms_low", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_high, {.name = "ms_high", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_by, {.name = "ms_by", .role = noted, .show = Show::detail});
  f(r.link_ms_at_least, {.name = "link_ms_at_least", .role = measured, .unit = Unit::ms});
  f(r.exposed_ms, {.name = "exposed_ms", .role = measured, .unit = Unit::ms});
  f(r.saves_bytes, {.name = "saves_bytes", .role = noted, .unit = Unit::bytes});
  f(r.tokens_per_s_at_most, {.name = "tokens_per_s_at_most", .role = noted, .show = Show::detail});
  f(r.standing_bytes, {.name = "standing_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.saved_bytes, {.name = "saved_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.parameter_bytes, {.name = "parameter_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.gradient_bytes, {.name = "gradient_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.optimizer_bytes, {.name = "optimizer_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.flops, {.name = "flops", .role = measured, .unit = Unit::flops, .show = Show::detail});
  f(r.traffic_bytes, {.name = "traffic_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.link_bytes, {.name = "link_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.gpus, {.name = "gpus", .show = Show::detail});
  f(r.host_bytes, {.name = "host_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
}

void check(const Plan&);  // an Error that says what is allowed, before anything is measured or forecast
Outcome plan(const Plan&);

}  // namespace headroom::studies
