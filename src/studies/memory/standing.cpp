#include "studies/memory/standing.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace headroom::studies {

std::vector<Standing> standing_by_name(const engine::Forecast& f) {
  struct Live {
    std::int64_t count = 0;
    std::uint64_t bytes = 0;
  };
  using Key = std::tuple<Phase, std::string, DType, std::vector<std::int64_t>>;
  const auto key_of = [](const Entry& e) {
    const auto& dim = e.shape.dim;
    return Key(e.phase, e.name.text, e.dtype, std::vector<std::int64_t>(dim.begin(), dim.begin() + e.shape.rank));
  };
  std::vector<Standing> all;
  std::map<Key, std::pair<std::size_t, Live>> known;  // where it is in `all`
  for (const auto& event : f.events) {
    const Entry& e = f.entries[event.entry];
    const auto [at, is_new] = known.try_emplace(key_of(e), all.size(), Live{});
    if (is_new) all.push_back({e});
    auto& [index, live] = at->second;
    live.count += event.take ? 1 : -1;
    live.bytes = event.take ? live.bytes + e.taken : live.bytes - e.taken;
    Standing& s = all[index];
    if (live.bytes <= s.bytes) continue;
    s.bytes = live.bytes;
    s.count = live.count;
    s.first = e;
  }
  for (const Entry& e : f.at_peak) all[known.at(key_of(e)).first].at_peak += e.taken;
  return all;
}

}  // namespace headroom::studies
