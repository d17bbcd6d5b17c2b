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
Heard& heard = *new Heard;  // never destroyed: CUPTI's thread may outlive every destructor

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

class GpuEcho final : public Echo {  // later launches belong to the mark; Nsight sees the same names
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

// Writes finished slices into the trace from time to time, between two ops.
class Recording::HostEcho final : public Echo {
 public:
  explicit HostEcho(Recording& r) : recording_(r) {}
  void begin(int, const Region& r) override {
    open_ops_ += r.kind != Region::Kind::module;
    kinds_.push_back(r.kind);
  }
  void end() noexcept override {
    const auto kind = kinds_.back();
    kinds_.pop_back();
    if (kind == Region::Kind::module || --open_ops_ > 0 || now_ns() < recording_.written_.at_ns + apart_ns) return;
    try {
      const auto start = now_ns();
      recording_.write_host();
      recording_.written_.took_ns += now_ns() - start;
    } catch (const std::exception&) {  // no memory: what is left is written at the end of the step, or it says so
    }
  }

 private:
  static constexpr std::int64_t apart_ns = 100'000'000;
  Recording& recording_;
  std::vector<Region::Kind> kinds_;
  int open_ops_ = 0;
};

Recording::Recording(const Ledger* ledger, TimelineTrace* trace)
    : ledger_(ledger),
      trace_(trace),
      echo_(trace ? std::make_unique<HostEcho>(*this) : nullptr),
      marks_(ledger, echo_.get()),
      events_before_(ledger ? ledger->events().size() : 0) {}

Recording::Recording(const Ledger* ledger, std::function<void()> wait, TimelineTrace* trace)
    : ledger_(ledger),
      wait_(std::move(wait)),
      trace_(trace),
      echo_(std::make_unique<GpuEcho>()),
      marks_(ledger, echo_.get()),
      events_before_(ledger ? ledger->events().size() : 0) {
  heard.items.clear();
  heard.links.clear();
  heard.overhead_ns = 0;
  const std::string why = start_activity({.launches = false, .ranges = false, .memory = false, .links = true}, on_activity, [] {});
  check(why.empty(), Code::unsupported, "profile: what the GPU does cannot be recorded: {}", why);
}

Recording::~Recording() {
  if (wait_) stop_activity();
}

void Recording::step(const std::function<void()>& call) {
  if (wait_) wait_();  // work queued before does not belong to it
  if (steps_.empty()) origin_ns_ = now_ns();
  first_event_ = written_.events = ledger_ ? ledger_->events().size() : 0;
  const auto start = step_start_ns_ = now_ns();
  if (written_.at_ns == 0) written_.at_ns = start;
  call();
  if (wait_) wait_();
  steps_.push_back({start - origin_ns_, now_ns() - origin_ns_});
  if (trace_) wait_ ? write_gpu() : write_host();
}

Timeline Recording::timeline() const { return wait_ ? gpu_timeline() : host_timeline(); }

double Recording::overhead_ns() const {
  const double steps = double(std::max<std::size_t>(1, steps_.size()));
  return wait_ ? heard.overhead_ns / steps : (mark_cost_ns() * double(marks_.all().size()) + double(written_.took_ns)) / steps;
}

namespace {

using When = std::vector<std::pair<std::uint32_t, std::int64_t>>;  // the ledger's position at a moment

When when_of(const std::vector<Mark>& marks, std::size_t first, std::int64_t origin) {
  When when;
  for (std::size_t i = first; i < marks.size(); ++i) {
    const Mark& m = marks[i];
    when.emplace_back(m.events_begin, m.begin_ns - origin);
    if (m.end_ns > 0) when.emplace_back(m.events_end, m.end_ns - origin);  // else it is a module that is still open
  }
  std::sort(when.begin(), when.end());
  return when;
}

}  // namespace

Timeline Recording::host_timeline() const {
  Timeline t;
  t.marks = marks_.all();
  t.steps = steps_;
  t.slices = host_slices(t.marks, places_of(t.marks), steps_, origin_ns_);
  if (!ledger_ || steps_.empty()) return t;
  const auto first = std::find_if(t.marks.begin(), t.marks.end(), [&](const Mark& m) { return m.begin_ns >= step_start_ns_; });
  When when = when_of(t.marks, std::size_t(first - t.marks.begin()), origin_ns_);
  when.emplace_back(std::uint32_t(ledger_->events().size()), steps_.back().end_ns);
  t.memory = standing_before(*ledger_, first_event_, steps_.back().start_ns);
  for (Moment& m : memory_of(*ledger_, first_event_, ledger_->events().size(), when)) t.memory.push_back(std::move(m));
  return t;
}

void Recording::write_host() {
  const auto start = now_ns();
  const std::vector<Mark>& marks = marks_.all();
  std::vector<Span> steps = steps_;
  if (steps.empty() || steps.back().start_ns < step_start_ns_ - origin_ns_)  // in the middle of a step
    steps.push_back({step_start_ns_ - origin_ns_, start - origin_ns_});
  const std::size_t first = written_.places.size();
  add_places(written_.places, marks);
  for (const Slice& s : host_slices(marks, written_.places, steps, origin_ns_, first)) trace_->add(marks, written_.places, s);
  if (ledger_) {
    When when = when_of(marks, first, origin_ns_);
    when.emplace_back(std::uint32_t(ledger_->events().size()), start - origin_ns_);
    for (const Moment& m : memory_of(*ledger_, written_.events, ledger_->events().size(), when)) trace_->add(m);
    written_.events = ledger_->events().size();
  }
  trace_->flush();
  written_.at_ns = now_ns();
}

// In the order of their start.
std::vector<Slice> Recording::gpu_slices(std::size_t first) const {
  std::vector<Slice> slices;
  for (std::size_t i = first; i < heard.items.size(); ++i) {
    const auto& item = heard.items[i];
    Slice s = item.slice;
    s.start_ns -= origin_ns_;
    s.end_ns -= origin_ns_;
    const auto step = std::find_if(steps_.begin(), steps_.end(),
                                   [&](const Span& span) { return s.start_ns >= span.start_ns && s.start_ns < span.end_ns; });
    if (step == steps_.end()) continue;  // a warm-up
    s.step = int(step - steps_.begin());
    s.kernel = readable(s.kernel);
    const auto link = heard.links.find(item.correlation);
    s.mark = item.node != 0 ? mark_of_node(item.node) : link != heard.links.end() ? link->second : -1;
    slices.push_back(std::move(s));
  }
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.start_ns < b.start_ns; });
  return slices;
}

