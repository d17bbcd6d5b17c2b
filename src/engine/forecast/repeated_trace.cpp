// The trace of a deep model from shallow ones.
#include <algorithm>
#include <numeric>
#include <string>

#include "engine/forecast/growth.h"
#include "engine/forecast/links.h"
#include "engine/forecast/op_kinds.h"
#include "engine/forecast/trace.h"
#include "engine/pass/training.h"

namespace headroom::engine {

namespace {

struct MovedMore {
  std::optional<Trace::Moved> operator()(const Trace::Moved& a, const Trace::Moved& b, const Trace::Moved* c, std::int64_t n) const {
    const auto made_alike = [&](const Trace::Moved& m) { return !m.ends && m.taken == Arena::rounded(m.bytes) && m.phase == a.phase; };
    const auto bytes = evenly(a, b, c, n, [](const Trace::Moved& m) { return m.bytes; });
    if (!bytes || !made_alike(a) || !made_alike(b) || (c && !made_alike(*c))) return {};
    return Trace::Moved{false, std::size_t(*bytes), Arena::rounded(std::size_t(*bytes)), a.phase};
  }
};

// An op over all weights costs more in a deeper model.
struct CostsMore {
  std::vector<OpCall>* kinds;
  Kinds* numbers;
  std::optional<std::uint32_t> operator()(std::uint32_t a, std::uint32_t b, const std::uint32_t* c, std::int64_t n) const {
    const auto bounds = [&](std::uint32_t op) { return op >= kinds->size(); };  // the second micro-batch
    if (bounds(a) || bounds(b) || (c && bounds(*c))) return {};
    const OpCall first = (*kinds)[a], second = (*kinds)[b], third = (*kinds)[c ? *c : a];
    const auto more = [&](double Cost::*of) {
      return evenly(first, second, c ? &third : nullptr, n, [of](const OpCall& s) { return s.cost.*of; });
    };
    const auto flops = more(&Cost::flops), bytes = more(&Cost::bytes), link = more(&Cost::link_bytes);
    if (!flops || !bytes || !link) return {};
    const auto costing = [&](OpCall s) {
      s.cost.flops = *flops, s.cost.bytes = *bytes, s.cost.link_bytes = *link;
      return s;
    };
    if (cost_of(costing(second)) != cost_of(costing(first)) || cost_of(costing(third)) != cost_of(costing(first))) return {};
    return numbers->of(costing(first));
  }
};

// Ops of blocks that send nothing come before it.
struct WaitsForMore {
  std::optional<Link> operator()(const Link& a, const Link& b, const Link* c, std::int64_t n) const {
    const auto ops = evenly(a, b, c, n, [](const Link& l) { return l.ops_before; });
    if (!ops) return {};
    const auto after = [&](Link l) {
      l.ops_before = std::size_t(*ops);
      return l;
    };
    if (after(b) != after(a) || (c && after(*c) != after(a))) return {};
    return after(a);
  }
};

constexpr std::uint32_t second_begins = ~0u, second_ends = ~0u - 1;  // among numbers of kinds

std::vector<std::uint32_t> ops_of(const Trace& t, Kinds& kinds) {
  std::vector<std::uint32_t> renamed, all;
  for (const OpCall& k : t.kinds) renamed.push_back(kinds.of(k));
  const bool second = t.second_ops != Trace::Stretch{};
  all.reserve(t.ops.size() + 2);
  for (std::size_t i = 0; i <= t.ops.size(); ++i) {
    if (second && i == t.second_ops.begin) all.push_back(second_begins);
    if (second && i == t.second_ops.end) all.push_back(second_ends);
    if (i < t.ops.size()) all.push_back(renamed[t.ops[i]]);
  }
  return all;
}

// Blocks from `first` on repeat themselves after `period` of them.
struct Pattern {
  int first, period;
};
std::optional<Pattern> pattern_of(const Recipe& r) {
  constexpr int most_first = 4, most_period = 6;
  const auto& layers = r.model.layers;
  for (int period = 1; period <= most_period; ++period)
    for (int first = 0; first <= most_first && first + 2 * period <= int(layers.size()); ++first)
      if (std::equal(layers.begin() + first + period, layers.end(), layers.begin() + first)) return Pattern{first, period};
  return {};
}

// What a step takes from its number of blocks is said: the blocks of a group, and the rows of logits at once.
Recipe of_depth(const Recipe& r, const Device& device, const Pattern& p, int depth) {
  Recipe shallow = r;
  const DType stored = r.formats().stored.dtype;
  if (r.loss_rows == 0) shallow.loss_rows = chunk_of(r.model, stored, type_of(r.logits, stored), device, r.rows_of_rank());
  auto& layers = shallow.model.layers;
  layers.erase(layers.begin() + p.first, layers.begin() + p.first + (r.model.depth() - depth));
  shallow.keep.group = r.group();
  if (r.host() > 0) shallow.keep.host = depth;
  return shallow;
}

// A trace as sequences that can be held against each other.
struct Sequences {
  std::vector<std::uint32_t> ops;
  Links links;
  std::vector<Trace::Moved> made, moved;  // before the first pass, and after
  double host_bytes, host_moved_bytes;
  std::shared_ptr<const void> run;
  bool on_host;

