// The settings that a plan may choose from: every combination of levers that the engine accepts, each a dry run, fastest first.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/forecast/forecast.h"
#include "studies/plan/plan.h"

namespace headroom::studies {

struct Setting {
  engine::Recipe recipe;  // the recipe of one micro-batch
  std::size_t peak_bytes = 0, saved_bytes = 0, standing_bytes = 0;
  double flops = 0, traffic = 0, link_bytes = 0;  // totals of the whole step, on one GPU
  double ms_at_least = 0, link_ms_at_least = 0;   // ms_at_least 0: the device's ceilings are not known
  std::optional<engine::Expected> expected;       // the time of one step
  std::string why_no_ms{};
  std::size_t host_bytes = 0;  // pinned, of the host
  double exposed_ms = 0;       // the part of link_ms_at_least that the step waits for; included in ms_at_least
  std::size_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;  // bytes at the peak
};

Setting setting_of(const Plan&, const engine::Recipe&);  // one dry run

// What settings are compared by: the expected time, where any has one (those without come last); else the bound; else FLOPs.
enum class By : std::uint8_t { ms, ms_at_least, flops };

struct Search {
  std::vector<Setting> all;  // fastest first, then smaller peak first
  std::size_t done = 0, asked = 0;
  By by = By::ms;
  double cost(const Setting&) const;            // infinite: it cannot be compared
  bool whole() const { return done == asked; }  // else it was stopped
  std::string how_far() const { return fmt::format("{} of {} settings", done, asked); }
};
Search settings_of(const Plan&);

std::vector<engine::Recipe> recipes_or_why_none(const Plan&);  // an Error where there is none
std::string host_left_out(const Plan&);                        // why no setting keeps on the host; empty: some may, or none was asked for
std::string left_out(const Plan&, Precision, const std::vector<Setting>& all);  // why nothing was counted in it; empty: something was

}  // namespace headroom::studies
