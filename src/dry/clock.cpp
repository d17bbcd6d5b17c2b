#include "dry/clock.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace headroom::dry {

namespace {

double middle_of(std::vector<double> numbers) {  // of an even count the smaller one
  const auto middle = numbers.begin() + std::ptrdiff_t(numbers.size() - 1) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// A step of a program as it goes through the card.
class Running {
 public:
  // `counted`: the record has counts of the host.
  Running(const Process& process, const Rates& rates, bool counted) : process_(process), rates_(rates), counted_(counted) {}

  void operator()(const Head&, const HostWork& w) { host(seconds_of(w, rates_.host), 0); }
  void operator()(const Head&, const BlockChange& b) {
    if (b.bytes > 0) host(rates_.host.block_s, 0);
  }

  void operator()(const Head&, const Launch& l) {
    const LaunchWork work = work_of(l, process_.name(l.name), rates_);
    give({work.part, l.name, l.device, l.stream, {l.grid[0], l.grid[1], l.grid[2]}, {work.s, 1, work.flops, work.bytes}}, l.graph);
  }
  void operator()(const Head&, const Product& p) {
    const double flops = 2.0 * double(p.m) * double(p.n) * double(p.k) * double(p.batch);
    const double s = seconds_of(p, process_.name(p.name), rates_);
    const bool whole = !process_.name(p.name).starts_with("cuDNN");  // a convolution may take fewer operations than are told of it
    const double most = rate_of(p, rates_).most, least_s = whole && most > 0 ? flops / most : 0;
    give({Part::products, p.name, p.device, p.stream, {p.m, p.n, p.k, p.batch}, {s, 1, flops, 0}, least_s}, p.graph);
  }
  void operator()(const Head&, const Attention& a) {
    const double flops = flops_without_mask(a);
    const PartTime time{seconds_of(a, rates_), 1, a.masked != 0 ? flops / 2 : flops, 0};
    give({Part::attention, a.name, a.device, a.stream, {a.batch, a.heads, a.len_q, a.len_k, a.head_dim}, time}, a.graph);
  }
  void operator()(const Head&, const Copy& c) {
    if (c.way == Way::on_host) return;
    const PartTime time{seconds_of(c, rates_), 1, 0, double(c.bytes)};
    give({Part::copies, 0, c.device, c.stream, {std::int64_t(c.bytes), std::int64_t(c.way)}, time}, c.graph);
  }
  void operator()(const Head&, const Collective& c) {
    const double s = seconds_of(c, process_.name(c.name), rates_);
    give({Part::collectives, c.name, c.device, c.stream, {std::int64_t(c.bytes)}, {s, 1, 0, double(c.bytes)}}, c.graph);
  }
  void operator()(const Head&, const EventEntry& e) {
    double& done = stream(e.device, e.stream);
    if (e.done == EventDone::record)
      events_[e.event] = done;
    else if (const auto at = events_.find(e.event); at != events_.end())
      done = std::max(done, at->second);
  }
  void operator()(const Head&, const Wait& w) {
    double until = 0;
    if (w.what == WaitsFor::event) {
      if (const auto at = events_.find(w.number); at != events_.end()) until = at->second;
    } else {
      for (const auto& [which, done] : streams_)
        if (which.first == w.device && (w.what == WaitsFor::device || which.second == w.number)) until = std::max(until, done);
    }
    host_ = std::max(host_, until);
    host(rates_.host.wait_s, rates_.bare_wait_s);
  }
  void operator()(const Head&, const Graph& g) {
    if (g.done == GraphDone::begin) captures_ = true;
    if (g.done != GraphDone::launch) return;
    host(rates_.host.graph_s, rates_.host.graph_s);
    double& done = stream(g.device, g.stream);
    for (const Given& w : graphs_[g.graph]) run(w, done);
  }
  void operator()(const Head&, const Mark& m) {
    const std::string_view what = process_.name(m.what);
    if (what == "step" && !settled_) end_step();
    settled_ |= what == "settled";  // the program goes on for a while, which is not timed
    if (what == "host update")
      updated_by_host_ = fmt::format("{} updates {} of weights on the host, and how fast a host computes is not known",
                                     process_.name(m.text), bytes_in_words(double(m.value)));
  }

  StepTimed mean() const {
    if (!updated_by_host_.empty()) return {{}, updated_by_host_};
    if (steps_.empty()) return {{}, no_step_seen};
    if (steps_.size() < 2) return {{}, "the program took one optimizer step only, and the first step is unlike the others: --steps 3"};
    const std::size_t from = steps_.size() > 2 ? 2 : 1;
    std::vector<double> seconds;
    for (std::size_t i = from; i < steps_.size(); ++i)
      if (const auto& [step, captured] = steps_[i]; !captured) seconds.push_back(step.s);
    const double longest = seconds.empty() ? 0 : 2 * middle_of(seconds);
    StepTime sum;
    for (std::size_t i = from; i < steps_.size(); ++i) {
      const auto& [step, captured] = steps_[i];
      if (captured) continue;
      sum.with_them_s += step.s / double(seconds.size());
      if (step.s > longest) {
        ++sum.left_out;
        continue;
      }
      ++sum.steps;
      sum.s += step.s;
      sum.idle_s += step.idle_s;
      sum.host_s += step.host_s;
      sum.least_s += step.least_s;
      for (std::size_t p = 0; p < sum.parts.size(); ++p) add(sum.parts[p], step.parts[p]);
    }
    if (sum.steps == 0) return {{}, "every step that was run still captures CUDA graphs, so none is one of many: --steps 6"};
    if (std::ranges::all_of(sum.parts, [](const PartTime& p) { return p.count == 0; }))
      return {{}, "no work was given to a card between its optimizer steps"};
    const double share = 1.0 / double(sum.steps);
    sum.s *= share;
    sum.idle_s *= share;
    sum.host_s *= share;
    sum.least_s *= share;
    for (PartTime& p : sum.parts) p = {p.s * share, p.count * share, p.flops * share, p.bytes * share};
    StepTimed timed{sum, ""};
    for (const Given& w : last_) timed.work.push_back({w.part, std::string(name_of(w)), shape_of(w), w.device, w.stream, w.time.s});
    return timed;
  }

 private:
  struct Given {  // a piece of work
    Part part;
    std::uint32_t name, device, stream;
    std::array<std::int64_t, 5> sides;
    PartTime time;
    double least_s = 0;  // at the most flops/s of the card
  };
  std::string_view name_of(const Given& w) const {
    if (w.part != Part::copies) return process_.name(w.name);
    switch (Way(w.sides[1])) {
      case Way::to_device: return "copy to the card";
      case Way::to_host: return "copy to the host";
      case Way::fill: return "fill";
      default: return "copy on the card";
    }
  }
  static std::string shape_of(const Given& w) {
    const auto& n = w.sides;
    const auto text = [](std::int64_t x) { return std::to_string(x); };
    switch (w.part) {
      case Part::products: return text(n[0]) + " x " + text(n[1]) + " x " + text(n[2]) + (n[3] > 1 ? ", " + text(n[3]) + " of them" : "");
      case Part::attention:
        if (n[4] > 0) return text(n[0]) + " x " + text(n[1]) + " heads of " + text(n[4]) + ", " + text(n[2]) + " x " + text(n[3]);
        [[fallthrough]];
      case Part::kernels: return "grid " + text(n[0]) + " x " + text(n[1]) + " x " + text(n[2]);
      default: return text(n[0]) + " bytes";
    }
  }
  static void add(PartTime& to, const PartTime& from) {
    to.s += from.s;
    to.count += from.count;
    to.flops += from.flops;
    to.bytes += from.bytes;
  }
  // What the call takes that gives it to the card.
  double call_of(const Given& w) const {
    const HostRate& h = rates_.host;
    switch (w.part) {
      case Part::products: return call_of_product(process_.name(w.name), h);
      case Part::attention: return h.attention_s;
      case Part::copies: return h.copy_s;
      default: return call_of_kernel(process_.name(w.name), h);
    }
  }
  double& stream(std::uint32_t device, std::uint32_t number) { return streams_[{device, number}]; }
  // The host is busy for so long; where nothing of it was counted, for so long in all.
  void host(double s, double bare_s) {
    const double so_long = counted_ ? s : bare_s;
    host_ += so_long;
    now_.host_s += so_long;
  }
  void give(const Given& w, std::uint32_t graph) {
    if (graph != 0) {
      graphs_[graph].push_back(w);
      return;
    }
    host(call_of(w), rates_.bare_launch_s);
    run(w, stream(w.device, w.stream));
  }
  void run(const Given& w, double& done) {
    const double start = std::max(done + rates_.gap_s, host_);
    done = start + w.time.s;
    add(now_.parts[std::size_t(w.part)], w.time);
    least_[w.device] += w.least_s;
    busy_.emplace_back(start, done);
    given_.push_back(w);
  }
  double latest() const {
    double at = host_;
    for (const auto& [which, done] : streams_) at = std::max(at, done);
    return at;
  }
  // What of the time since the last step the card had nothing to do in.
  double idle(double from, double to) {
    std::sort(busy_.begin(), busy_.end());
    double at = from, idle = 0;
    for (const auto& [start, done] : busy_) {
      if (start > at) idle += start - at;
      at = std::max(at, done);
    }
    busy_.clear();
    return idle + std::max(0.0, to - at);
  }
  void end_step() {
    const double now = latest();
    now_.s = now - step_began_;
    now_.idle_s = idle(step_began_, now);
    for (const auto& [device, s] : least_) now_.least_s = std::max(now_.least_s, s);
    least_.clear();
    steps_.emplace_back(now_, captures_);
    if (!captures_) std::swap(last_, given_);
    given_.clear();
    now_ = {};
    captures_ = false;
    step_began_ = now;
  }

  const Process& process_;
  const Rates& rates_;
  bool counted_;
  std::string updated_by_host_;  // why there is no time
  double host_ = 0, step_began_ = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> streams_;  // device and stream: when its work is done
  std::unordered_map<std::uint32_t, double> events_;
  std::unordered_map<std::uint32_t, std::vector<Given>> graphs_;
  std::vector<Given> given_, last_;  // in this step; in the last one that captured no graph
  std::vector<std::pair<double, double>> busy_;
  std::map<std::uint32_t, double> least_;  // each device's
  StepTime now_;
  bool captures_ = false, settled_ = false;
  std::vector<std::pair<StepTime, bool>> steps_;  // and whether a graph was captured in it
};

}  // namespace

StepTimed step_time(const Process& process, const Rates& rates) {
  bool counted = false;  // Python's calls too: a program may have a profiler of its own in their place
  process.each([&](const Head&, const HostWork& w) { counted |= w.functions > 0; });
  const auto with_host = [&](double factor) {
    Rates r = rates;
    scale_host(r, factor);
    Running running(process, r, counted);
    process.each(running);
    return running.mean();
  };
  StepTimed timed = with_host(1);
  if (!timed.step) return timed;
  const double least = timed.step->least_s;
  timed.step->s = std::max(timed.step->s, least);  // streams do not share out the card's units here
  // Which steps are left out may depend on the host.
  timed.low_s = std::min(std::max(with_host(counted ? rates.host_low : rates.bare_low).step->s * rates.low, least), timed.step->s);
  timed.high_s = std::max(with_host(counted ? rates.host_high : rates.bare_high).step->s * rates.high, timed.step->s);
  return timed;
}

}  // namespace headroom::dry