// Launching a graph allocates nothing from the arena; it uses what its recording allocated.
std::size_t Recording::gpu_first_event() const { return first_event_ < ledger_->events().size() ? first_event_ : events_before_; }

// The last step's.
std::vector<Moment> Recording::gpu_memory(const std::vector<Slice>& slices) const {
  When when;
  for (const Slice& s : slices)
    if (s.mark >= 0 && s.step == int(steps_.size()) - 1) when.emplace_back(marks_.all()[std::size_t(s.mark)].events_begin, s.start_ns);
  std::sort(when.begin(), when.end());
  return memory_of(*ledger_, gpu_first_event(), ledger_->events().size(), when);
}

void Recording::write_gpu() {
  flush_activity(true);
  const std::lock_guard lock(heard.mutex);
  add_places(written_.places, marks_.all());
  const auto slices = gpu_slices(written_.heard);
  for (const Slice& s : slices) trace_->add(marks_.all(), written_.places, s);
  if (ledger_)
    for (const Moment& m : gpu_memory(slices)) trace_->add(m);
  written_.heard = heard.items.size();
  trace_->flush();
}

// A step is what the device did between the call and the end of its wait, from the first slice to the last.
Timeline Recording::gpu_timeline() const {
  flush_activity(true);
  const std::lock_guard lock(heard.mutex);
  Timeline t;
  t.marks = marks_.all();
  t.slices = gpu_slices(0);
  for (const Span& host : steps_) t.steps.push_back({host.end_ns, host.start_ns});
  for (const Slice& s : t.slices) {
    Span& span = t.steps[std::size_t(s.step)];
    span.start_ns = std::min(span.start_ns, s.start_ns);
    span.end_ns = std::max(span.end_ns, s.end_ns);
  }
  for (Span& span : t.steps)
    if (span.end_ns < span.start_ns) std::swap(span.start_ns, span.end_ns);  // nothing ran: the host's
  if (!ledger_) return t;
  const std::vector<Moment> moments = gpu_memory(t.slices);
  t.memory = standing_before(*ledger_, gpu_first_event(), moments.empty() ? 0 : moments.front().at_ns);
  t.memory.insert(t.memory.end(), moments.begin(), moments.end());
  return t;
}

}  // namespace headroom::profile
