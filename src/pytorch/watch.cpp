#include "pytorch/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace headroom::pytorch {

void Watch::start() {
  standing_ = memory_.standing();
  first_event_ = memory_.events().size();
  live_ = memory_.live();
  saved_.clear();
  memory_.start_peak();
}

void Watch::mark_saved() {
  saved_.clear();
  for (const auto i : memory_.standing())
    if (i >= first_piece_ && memory_.pieces()[i].phase == Phase::forward && !std::binary_search(standing_.begin(), standing_.end(), i))
      saved_.push_back(i);
  saved_event_ = memory_.events().size();
}

std::uint64_t Watch::workspaces() const {
  std::uint64_t bytes = 0;
  for (const Piece& p : memory_.pieces())
    if (p.live && p.phase == Phase::workspace) bytes += p.taken;
  return bytes;
}

std::vector<Shape> Watch::shapes() const {
  std::vector<Shape> out;
  for (std::size_t i = first_piece_; i < memory_.pieces().size(); ++i)
    if (memory_.pieces()[i].phase != Phase::workspace) out.push_back(memory_.pieces()[i].shape);
  return out;
}

void Watch::describe(Account& a, bool forward_only, const std::vector<Shape>& probe, std::span<const Symbol> symbols) const {
  const auto& events = memory_.events();
  const auto& pieces = memory_.pieces();
  const std::size_t end = end_event_ > 0 ? end_event_ : events.size();
  std::uint64_t top = live_;
  std::size_t top_event = first_event_;
  for (std::size_t e = first_event_; e < (forward_only ? saved_event_ : end); ++e)
    if (events[e].live > top) {
      top = events[e].live;
      top_event = e + 1;
    }

  const auto phase_of = [&](std::uint32_t i) {
    return std::binary_search(saved_.begin(), saved_.end(), i) ? Phase::saved : pieces[i].phase;
  };
  for (const auto i : standing_) a.at_start[std::size_t(phase_of(i))] += std::int64_t(pieces[i].taken);
  std::set<std::uint32_t> involved(standing_.begin(), standing_.end()), at_peak = involved;
  for (std::size_t e = first_event_; e < end; ++e) {
    const auto& event = events[e];
    const std::uint64_t before = e == first_event_ ? live_ : events[e - 1].live;
    a.timeline.push_back({(event.take ? "+ " : "- ") + pieces[event.piece].name, event.live, phase_of(event.piece),
                          std::int64_t(event.live) - std::int64_t(before)});
    involved.insert(event.piece);
    if (e >= top_event) continue;
    if (event.take)
      at_peak.insert(event.piece);
    else
      at_peak.erase(event.piece);
  }
  a.peak_moment = top_event > first_event_ ? top_event - first_event_ - 1 : 0;

  std::map<std::uint32_t, std::size_t> place;  // a piece's place in the probe
  for (std::size_t i = first_piece_, n = 0; i < pieces.size(); ++i)
    if (pieces[i].phase != Phase::workspace) place[std::uint32_t(i)] = n++;
  for (const auto i : involved) {
    const Piece& p = pieces[i];
    Component c{p.name, shape_text(p.shape),           std::string(name_of(p.dtype)), p.bytes, p.taken,
                "",     std::string(name_of(p.phase)), at_peak.contains(i),           0};
    if (std::binary_search(saved_.begin(), saved_.end(), i)) c.phase = name_of(Phase::saved);
    const auto at = place.find(i);
    c.formula = p.phase == Phase::workspace ? fmt::format("{} (of the process)", p.bytes)
                                            : formula_of(at != place.end() && at->second < probe.size() ? probe[at->second] : p.shape,
                                                         p.shape, size_of(p.dtype), symbols);
    if (c.at_peak && top > 0) c.share = double(p.taken) / double(top);
    a.components.push_back(std::move(c));
  }
}

}  // namespace headroom::pytorch
