#include "engine/forecast/keep_auto.h"

#include <algorithm>

#include "base/host_memory.h"
#include "base/pinned_pages.h"
#include "base/text.h"
#include "gpu/architecture.h"

namespace headroom::engine {

namespace {

constexpr int levels = exact_levels;  // what rounds is only taken where it is asked for

std::vector<Keep> mixed(std::int64_t layers, std::int64_t less_of, Keep less, Keep more) {
  std::vector<Keep> all(std::size_t(layers), more);
  std::fill_n(all.begin(), less_of, less);
  return all;
}

bool may_wait_on_host(const Recipe& r, const Device& device) {
  return device.kind == DeviceKind::cuda && device.ceilings.host_bytes_per_s > 0 && r.model.trained() && r.purpose != Purpose::forward;
}

}  // namespace

std::optional<Keeping> keep_that_fits(Recipe r, std::size_t bytes, const Device& device, int workers) {
  const std::int64_t layers = r.model.depth();
  r.keep.group = 1, r.keep.host = 0;
  const auto fits = [&](std::int64_t less_of, Keep less, Keep more) {
    r.keep.levels = mixed(layers, less_of, less, more);
    return forecast_peak(r, device, workers) <= bytes;
  };
  const auto cost = [&] {  // r's; FLOPs where the device's ceilings are not known: then none is known
    const Forecast f = forecast(r, device, workers);
    return std::pair(f.ms > 0 ? f.ms : f.flops, f.bytes);
  };
  std::optional<Keeping> best;
  std::pair<double, double> least;
  const auto offer = [&](std::int64_t less_of, Keep less, Keep more) {
    r.keep.levels = mixed(layers, less_of, less, more);
    if (const auto c = cost(); !best || c < least) best = r.keep, least = c;
  };
  for (int more = 0; more < levels; ++more) {
    if (fits(0, Keep(more), Keep(more))) {
      offer(0, Keep(more), Keep(more));
      break;  // keeping less than that is slower
    }
    for (int less = more + 1; less < levels; ++less) {
      if (!fits(layers, Keep(less), Keep(more))) continue;
      std::int64_t low = 0, high = layers;  // blocks that keep less: too few, enough
      while (high - low > 1) {
        const std::int64_t middle = (low + high) / 2;
        (fits(middle, Keep(less), Keep(more)) ? high : low) = middle;
      }
      offer(high, Keep(less), Keep(more));
    }
  }
  if (may_wait_on_host(r, device)) {
    const std::uint64_t room = host_memory_for(device, r.ranks.count);
    for (int level = 0; level < int(Keep::input); ++level) {
      const auto fits_with = [&](std::int64_t on_host) {
        r.keep.host = int(on_host), r.keep.levels = {Keep(level)};
        if (forecast_peak(r, device, workers) > bytes) return false;
        const ForecastTotals f = forecast_totals(r, device, workers);
        return f.peak_bytes + bytes_of_pinned_pages(f.host_bytes, mapping_ranks(r.ranks.count)) <= bytes;
      };
      if (fits_with(0)) break;
      if (!fits_with(layers)) continue;
      std::int64_t low = 0, high = layers;  // blocks on the host: too few, enough
      while (high - low > 1) {
        const std::int64_t middle = (low + high) / 2;
        (fits_with(middle) ? high : low) = middle;
      }
      r.keep.host = int(high);
      r.keep.levels = {Keep(level)};
      if (forecast(r, device, workers).host_bytes <= room) offer(0, Keep(level), Keep(level));
    }
  }
  if (!best) return best;
  auto& found = best->levels;
  if (std::all_of(found.begin(), found.end(), [&](Keep k) { return k == found.front(); })) found.resize(1);  // one for all
  return best;
}

void find_keep(Recipe& recipe, std::size_t bytes, const Device& device, int workers) {
  if (recipe.keep.found()) return;
  if (auto found = keep_that_fits(recipe, bytes, device, workers)) {
    recipe.keep = *std::move(found);
    return;
  }
  Recipe least = recipe;
  least.keep = {Keep(levels - 1)};
  throw Error(Code::out_of_memory,
              fmt::format("--keep auto: {} are available, and with every block made again this needs {}; try a smaller batch or --shard",
                          bytes_in_words(double(bytes)), bytes_in_words(double(forecast_peak(least, device, workers)))));
}

std::string kept_in_words(const Recipe& r) { return WordsOf<Keeping>::to(r.kept_as()); }

}  // namespace headroom::engine
