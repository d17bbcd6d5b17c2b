// plan — the settings of a training step that fit a memory, fastest first; each a dry run of the step it stands for. Every lever of the
// engine is tried in every combination that the engine accepts: what may be combined is asked of engine::check, not known here.
// With --gpus every row of the settings runs; ways.h adds what is only forecast.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "base/precision_words.h"
#include "engine/keep_auto.h"
#include "studies/life.h"
#include "studies/memory/asked.h"
#include "studies/memory/room.h"
#include "studies/plan/hosts.h"
#include "studies/step/words.h"

namespace headroom::studies {

// Every level that gives the same gradients, the least bytes: groups, and nothing made again: on the host.
inline std::vector<engine::KeepAsked> every_keep() {
  std::vector<engine::KeepAsked> all;
  for (const std::string& word : names_of<engine::Keep>.all())
    if (word != engine::name_of(engine::Keep::gate_up_fp8)) all.push_back(*WordsOf<engine::KeepAsked>::named(word));
  all.push_back({engine::Keeping{engine::Keep::input, 0}});
  all.push_back({engine::Keeping{.host = engine::Keeping::every_block}});
  return all;
}

struct Plan {
  engine::ModelConfig model;
  std::int64_t batch = 4, len = 1024;
  int gpus = 1;
  int per_host = 8;
  std::optional<LinkRate> link;
  // What may be chosen.
  std::vector<Precision> precisions;  // none: fp32, bf16, and tf32 on a GPU
  std::optional<engine::Scales> scales;
  std::vector<std::string> attentions{"flash", "plain"};
  std::vector<engine::KeepAsked> keeps = every_keep();
  std::vector<engine::Logits> logits{engine::Logits::whole};
  std::vector<engine::Masters> masters{engine::Masters::whole, engine::Masters::halves};
  std::vector<engine::Gradients> gradients{engine::Gradients::whole, engine::Gradients::half, engine::Gradients::none};
  std::vector<engine::Updating> updates{engine::Updating::after, engine::Updating::during};
  std::optional<std::uint64_t> memory_bytes;
  std::int64_t most = 10;
  ModelUse use = ModelUse::train;
  Whose whose = Whose::headroom;
  Device device;
  int workers = 1;                                    // threads that the CPU's scratch is counted for
  std::function<bool()> stop = [] { return false; };  // asked between forecasts
  std::function<void(double share, const std::string& doing)> progress = [](double, const std::string&) {};
};
void describe(Of<Plan> auto& p, auto&& f) {
  f(p.batch, {.name = "batch", .about = "Sequences of a step, of all GPUs together; micro-batches divide it", .allowed = {1, 4096}});
  f(p.len, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(p.gpus, {.name = "gpus", .about = "GPUs that share the batch: replicas, and every way to shard them", .allowed = {1, 4096}});
  f(p.per_host,
    {.name = "per_host", .about = "GPUs of a host; what more of them send each other crosses the network", .allowed = {1, 4096}});
  f(p.link, {.name = "link", .about = "Rate of the network between hosts, of each GPU, one way, as 50GB/s [usual beside the card]"});
  f(p.precisions, {.name = "precision", .about = "Precisions to try [fp32,bf16, and tf32 on a GPU]", .choices = trained_precisions});
  f(p.scales, {.name = "scales", .about = engine::about_scales});
  f(p.attentions, {.name = "attention", .about = "Attention variants to try", .choices = attention_families});
  f(p.keeps, {.name = "keep",
              .about = "Recompute levels to try, as in headroom train --help; auto: one for each block, to fit",
              .option = "--keep,--recompute"});
  f(p.logits, {.name = "logits", .about = "Dtypes of logits to try, as in headroom train --help"});
  f(p.masters, {.name = "masters", .about = "Storage of FP32 weights to try, as in headroom train --help"});
  f(p.gradients, {.name = "gradients", .about = "Storage of gradients to try, as in headroom train --help"});
  f(p.updates, {.name = "update", .about = "When AdamW runs, to try; during: nothing is clipped"});
  f(p.memory_bytes, memory_limit);
  f(p.most, {.name = "most", .about = "Rows to show", .allowed = {1, 10000}});
  f(p.use, {.name = "phase", .about = about_phase});
  f(p.whose, {.name = "as", .about = "Whose step: this library's, or PyTorch's (DDP, FSDP2, checkpoints, torch.compile)"});
}

struct Setting {
  engine::Recipe recipe;  // of one micro-batch
  std::size_t peak_bytes = 0, saved_bytes = 0, standing_bytes = 0;
  std::size_t stand_in_bytes = 0;                 // engine::stand_in_bytes
  double flops = 0, traffic = 0, link_bytes = 0;  // of the whole step, on one GPU
  double ms_at_least = 0, link_ms_at_least = 0;   // ms_at_least 0: the device's ceilings are not known
  std::optional<engine::Expected> expected;       // of one step
  std::size_t host_bytes = 0;                     // pinned, of the host
  double exposed_ms = 0;                          // of link_ms_at_least, what the step waits for: it is in ms_at_least
  std::size_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  // that stand at the peak

  std::size_t peak() const { return peak_bytes + stand_in_bytes; }
};

Setting setting_of(const Plan&, const engine::Recipe&);  // one dry run

std::vector<Setting> settings_of(const Plan&);  // fastest first (fewest FLOPs where not all have a time), then smaller peak first

struct PlanRow {
  ModelUse phase = ModelUse::train;
  Precision precision;
  std::string attention;
  std::string keep;
  engine::Logits logits = engine::Logits::whole;
  engine::Holding holding{};
  std::int64_t micro_batch = 0, micro_batches = 0;
  engine::Sharding sharding = engine::Sharding::none;
  bool split_tokens = false;
  std::uint64_t needed_bytes = 0, peak_bytes = 0;
  std::optional<double> ms{}, ms_low{}, ms_high{};  // expected, where such a card was measured
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
  f(r.keep, {.name = "keep"});
  f(r.precision, {.name = "precision"});
  f(r.attention, {.name = "attention"});
  f(r.holding.masters, {.name = "masters"});
  f(r.holding.gradients, {.name = "gradients"});
  f(r.holding.updating, {.name = "update"});
  f(r.micro_batch, {.name = "micro_batch"});
  f(r.micro_batches, {.name = "micro_batches"});
  f(r.sharding, {.name = "sharding"});
  f(r.slower, {.name = "slower", .role = noted, .unit = Unit::share});
  f(r.frontier, {.name = "frontier", .role = noted});
  f(r.split_tokens, {.name = "split_tokens", .show = Show::detail});
  f(r.logits, {.name = "logits", .show = Show::detail});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.ms_low, {.name = "ms_low", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_high, {.name = "ms_high", .role = noted, .unit = Unit::ms, .show = Show::detail});
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
