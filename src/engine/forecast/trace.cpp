#include "engine/forecast/trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/interrupt.h"
#include "engine/pass/training.h"

namespace headroom::engine {

void walk_passes(Training& t, const std::function<void(bool begins)>& around_second) {
  const Recipe& recipe = t.recipe();
  const int micros = recipe.micro_batches;
  if (recipe.purpose == Purpose::forward) return t.forward();
  if (recipe.purpose == Purpose::training && !recipe.knows_norm()) return t.passes(recipe.hyper());
  t.backward();
  if (around_second && micros > 2) {
    around_second(true);
    t.backward(1);
    around_second(false);
  }
  if (micros > 1) t.backward(micros - 1);
  if (recipe.purpose == Purpose::training) t.update(recipe.hyper());
}

namespace {

// The numbers by which ops differ here.
auto cost_of(const OpCall& s) {
  const auto& [m, n, k, batch] = s.cost.sides;
  const auto& [launches, again, in_turn, older, tf32_products, units_us] = s.cost.on_card;
  return std::tuple(s.cost.flops, s.cost.bytes, s.cost.link_bytes, s.times, m, n, k, batch, launches, again, in_turn, older, tf32_products,
                    units_us, makes_weights(s), s.precision.dtype, s.precision.math, s.work, s.making);
}

class Kinds {  // numbers different ops
 public:
  explicit Kinds(std::vector<OpCall>& all) : all_(all) {}
  std::uint32_t of(const OpCall& s) {
    std::uint64_t mixed = 0;
    std::apply([&](auto... x) { ((mixed = (mixed + bits(x)) * 0x9E3779B97F4A7C15u, mixed ^= mixed >> 29), ...); }, cost_of(s));
    for (auto [at, end] = known_.equal_range(mixed); at != end; ++at)
      if (cost_of(all_[at->second]) == cost_of(s)) return at->second;
    known_.emplace(mixed, std::uint32_t(all_.size()));
    all_.push_back(s);
    return std::uint32_t(all_.size() - 1);
  }

 private:
  template <class T>
  static std::uint64_t bits(T x) {
    std::uint64_t b = 0;
    std::memcpy(&b, &x, sizeof x);
    return b;
  }
  std::vector<OpCall>& all_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> known_;
};

struct TracedRun {  // a dry run with everything that its trace points to
  Ledger ledger;
  Walk walk;
  Arena arena{&ledger};
  Context ctx;
  dist::DryComm comm;
  std::optional<Training> step;

  TracedRun(const Recipe& r, const Device& device, int workers)
      : ctx{arena, device}, comm(0, r.ranks.count, device.ceilings.link_bytes_per_s, [this] { return walk.steps.size(); }) {
    ctx.dry_workers = workers;
    ctx.walk = &walk;
    step.emplace(r, ctx, &comm);
  }
};

}  // namespace

Trace walked_trace(const Recipe& recipe, const Device& device, int workers, Ledger* ledger, Walk* walk) {
  stop_if_interrupted();                  // a model of thousands of layers takes a second, and commands ask for dozens
  thread_local std::size_t most_ops = 0;  // the last run's count: runs are much alike
  const auto run = std::make_shared<TracedRun>(recipe, device, workers);
  run->walk.steps.reserve(most_ops);
  Trace t;
  t.standing = run->ledger.events().size();
  walk_passes(*run->step, [&](bool begins) {
    (begins ? t.second_ops.begin : t.second_ops.end) = run->walk.steps.size();
    (begins ? t.second_calls.begin : t.second_calls.end) = run->comm.log().size();
  });
  if (const HostKeep* host = run->step->host_keep())
    t.on_host = true, t.host_bytes = host->host_bytes(), t.host_moved_bytes = host->moved_bytes();
  most_ops = run->walk.steps.size();
  Kinds kinds(t.kinds);
  t.ops.reserve(most_ops);
  for (const OpCall& s : run->walk.steps) t.ops.push_back(kinds.of(s));
  t.moved.reserve(run->ledger.events().size());
  for (const Ledger::Event& e : run->ledger.events()) {
    const Entry& entry = run->ledger.entries()[e.entry];
    t.moved.push_back(e.take ? Trace::Moved{false, entry.bytes, entry.taken, entry.phase} : Trace::Moved{.ends = true});
  }
  t.calls = run->comm.log();
  t.joints = run->comm.joints();
  if (ledger) *ledger = std::move(run->ledger);
  if (walk) *walk = std::move(run->walk);
  t.run = run;
  return t;
}

namespace {

// What two equal stretches of calls and joints have in common. A step's place is told from the one before, a lane by its turn.
struct Link {
  enum class Kind : std::uint8_t { second_begins, second_ends, call, joint };
  Kind kind{};
  std::size_t ops_before = 0;  // since the link before
  int lane = 0, mark = 0;      // lane 0: the main queue
  dist::Joint::Kind joint{};
  std::size_t bytes = 0;
  double link_bytes = 0, ms = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

struct Links {
  std::vector<Link> all;
  std::vector<const dist::Lane*> lanes{nullptr};
};

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

// One sequence at depths that are a period apart. Where the deeper ones are longer they repeat what is before; where one thing differs, it
// grows by the same amount each time: `grown(a, b, c, n)` is that thing n periods deeper than a, or nothing. The third, c, shows that this
// goes on; without it (null) that is taken for granted.
template <class T, class Grown>
class Growth {
 public:
  Growth(const std::vector<T>& a, const std::vector<T>& b, const std::vector<T>* c, Grown grown) : a_(a), b_(b), c_(c), grown_(grown) {
    std::size_t i = 0, j = 0, k = 0;
    while (i < a.size() || j < b.size()) {
      if (alike(i, j, k)) {
        ++i, ++j, ++k;
      } else if (const std::size_t n = repeats(i, j, k)) {
        insertions_.push_back({i, j, n});
        j += n, k += 2 * n;
      } else if (i < a.size() && j < b.size() && (!c || k < c->size()) && grown_(a[i], b[j], at(k), 2)) {
        changes_.push_back({i, j, k});
        ++i, ++j, ++k;
      } else {
        return;
      }
    }
    known_ = !c || k == c->size();
  }
  bool known() const { return known_; }

