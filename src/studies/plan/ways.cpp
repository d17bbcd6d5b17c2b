#include "studies/plan/ways.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "engine/model/decoder.h"
#include "engine/model/tensor_parallel.h"
#include "report/described_table.h"

namespace headroom::studies {

using engine::Recipe;
using engine::Sharding;

namespace {

struct WayRow {
  std::string way, with;
  bool runs = false, fits = false;
  std::optional<std::uint64_t> peak_bytes{};
  std::optional<double> ms_at_least{}, tokens_per_s_at_most{}, link_bytes{}, bytes_a_layer{}, exposed_ms{}, bubble{};
  std::string why_not{};
};
void describe(Of<WayRow> auto& r, auto&& f) {
  using enum Role;
  f(r.way, {.name = "way"});
  f(r.with, {.name = "with", .role = noted});
  f(r.runs, {.name = "runs", .role = noted});
  f(r.fits, {.name = "fits", .role = measured});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.ms_at_least, {.name = "ms_at_least", .role = measured, .unit = Unit::ms});
  f(r.tokens_per_s_at_most, {.name = "tokens_per_s_at_most", .role = noted, .show = Show::detail});
  f(r.link_bytes, {.name = "link_bytes", .role = measured, .unit = Unit::bytes});
  f(r.bytes_a_layer, {.name = "bytes_a_layer", .role = measured, .unit = Unit::bytes});
  f(r.exposed_ms, {.name = "exposed_ms", .role = measured, .unit = Unit::ms});
  f(r.bubble, {.name = "bubble", .role = measured, .unit = Unit::share});
  f(r.why_not, {.name = "why_not", .role = noted, .show = Show::detail});
}

struct Way {
  std::string name;
  Setting setting;
  double exposed_ms = 0, bubble = 0;
  double ms = 0;  // 0: not known
  std::uint64_t peak = 0;
};

std::string levers_of(const Recipe& r) {
  return fmt::format("{} keep {} micro-batch {} × {}", name_of(r.precision), engine::kept_in_words(r), r.batch, r.micro_batches);
}

// The first that fits, as they are in order of time; else the one that needs least.
template <class All, class Needed>
const typename All::value_type* best_of(const All& all, const Room& room, const Needed& needed) {
  const typename All::value_type* least = nullptr;
  for (const auto& one : all) {
    if (needed(one) <= room.memory_bytes) return &one;
    if (!least || needed(one) < needed(*least)) least = &one;
  }
  return least;
}

double link_ms(const Plan& p, double bytes) {
  return p.device.ceilings.link_bytes_per_s > 0 ? 1e3 * bytes / p.device.ceilings.link_bytes_per_s : 0;
}

// What a way that is only forecast may choose from: the levers of the fastest setting, every keep level, every micro-batch.
template <class Body>
void each_choice(const Plan& p, const Recipe& like, Body&& body) {
  for (std::int64_t micro = p.batch; micro >= 1; --micro) {
    if (p.batch % micro != 0) continue;
    for (const engine::Keep keep : {engine::Keep::everything, engine::Keep::no_cheap, engine::Keep::input}) {
      Recipe r = like;
      r.ranks = {}, r.batch = micro, r.micro_batches = int(p.batch / micro), r.keep = {keep};
      if (r.micro_batches > 1) r.holding.updating = engine::Updating::after;
      if (r.holding.gradients == engine::Gradients::none) r.holding.gradients = engine::Gradients::half;
      body(std::move(r));
    }
  }
}

std::vector<Way> sorted(std::vector<Way> all) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Way& a, const Way& b) { return a.ms != b.ms ? a.ms < b.ms : a.setting.flops < b.setting.flops; });
  return all;
}

// Heads, the feed-forward layer and the vocabulary are divided. A layer adds up its halves over the GPUs, forward and backward: four
// all-reduces, and nothing goes on before they are done.
std::string tensor_why_not(const Plan& p) {
  if (!p.model.trained()) return "a model that is only counted";
  return engine::why_no_shares(p.model, p.gpus, engine::KeyHeads::divided);
}
std::vector<Way> tensor_ways(const Plan& p, const Recipe& like) {
  std::vector<Way> all;
  each_choice(p, like, [&](Recipe r) {
    const double stream = double(r.batch) * double(r.len) * double(r.model.width) * double(size_of(r.precision.dtype));
    const double layer = 4 * 2 * stream * (p.gpus - 1) / p.gpus;
    r.model = engine::share_of(r.model, p.gpus, engine::KeyHeads::divided);
    Way w{"tensor parallel", setting_of(p, r)};
    w.setting.link_bytes = layer * double(r.model.depth()) * r.micro_batches;
    w.exposed_ms = link_ms(p, w.setting.link_bytes);
    w.ms = w.setting.ms_at_least > 0 && w.exposed_ms > 0 ? w.setting.ms_at_least + w.exposed_ms : 0;
    w.peak = w.setting.peak_bytes;
    all.push_back(std::move(w));
  });
  return sorted(std::move(all));
}

