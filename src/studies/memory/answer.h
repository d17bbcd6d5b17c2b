// The answer that a reader came for, in one line before any table: whether it fits, and if not, the cheapest combination that does.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "studies/memory/room.h"

namespace headroom::studies {

struct Besides {
  std::uint64_t peak_of_others = 0;  // the peak of other programs that have the same description
  std::uint64_t host_bytes = 0;      // held in the host's memory, of each GPU
  std::uint64_t pinned_bytes = 0;    // the part that a card maps
};

// "Fits on NVIDIA H200: 22.5 GiB of 139 GiB", or "Does not fit …"; where it fits, also what it takes of the host, and whether other programs
// would not.
std::string fits_in_words(const Room&, const Device&, std::uint64_t peak, Besides = {});
// "2 of 3 rows fit on NVIDIA H200 in 139 GiB"
std::string fits_in_words(const Room&, const Device&, std::size_t fitting, std::size_t rows);

template <class Row>
std::string rows_fit_in_words(const Room& room, const Device& device, const std::vector<Row>& rows) {
  Besides besides;
  if constexpr (requires(const Row& row) { row.at_most_bytes; }) besides.peak_of_others = rows.back().at_most_bytes;
  if constexpr (requires(const Row& row) { row.host_bytes; }) besides.host_bytes = rows.back().host_bytes;
  if (rows.size() == 1) return fits_in_words(room, device, rows.back().needed_bytes - room.overhead_bytes, besides);
  return fits_in_words(room, device, std::size_t(std::ranges::count(rows, true, &Row::fits)), rows.size());
}

// " As it is it takes 4 such GPUs …", where so many hold it; else empty.
std::string as_it_is_in_words(std::optional<int> gpus, std::string_view with = "");

// Less than this share of a peak is noise: a way that saves less is not shown.
constexpr double noise_share = 0.005;
constexpr bool is_noise(std::uint64_t now, std::uint64_t then, double share = noise_share) {
  return double(then) >= double(now) * (1 - share);
}

template <class Setting>
struct Lever {
  std::string words;
  std::function<bool(Setting&)> apply;  // false: it is there already, or cannot be had
};

template <class Setting>
struct Combination {
  Setting setting;
  std::vector<std::string> words;  // its levers' words
  std::uint64_t peak = 0;
  bool fits = false;
};

// Levers are pulled in their order, the cheapest first, until the setting fits; those that turn out not to be needed are let go, the
// costliest first. Where nothing fits it is the combination with the smallest peak, but for levers that save less than `noise` of it.
// peak_of: empty where such a setting is refused.
template <class Setting, class Peak, class Holds>
Combination<Setting> least_that_fits(const Setting& now, const std::vector<Lever<Setting>>& levers, Peak peak_of, Holds holds,
                                     double noise = noise_share) {
  std::vector<const Lever<Setting>*> pulled;
  const auto with = [&](const std::vector<const Lever<Setting>*>& some) -> std::optional<Combination<Setting>> {
    Combination<Setting> c{now, {}, 0, false};
    for (const auto* l : some) {
      if (!l->apply(c.setting)) return {};
      c.words.push_back(l->words);
    }
    const std::optional<std::uint64_t> peak = peak_of(c.setting);
    if (!peak) return {};
    c.peak = *peak, c.fits = holds(*peak);
    return c;
  };
  Combination<Setting> best{now, {}, peak_of(now).value_or(0), false};
  best.fits = best.peak > 0 && holds(best.peak);
  for (const auto& lever : levers) {
    if (best.fits) break;
    auto more = pulled;
    more.push_back(&lever);
    auto tried = with(more);
    if (!tried || (best.peak > 0 && tried->peak > best.peak)) continue;
    pulled = std::move(more), best = std::move(*tried);
  }
  for (std::size_t i = pulled.size(); i-- > 0 && pulled.size() > 1;) {
    auto fewer = pulled;
    fewer.erase(fewer.begin() + std::ptrdiff_t(i));
    const auto tried = with(fewer);
    if (tried && (best.fits ? tried->fits : is_noise(tried->peak, best.peak, noise))) pulled = std::move(fewer), best = *tried;
  }
  return best;
}

// The smallest power of two of GPUs whose peak holds, from 2 on; empty: not even 1024 of them.
template <class Fits>
std::optional<int> gpus_that_hold(Fits fits, int more_than = 1) {
  for (int n = 2 * more_than; n <= 1024; n *= 2)
    if (fits(n)) return n;
  return {};
}

}  // namespace headroom::studies