  Sequences(const Trace& t, Kinds& kinds)
      : ops(ops_of(t, kinds)),
        links(links_of(t)),
        made(t.moved.begin(), t.moved.begin() + std::ptrdiff_t(t.standing)),
        moved(t.moved.begin() + std::ptrdiff_t(t.standing), t.moved.end()),
        host_bytes(double(t.host_bytes)),
        host_moved_bytes(t.host_moved_bytes),
        run(t.run),
        on_host(t.on_host) {}
};

// third: whether a third depth shows that what the first two say goes on.
std::optional<Trace> repeated(const Recipe& r, const Device& device, int workers, const Pattern& p, int depth, int period, bool third) {
  Trace t;
  Kinds kinds(t.kinds);
  const auto walked = [&](int periods) {
    return Sequences(walked_trace(of_depth(r, device, p, depth + periods * period), device, workers, nullptr, nullptr), kinds);
  };
  const Sequences a = walked(0), b = walked(1);
  std::optional<Sequences> c;
  if (third) c.emplace(walked(2));
  const auto of_c = [&](auto Sequences::*part) { return c ? &((*c).*part) : nullptr; };
  const Growth ops(a.ops, b.ops, of_c(&Sequences::ops), CostsMore{&t.kinds, &kinds});
  const Growth links(a.links.all, b.links.all, c ? &c->links.all : nullptr, WaitsForMore{});
  const Growth made(a.made, b.made, of_c(&Sequences::made), MovedMore{}), moved(a.moved, b.moved, of_c(&Sequences::moved), MovedMore{});
  const std::int64_t n = (r.model.depth() - depth) / period;
  const auto more = [&](double Sequences::*part) {
    return evenly(a, b, c ? &*c : nullptr, n, [part](const Sequences& s) { return s.*part; });
  };
  const auto host_bytes = more(&Sequences::host_bytes), host_moved_bytes = more(&Sequences::host_moved_bytes);
  if (!ops.known() || !links.known() || !made.known() || !moved.known() || !host_bytes || !host_moved_bytes) return {};
  for (const std::uint32_t op : ops.deeper(n)) {
    if (op == second_begins)
      t.second_ops.begin = t.ops.size();
    else if (op == second_ends)
      t.second_ops.end = t.ops.size();
    else
      t.ops.push_back(op);
  }
  put_links(links.deeper(n), a.links.lanes, t);
  t.moved = made.deeper(n);
  t.standing = t.moved.size();
  const auto rest = moved.deeper(n);
  t.moved.insert(t.moved.end(), rest.begin(), rest.end());
  t.on_host = a.on_host, t.host_bytes = std::size_t(*host_bytes), t.host_moved_bytes = *host_moved_bytes;
  t.run = a.run;
  return t;
}

// Recipes that differ in the number and the length of their sequences alone make the same sequence of calls: a search shows once for them
// that a model repeats itself. One model's are remembered.
class Shown {
 public:
  Shown(const Recipe& r, const Device& device)
      : of_{r.levers(), r.purpose, std::min(r.micro_batches, 3), r.ranks.count, r.ranks.sharding, r.ranks.split_tokens, device.name} {
    if (known().model != r.model) known() = {r.model, {}};
  }
  bool before() const { return std::find(known().all.begin(), known().all.end(), of_) != known().all.end(); }
  void remember() { known().all.push_back(std::move(of_)); }

 private:
  struct Of {
    Levers levers;
    Purpose purpose;
    int micro_batches, ranks;
    Sharding sharding;
    bool split_tokens;
    std::string device;
    friend bool operator==(const Of&, const Of&) = default;
  };
  struct Known {
    Decoder model;
    std::vector<Of> all;
  };
  static Known& known() {
    thread_local Known of_thread;
    return of_thread;
  }
  Of of_;
};

}  // namespace

std::optional<Trace> repeated_trace(const Recipe& r, const Device& device, int workers) {
  const int depth = int(r.model.depth());
  const bool some_on_host = r.host() > 0 && (r.host() < depth || r.keep.first() == Keep::input);
  if (r.keep.levels.size() != 1 || some_on_host) return {};
  const auto pattern = pattern_of(r);
  if (!pattern) return {};
  const int period = std::lcm(std::lcm(2, pattern->period), r.group());  // what takes turns, two by two, is in the same turn
  const int turns = r.host() > 0 ? 4 : 2;                                // blocks at the edges that are not like those in the middle
  Shown shown(r, device);
  const bool third = !shown.before();
  for (const int edge : {turns, turns + 2}) {
    const int least = pattern->first + period + edge;
    if (depth < least) return {};
    const int shallow = least + (depth - least) % period;
    if (2 * shallow + period > depth * 3 / 4 || shallow + 2 * period > depth) return {};  // those that are walked are hardly shallower
    auto t = repeated(r, device, workers, *pattern, shallow, period, third);
    if (!t) continue;
    if (third) shown.remember();
    return t;
  }
  return {};
}

}  // namespace headroom::engine