// Blocks are divided, one forward one backward: the first stage holds what as many micro-batches keep as there are stages, and for a share
// of (stages − 1) / (micro-batches + stages − 1) a GPU waits for the others.
std::string pipeline_why_not(const Plan& p) {
  if (!p.model.trained()) return "a model that is only counted";
  return p.model.depth() < p.gpus ? fmt::format("{} layers make no {} stages", p.model.depth(), p.gpus) : "";
}
std::vector<Way> pipeline_ways(const Plan& p, const Recipe& like) {
  std::vector<Way> all;
  each_choice(p, like, [&](Recipe r) {
    const double stream = double(r.batch) * double(r.len) * double(r.model.width) * double(size_of(r.precision.dtype));
    const int micros = r.micro_batches, stages = p.gpus;
    r.model.layers.resize(std::size_t((r.model.depth() + stages - 1) / stages));
    Way w{"pipeline parallel", setting_of(p, r)};
    w.setting.link_bytes = 2 * stream * micros;
    w.bubble = double(stages - 1) / double(micros + stages - 1);
    w.exposed_ms = link_ms(p, 2 * stream * (stages - 1));  // until the last stage has its first, and the first stage its last
    w.ms = w.setting.ms_at_least > 0 && w.exposed_ms > 0 ? w.setting.ms_at_least / (1 - w.bubble) + w.exposed_ms : 0;
    w.peak = w.setting.peak_bytes + std::uint64_t(std::min(stages, micros) - 1) * w.setting.saved_bytes;
    all.push_back(std::move(w));
  });
  return sorted(std::move(all));
}

WayRow row_of(const Plan& p, const Way& w, bool runs, const Room& room) {
  WayRow row{.way = w.name,
             .with = levers_of(w.setting.recipe),
             .runs = runs,
             .fits = room.holds(w.peak, w.setting.host_bytes),
             .peak_bytes = w.peak};
  row.link_bytes = w.setting.link_bytes;
  row.bytes_a_layer = w.setting.link_bytes / double(std::max<std::int64_t>(1, p.model.depth()));
  if (p.device.ceilings.link_bytes_per_s > 0) row.exposed_ms = w.exposed_ms;
  if (w.bubble > 0) row.bubble = w.bubble;
  if (w.ms <= 0) return row;
  row.ms_at_least = w.ms;
  row.tokens_per_s_at_most = 1e3 * double(p.batch) * double(p.len) / w.ms;
  return row;
}

}  // namespace

std::vector<Part> ways_of(const Plan& p, const std::vector<Setting>& all, const Room& room) {
  std::vector<WayRow> rows;
  const auto add_settings = [&](const std::string& name, auto&& is) {
    std::vector<Setting> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some), is);
    const Setting* s = best_of(some, room, [&](const Setting& one) { return room.needed_bytes(one.peak_bytes, one.host_bytes); });
    if (s) rows.push_back(row_of(p, {name, *s, s->exposed_ms, 0, s->ms_at_least, s->peak_bytes}, p.model.trained(), room));
    return s && s->recipe.holding.updating == engine::Updating::during ? s->peak_bytes : 0;  // where no gradient waits for the update
  };
  constexpr std::pair<Sharding, const char*> shardings[] = {{Sharding::none, "replicas"},
                                                            {Sharding::optimizer, "ZeRO-1 (--shard optimizer)"},
                                                            {Sharding::gradients, "ZeRO-2 (--shard gradients)"},
                                                            {Sharding::everything, "ZeRO-3 (--shard everything)"}};
  std::vector<std::uint64_t> updated_during;  // their peaks
  for (const auto& [sharding, name] : shardings)
    updated_during.push_back(
        add_settings(name, [of = sharding](const Setting& s) { return s.recipe.ranks.sharding == of && !s.recipe.ranks.split_tokens; }));
  const bool alike = updated_during[1] > 0 && updated_during[1] == updated_during[2];
  add_settings("context parallel (--split-tokens)", [](const Setting& s) { return s.recipe.ranks.split_tokens; });
  const Recipe& like = all.front().recipe;
  const auto add_forecast = [&](const char* name, std::string why_not, const auto& ways) {
    std::vector<Way> some;
    try {
      if (why_not.empty()) some = ways(p, like);
    } catch (const Error& e) {  // a part of a model may be what the engine does not take: widths of fp8
      if (e.at.code != Code::unsupported && e.at.code != Code::bad_argument) throw;
      why_not = e.what();
    }
    if (!why_not.empty()) {
      WayRow row{.way = name, .with = "not possible: " + why_not};
      row.why_not = why_not;
      rows.push_back(std::move(row));
      return;
    }
    const Way* w = best_of(some, room, [&](const Way& one) { return room.needed_bytes(one.peak, one.setting.host_bytes); });
    if (w) rows.push_back(row_of(p, *w, false, room));
  };
  add_forecast("tensor parallel", tensor_why_not(p), tensor_ways);
  add_forecast("pipeline parallel", pipeline_why_not(p), pipeline_ways);
  std::string note =
      "runs: headroom trains so; the others are forecasts only. link_bytes is what a GPU sends in a step, bytes_a_layer its share of a "
      "layer, "
      "exposed_ms the part of it that the step waits for, bubble the share of a pipeline's time in which a GPU waits for others. Tensor "
      "parallel: four all-reduces of the residual stream a layer, none beside other work. Pipeline parallel: one forward, one backward.";
  if (alike) note += " ZeRO-1 and ZeRO-2 are alike here: with --update during no gradient waits, so there is none to share out.";
  return {
      Part{table_of<WayRow>(
          "ways", fmt::format("Ways to share the step out to {} GPUs, each with its fastest setting that fits, else its smallest", p.gpus),
          rows)},
      Part{Note{std::move(note)}}};
}

}  // namespace headroom::studies