  std::vector<T> deeper(std::int64_t periods) const {
    std::vector<T> all;
    std::size_t added = 0;
    for (const Insertion& in : insertions_) added += in.count;
    all.reserve(a_.size() + added * std::size_t(periods));
    std::size_t i = 0;
    auto change = changes_.begin();
    const auto until = [&](std::size_t end) {
      for (; change != changes_.end() && change->i < end; ++change) {
        all.insert(all.end(), a_.begin() + std::ptrdiff_t(i), a_.begin() + std::ptrdiff_t(change->i));
        all.push_back(*grown_(a_[change->i], b_[change->j], at(change->k), periods));
        i = change->i + 1;
      }
      all.insert(all.end(), a_.begin() + std::ptrdiff_t(i), a_.begin() + std::ptrdiff_t(end));
      i = end;
    };
    for (const Insertion& in : insertions_) {
      until(in.i);
      for (std::int64_t n = 0; n < periods; ++n)
        all.insert(all.end(), b_.begin() + std::ptrdiff_t(in.j), b_.begin() + std::ptrdiff_t(in.j + in.count));
    }
    until(a_.size());
    return all;
  }

 private:
  struct Insertion {
    std::size_t i, j, count;  // before a[i]: b[j] to b[j + count − 1]
  };
  struct Change {
    std::size_t i, j, k;
  };
  const T* at(std::size_t k) const { return c_ ? &(*c_)[k] : nullptr; }
  bool alike(std::size_t i, std::size_t j, std::size_t k) const {
    return i < a_.size() && j < b_.size() && a_[i] == b_[j] && (!c_ || (k < c_->size() && b_[j] == (*c_)[k]));
  }
  // The length of what b has here once more, and c twice; 0: nothing.
  std::size_t repeats(std::size_t i, std::size_t j, std::size_t k) const {
    const auto equal = [](const T* x, const T* y, std::size_t n) { return std::equal(x, x + n, y); };
    const auto twice_in_c = [&](std::size_t n) {
      return k + 2 * n <= c_->size() && equal(&b_[j], at(k), n) && equal(&b_[j], at(k + n), n);
    };
    for (std::size_t n = 1; n <= j && j + n <= b_.size(); ++n) {
      if (!equal(&b_[j - n], &b_[j], n) || (c_ && !twice_in_c(n))) continue;
      const bool ends = i == a_.size() && j + n == b_.size() && (!c_ || k + 2 * n == c_->size());
      if (ends || alike(i, j + n, k + 2 * n)) return n;
    }
    return 0;
  }

  const std::vector<T>&a_, &b_;
  const std::vector<T>* c_;
  Grown grown_;
  std::vector<Insertion> insertions_;
  std::vector<Change> changes_;
  bool known_ = false;
};

// Whole numbers x, y and, where it is known, z grow evenly: the one that is n steps from x.
std::optional<double> evenly(double x, double y, std::optional<double> z, std::int64_t n) {
  constexpr double exact = 0x1p53;
  const double end = x + double(n) * (y - x);
  if ((z && *z - y != y - x) || x != std::floor(x) || y != std::floor(y) || std::abs(end) >= exact) return {};
  return end;
}

template <class T, class Of>
std::optional<double> evenly(const T& a, const T& b, const T* c, std::int64_t n, Of&& of) {
  return evenly(double(of(a)), double(of(b)), c ? std::optional(double(of(*c))) : std::nullopt, n);
}

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
