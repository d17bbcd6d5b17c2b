#include "instruments/profile/record.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "gpu/range.h"
#include "instruments/profile/activity.h"
#include "instruments/profile/activity_file.h"

namespace headroom::profile {

namespace {

struct Heard {  // from CUPTI's thread
  std::mutex mutex;
  struct Item {
    Slice slice;
    std::uint32_t correlation;
    std::uint64_t node;
  };
  std::vector<Item> items;
  std::unordered_map<std::uint32_t, int> links;  // correlation to mark
  double overhead_ns = 0;
};
Heard& heard = *new Heard;  // CUPTI's thread may outlive every destructor

void on_activity(const Activity& a) {
  const std::lock_guard lock(heard.mutex);
  using Kind = Activity::Kind;
  if (a.kind == Kind::link) heard.links[a.correlation] = int(a.id);
  if (a.kind == Kind::overhead) heard.overhead_ns += double(a.end_ns - a.start_ns);
  if (a.kind != Kind::kernel && a.kind != Kind::copy && a.kind != Kind::fill) return;
  const SliceKind kind = a.kind == Kind::kernel ? SliceKind::kernel : a.kind == Kind::copy ? SliceKind::copy : SliceKind::fill;
  heard.items.push_back(
      {{a.name ? a.name : "?", kind, -1, 0, a.start_ns, a.end_ns, int(a.stream), std::int64_t(a.bytes)}, a.correlation, a.id});
}

class GpuEcho final : public Echo {  // what is launched from here on belongs to the mark; Nsight sees the same names
 public:
  void begin(int mark, const Region& r) override {
    push_link(std::uint64_t(mark));
    push_range(r.name.full().c_str());
  }
  void end() noexcept override {
    pop_range();
    pop_link();
  }
};

}  // namespace

Recording::Recording(const Ledger* ledger) : ledger_(ledger), marks_(ledger), events_before_(ledger ? ledger->events().size() : 0) {}

Recording::Recording(const Ledger* ledger, std::function<void()> wait)
    : ledger_(ledger),
      wait_(std::move(wait)),
      echo_(std::make_unique<GpuEcho>()),
      marks_(ledger, echo_.get()),
      events_before_(ledger ? ledger->events().size() : 0) {
  heard.items.clear(), heard.links.clear(), heard.overhead_ns = 0;
  const std::string why = start_activity({.launches = false, .ranges = false, .memory = false, .links = true}, on_activity, [] {});
  check(why.empty(), Code::unsupported, "profile: what the GPU does cannot be recorded: {}", why);
}

Recording::~Recording() {
  if (wait_) stop_activity();
}

void Recording::step(const std::function<void()>& call) {
  if (wait_) wait_();  // what was queued before is no part of it
  if (steps_.empty()) origin_ns_ = now_ns();
  first_event_ = ledger_ ? ledger_->events().size() : 0;
  const auto start = now_ns();
  call();
  if (wait_) wait_();
  steps_.push_back({start - origin_ns_, now_ns() - origin_ns_});
}

Timeline Recording::timeline() const { return wait_ ? gpu_timeline() : host_timeline(); }

double Recording::overhead_ns() const {
  const double steps = double(std::max<std::size_t>(1, steps_.size()));
  return wait_ ? heard.overhead_ns / steps : mark_cost_ns() * double(marks_.all().size()) / steps;
}

Timeline Recording::host_timeline() const {
  Timeline t;
  t.marks = marks_.all();
  t.steps = steps_;
  t.slices = host_slices(t.marks, steps_, origin_ns_);
  if (!ledger_ || steps_.empty()) return t;
  std::vector<std::pair<std::uint32_t, std::int64_t>> when;
  for (const Mark& m : t.marks) {
    if (m.begin_ns - origin_ns_ < steps_.back().start_ns) continue;
    when.emplace_back(m.events_begin, m.begin_ns - origin_ns_);
    when.emplace_back(m.events_end, m.end_ns - origin_ns_);
  }
  when.emplace_back(std::uint32_t(ledger_->events().size()), steps_.back().end_ns);
  std::sort(when.begin(), when.end());
  t.memory = memory_of(*ledger_, first_event_, ledger_->events().size(), when);
  return t;
}

// A step is what the device did between the call and the end of its wait, from the first slice to the last.
Timeline Recording::gpu_timeline() const {
  flush_activity(true);
  const std::lock_guard lock(heard.mutex);
  Timeline t;
  t.marks = marks_.all();
  for (const auto& item : heard.items) {
    Slice s = item.slice;
    s.start_ns -= origin_ns_, s.end_ns -= origin_ns_;
    const auto step = std::find_if(steps_.begin(), steps_.end(),
                                   [&](const Span& span) { return s.start_ns >= span.start_ns && s.start_ns < span.end_ns; });
    if (step == steps_.end()) continue;  // a warm-up
    s.step = int(step - steps_.begin());
    s.kernel = readable(s.kernel);
    const auto link = heard.links.find(item.correlation);
    s.mark = item.node != 0 ? mark_of_node(item.node) : link != heard.links.end() ? link->second : -1;
    t.slices.push_back(std::move(s));
  }
  std::stable_sort(t.slices.begin(), t.slices.end(), [](const Slice& a, const Slice& b) { return a.start_ns < b.start_ns; });
  for (const Span& host : steps_) t.steps.push_back({host.end_ns, host.start_ns});
  for (const Slice& s : t.slices) {
    Span& span = t.steps[std::size_t(s.step)];
    span.start_ns = std::min(span.start_ns, s.start_ns), span.end_ns = std::max(span.end_ns, s.end_ns);
  }
  for (Span& span : t.steps)
    if (span.end_ns < span.start_ns) std::swap(span.start_ns, span.end_ns);  // nothing ran: the host's
  if (!ledger_) return t;
  std::vector<std::pair<std::uint32_t, std::int64_t>> when;
  for (const Slice& s : t.slices)
    if (s.mark >= 0 && s.step == int(steps_.size()) - 1) when.emplace_back(t.marks[std::size_t(s.mark)].events_begin, s.start_ns);
  std::sort(when.begin(), when.end());
  // The launch of a graph takes nothing from the arena: what its recording took is what it uses.
  const std::size_t last = ledger_->events().size(), first = first_event_ < last ? first_event_ : events_before_;
  t.memory = memory_of(*ledger_, first, last, when);
  return t;
}

}  // namespace headroom::profile
