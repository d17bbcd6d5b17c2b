#include "engine/forecast/links.h"

#include <algorithm>

namespace headroom::engine {

Links links_of(const Trace& t) {
  Links links;
  const auto lane = [&](const dist::Lane* l) {
    const auto at = std::find(links.lanes.begin(), links.lanes.end(), l) - links.lanes.begin();
    if (at == std::ptrdiff_t(links.lanes.size())) links.lanes.push_back(l);
    return int(at);
  };
  std::size_t call = 0, ops = 0;
  const bool second = t.second_ops != Trace::Stretch{};
  const auto marks_at = [&](std::size_t n) {
    if (second && n == t.second_calls.begin) links.all.push_back({.kind = Link::Kind::second_begins});
    if (second && n == t.second_calls.end) links.all.push_back({.kind = Link::Kind::second_ends});
  };
  const auto calls_until = [&](std::size_t end) {
    for (; call < end; ++call) {
      marks_at(call);
      const dist::Sent& s = t.calls[call];
      links.all.push_back({.kind = Link::Kind::call,
                           .ops_before = s.step - ops,
                           .lane = lane(s.lane),
                           .bytes = s.bytes,
                           .link_bytes = s.link_bytes,
                           .ms = s.link_ms});
      ops = s.step;
    }
  };
  for (const dist::Joint& j : t.joints) {
    calls_until(j.calls);
    links.all.push_back(
        {.kind = Link::Kind::joint, .ops_before = j.step - ops, .lane = lane(j.lane), .mark = j.mark, .joint = j.kind, .ms = j.ms});
    ops = j.step;
  }
  calls_until(t.calls.size());
  marks_at(t.calls.size());
  return links;
}

void put_links(const std::vector<Link>& links, const std::vector<const dist::Lane*>& lanes, Trace& t) {
  std::size_t ops = 0;
  for (const Link& l : links) {
    ops += l.ops_before;
    const dist::Lane* lane = lanes[std::size_t(l.lane)];
    switch (l.kind) {
      case Link::Kind::second_begins: t.second_calls.begin = t.calls.size(); break;
      case Link::Kind::second_ends: t.second_calls.end = t.calls.size(); break;
      case Link::Kind::call:
        t.calls.push_back({.call = {},
                           .what = "",
                           .dtype = {},
                           .bytes = l.bytes,
                           .link_bytes = l.link_bytes,
                           .link_ms = l.ms,
                           .lane = lane,
                           .step = ops});
        break;
      case Link::Kind::joint: t.joints.push_back({l.joint, lane, l.mark, t.calls.size(), ops, l.ms}); break;
    }
  }
}

}  // namespace headroom::engine
