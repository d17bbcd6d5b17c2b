#include "studies/plan/picture.h"

#include <algorithm>

#include "base/text.h"
#include "studies/plan/search.h"

namespace headroom::studies {

namespace {

constexpr std::size_t most_dots = 600;  // beside the frontier, which is drawn whole

std::string in_words(const PlanRow& r) {
  std::vector<std::string> words{std::string(name_of(r.levers.precision)), "attention " + r.levers.attention,
                                 "keep " + WordsOf<engine::Keeping>::to(r.levers.keep),
                                 fmt::format("micro-batch {} × {}", r.micro_batch, r.micro_batches)};
  for (const auto& [lever, word] : engine::changed(r.levers, {"precision", "attention", "keep"}))
    words.push_back(fmt::format("{} {}", lever, word));
  if (r.sharding != engine::Sharding::none) words.push_back(fmt::format("shard {}", name_of(r.sharding)));
  if (r.split_tokens) words.emplace_back("tokens split");
  return joined(words);
}

By by_of(std::span<const PlanRow> rows) {
  if (std::ranges::any_of(rows, [](const PlanRow& r) { return r.ms.has_value(); })) return By::ms;
  return std::ranges::all_of(rows, [](const PlanRow& r) { return r.ms_at_least.has_value(); }) ? By::ms_at_least : By::flops;
}

std::optional<double> cost_of(const PlanRow& r, By by) {
  return by == By::ms ? r.ms : by == By::ms_at_least ? r.ms_at_least : std::optional(r.flops);
}

}  // namespace

std::optional<Chart> picture_of(std::span<const PlanRow> rows, std::uint64_t memory_bytes) {
  if (rows.size() < 2) return std::nullopt;
  const By by = by_of(rows);
  const bool timed = by != By::flops;
  constexpr const char* names[] = {"ms", "ms_at_least", "flops"};
  Chart c{timed ? "Bytes against time" : "Bytes against FLOPs", names[std::size_t(by)], "needed_bytes", Unit::bytes, false, {}};
  c.x_unit = timed ? Unit::ms : Unit::flops;
  c.log_x = true;  // the slowest that fits may take a hundred times as long as the fastest
  Chart::Series frontier{"frontier", {}, {}}, others{"other settings that fit", {}, {}, false};
  std::size_t beaten = 0, at = 0;
  for (const PlanRow& r : rows) beaten += r.frontier ? 0 : 1;
  const std::size_t every = beaten / most_dots + 1;
  for (const PlanRow& r : rows) {
    const std::optional<double> cost = cost_of(r, by);  // a row without it is not drawn
    if (!cost || (!r.frontier && at++ % every != 0)) continue;
    Chart::Series& into = r.frontier ? frontier : others;
    into.points.emplace_back(*cost, double(r.needed_bytes));
    into.names.push_back(in_words(r));
  }
  c.series.push_back(std::move(frontier));
  if (!others.points.empty()) c.series.push_back(std::move(others));
  if (memory_bytes > 0) c.marks.push_back({fmt::format("memory {}", bytes_in_words(double(memory_bytes))), double(memory_bytes)});
  return c;
}

}  // namespace headroom::studies
