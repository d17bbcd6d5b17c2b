#include "studies/forecast/account.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <unordered_map>

#include "base/text.h"

namespace headroom::studies {

namespace {

using dry::Head;

constexpr std::size_t curve_points = 240;
constexpr std::uint64_t never = ~std::uint64_t(0);
constexpr const char *before_first_step = "before the first step", *before_first_backward = "before the first backward pass",
                     *between_phases = "between", *saved = "saved for backward";

// Where in the source, as a person looks for it.
struct Lines {
  std::string line;  // the innermost that is not PyTorch's
  std::string own;   // the innermost that is neither installed nor Python's
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool installed(std::string_view file) { return contains(file, "site-packages/") || contains(file, "dist-packages/"); }
bool of_python(std::string_view file) { return file.starts_with('<') || (contains(file, "/lib/python3") && !installed(file)); }
bool of_torch(std::string_view file) { return contains(file, "-packages/torch/") || contains(file, "-packages/torch_"); }
bool of_headroom(std::string_view file) { return contains(file, "headroom_dry") || contains(file, "/headroom/"); }

std::string shown_file(std::string_view file) {
  for (const std::string_view packages : {"site-packages/", "dist-packages/"})
    if (const auto at = file.rfind(packages); at != std::string_view::npos) return std::string(file.substr(at + packages.size()));
  std::error_code ignored;
  const std::string here = std::filesystem::current_path(ignored).string() + "/";
  return std::string(file.starts_with(here) ? file.substr(here.size()) : file);
}

class LinesOf {
 public:
  explicit LinesOf(const dry::Process& p) : process_(p) {}
  const Lines& operator()(std::uint32_t stack) {
    const auto [at, fresh] = known_.try_emplace(stack);
    if (fresh) at->second = look(stack);
    return at->second;
  }

 private:
  std::string words(const dry::Frame& f) const { return fmt::format("{}:{}", shown_file(process_.name(f.file)), f.line); }
  Lines look(std::uint32_t stack) const {
    Lines l;
    const auto frames = process_.stack(stack);
    for (const dry::Frame& f : frames) {
      const std::string_view file = process_.name(f.file);
      if (of_python(file) || of_headroom(file)) continue;
      if (l.line.empty() && !of_torch(file)) l.line = words(f);
      if (l.own.empty() && !installed(file)) l.own = words(f);
    }
    if (l.line.empty())  // PyTorch's alone
      for (const dry::Frame& f : frames)
        if (l.line.empty() && !of_headroom(process_.name(f.file))) l.line = words(f);
    return l;
  }
  const dry::Process& process_;
  std::unordered_map<std::uint32_t, Lines> known_;
};

// "model.layers.17.mlp" of thirty-two: "model.layers.*.mlp".
std::string folded(std::string_view module) {
  std::string out;
  for (std::size_t i = 0; i < module.size();) {
    const auto dot = std::min(module.find('.', i), module.size());
    const auto part = module.substr(i, dot - i);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!out.empty()) out += '.';
    out += number ? std::string_view("*") : part;
    i = dot + 1;
  }
  return out;
}

enum class PhaseKind : std::uint8_t { before, forward, backward, optimizer, other };

PhaseKind kind_of_phase(std::string_view name) {
  if (name.starts_with("forward")) return PhaseKind::forward;
  if (name.starts_with("backward")) return PhaseKind::backward;
  if (name.starts_with("optimizer")) return PhaseKind::optimizer;
  return name.empty() || name == before_first_step || name == before_first_backward ? PhaseKind::before : PhaseKind::other;
}

struct BlockLife {  // a block's; times are numbers of block events of its card
  std::uint64_t bytes = 0, from = 0, to = never;
  std::uint32_t stack = 0, scope = 0, phase = 0;
};

struct Point {
  std::uint64_t at_ns = 0, allocated = 0, reserved = 0;
  std::uint32_t phase = 0, stack = 0;
};

struct CardLog {
  std::vector<BlockLife> lives;
  std::unordered_map<std::uint64_t, std::size_t> live;  // by address
  std::vector<Point> points;                            // after each event
  std::vector<std::uint64_t> step_ends;
  std::vector<std::size_t> taken_by_step;  // blocks that were taken by the end of each
  std::uint64_t pool_live = 0, pool_taken = 0;
  std::uint64_t driver_most = 0, card_most = 0, allocated = 0, reserved = 0;
  std::optional<RanOut> ran_out;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> phase_changes;  // from this event on
};

class Reading {
 public:
  explicit Reading(const dry::Process& p) : process_(p), lines_(p) { phases_.emplace_back(before_first_step); }

  void operator()(const Head& h, const dry::BlockChange& b) {
    CardLog& c = cards_[b.device];
    if (h.thread != main_thread_ && main_thread_ == 0) main_thread_ = h.thread;
    const std::uint64_t now = c.points.size();
    const std::uint32_t phase = marked_ ? phase_said() : guessed(h.thread);
    note_phase(c, now, phase);
    if (b.bytes > 0) {
      c.live[b.address] = c.lives.size();
      c.lives.push_back({std::uint64_t(b.bytes), now, never, b.place.stack, b.place.scope, phase});
    } else if (const auto at = c.live.find(b.address); at != c.live.end()) {
      c.lives[at->second].to = now;
      c.live.erase(at);
    }
    c.allocated = b.allocated;
    c.reserved = b.reserved;
    c.points.push_back({h.at_ns, b.allocated, b.reserved, phase, b.place.stack});
  }
  void operator()(const Head&, const dry::Driver& d) {
    CardLog& c = cards_[d.device];
    c.driver_most = std::max(c.driver_most, d.used);
    c.card_most = std::max(c.card_most, d.used + d.others);
  }
  void operator()(const Head&, const dry::Pool& p) {
    CardLog& c = cards_[p.device];
    c.pool_live = std::max(c.pool_live, p.live);
    c.pool_taken = std::max(c.pool_taken, p.taken);
  }
  void operator()(const Head&, const dry::Host& host) {
    std::uint64_t& most = host.managed ? story_.managed_bytes : story_.pinned_bytes;
    most = std::max(most, host.used);
  }
  void operator()(const Head&, const dry::Collective& c) {
    story_.collectives = true;
    story_.ranks = std::max(story_.ranks, int(c.ranks));
  }
  void operator()(const Head&, const dry::Read& r) {
    if (r.known) return;
    const Lines& lines = lines_(r.place.stack);
    auto& row = values_[lines.line];
    ++row.count;
    row.bytes += r.bytes;
    unknown_by(lines.own);
  }
  void value_named(std::string_view text) {  // "train.py:31 int64", by the observer, which sees Python where the library does not
    const std::string_view where = text.substr(0, text.rfind(' '));
    ++named_values_[shown_file(where)];
    unknown_by(shown_file(where));
  }
  void unknown_by(const std::string& line) {
    std::vector<std::string>& lines = story_.unknown_lines;
    if (!line.empty() && lines.size() < 3 && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  void operator()(const Head&, const dry::Note& n) {
    using dry::Said;
    const std::string name(process_.name(n.name));
    if (n.said == Said::static_runtime) {
      if (std::find(story_.static_runtimes.begin(), story_.static_runtimes.end(), name) == story_.static_runtimes.end())
        story_.static_runtimes.push_back(name);
      return;
    }
    if (n.said == Said::full || n.said == Said::out_of_memory) {
      CardLog& c = cards_[n.device];
      const Lines& l = lines_(n.place.stack);
      const bool raised = n.said == Said::out_of_memory;
      if (raised || !c.ran_out) {
        const std::string phase = marked_ ? phases_[phase_said()] : "";
        c.ran_out = RanOut{n.bytes, std::int64_t(c.step_ends.size()) + 1, phase, l.line, l.own, raised};
      }
      return;
    }
    if (n.said == Said::host_full) return;
    auto& row = functions_[{name, n.said}];
    row.count = std::max(row.count, std::int64_t(n.count));
    if (n.said == Said::by_rule || n.said == Said::by_library) row.bytes = std::max(row.bytes, n.bytes);
    if (row.line.empty()) row.line = lines_(n.place.stack).line;
  }
  void operator()(const Head&, const dry::Mark& m) {
    const std::string_view what = process_.name(m.what), text = process_.name(m.text);
    marked_ = true;
    if (what == "phase") {
      forward_said_ |= kind_of_phase(text) == PhaseKind::forward;
      backward_said_ |= kind_of_phase(text) == PhaseKind::backward;
      phase_ = text;
    } else if (what == "step") {
      story_.unknown_lines.clear();
      story_.loop.clear();
      for (auto& [device, c] : cards_) {
        c.step_ends.push_back(c.points.size());
        c.taken_by_step.push_back(c.lives.size());
      }
    } else if (what == "scope") {
      scopes_[std::uint32_t(m.value)] = folded(text);
    } else if (what == "value") {
      value_named(text);
    } else if (what == "optimizer") {
      story_.made_optimizer = true;
    } else if (what == "loop") {
      story_.loop = shown_file(text);
      story_.loop_reads = m.value;
    } else if (what == "fraction") {
      fraction_said(text);
    } else if (what == "settled") {
      story_.settled = text;
    } else if (what == "end") {
      story_.end = shown_file(text);
      story_.waits = m.value != 0;
    } else if (what == "routed") {
      story_.routed = shown_file(text);
    } else if (what == "torch") {
      story_.torch = text;
      story_.torch_with_cuda = m.value != 0;
    } else if (what == "tuned") {
      story_.tuned = true;
      story_.said.push_back({"note", std::string(text)});
    } else if (what == "replaced" || what == "cannot" || what == "note") {
      story_.said.push_back({std::string(what), std::string(text)});
    }
    story_.observed = true;
  }

  void fraction_said(std::string_view text) {  // "train.py:3 0 0.1": line, card (−1: every one), fraction
    const auto second = text.rfind(' '), first = text.rfind(' ', second - 1);
    if (second == std::string_view::npos || first == std::string_view::npos) return;
    const int card = std::atoi(std::string(text.substr(first + 1, second - first - 1)).c_str());
    fractions_[card] = {std::strtod(std::string(text.substr(second + 1)).c_str(), nullptr), shown_file(text.substr(0, first))};
    if (card < 0) fractions_ = {{card, fractions_[card]}};
  }

  ProcessStory story() {
    if (backward_said_ && !forward_said_)
      phases_.front() = before_first_backward;  // the first forward is in it: its beginning was not said
    const dry::FileHead& head = process_.head();
    story_.pid = head.pid;
    story_.rank = std::max(0, head.rank);
    story_.ranks = std::max(story_.ranks, head.ranks);
    story_.program = head.program;
    story_.damaged = process_.damaged();
    if (const auto without = values_.find(""); without != values_.end() && !named_values_.empty()) {
      for (const auto& [line, count] : named_values_)
        if (const auto [at, fresh] = values_.try_emplace(line); fresh) at->second.count = count;
      values_.erase(without);
    }
    for (auto& [line, row] : values_) {
      row.line = line.empty() ? "(a line that is not Python's)" : line;
      story_.values.push_back(row);
    }
    std::stable_sort(story_.values.begin(), story_.values.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
    for (auto& [key, row] : functions_) {
      row.function = key.first;
      row.what = key.second == dry::Said::accepted     ? "only accepted"
                 : key.second == dry::Said::refused    ? "refused"
                 : key.second == dry::Said::by_formula ? workspace_by_a_formula
                 : key.second == dry::Said::by_rule    ? workspace_as_measured
                 : key.second == dry::Said::by_library ? workspace_by_the_library
                                                       : workspace_taken_as_nothing;
      story_.functions.push_back(row);
      unsure_ += row.bytes;
    }
    for (auto& [device, card] : cards_) {
      const bool used = !card.points.empty() || card.ran_out || card.driver_most > 0;
      if (used) story_.cards.push_back(account_of(device, card));
      if (!used) story_.seen_bytes = std::max(story_.seen_bytes, card.card_most);
    }
    return std::move(story_);
  }

 private:
  std::uint32_t number_of(std::string_view phase) {
    for (std::uint32_t i = 0; i < phases_.size(); ++i)
      if (phases_[i] == phase) return i;
    phases_.emplace_back(phase);
    return std::uint32_t(phases_.size() - 1);
  }
  // The phase that was said. Where forward is never said, as without Python's frames, it is what lies outside of backward and the optimizer.
  std::uint32_t phase_said() {
    if (!phase_.empty()) return number_of(phase_);
    if (forward_said_) return number_of(between_phases);
    return backward_said_ ? number_of("forward") : 0;
  }
  // Without an observer: backward has threads of its own.
  std::uint32_t guessed(std::uint32_t thread) { return thread == main_thread_ ? number_of("main thread") : number_of("backward"); }

  static void note_phase(CardLog& c, std::uint64_t now, std::uint32_t phase) {
    if (c.phase_changes.empty() || c.phase_changes.back().second != phase) c.phase_changes.emplace_back(now, phase);
  }

  std::string what_is(const CardLog& c, const BlockLife& life) const {
    const PhaseKind kind = kind_of_phase(phases_[life.phase]);
    const auto ends_after = [&](PhaseKind k) {  // the end of the phase that it was allocated in
      const auto at = std::upper_bound(c.phase_changes.begin(), c.phase_changes.end(), std::pair(life.from, ~std::uint32_t(0)));
      for (auto next = at; next != c.phase_changes.end(); ++next)
        if (kind_of_phase(phases_[next->second]) != k) return next->first;
      return never;
    };
    const auto step_end = std::upper_bound(c.step_ends.begin(), c.step_ends.end(), life.from);
    const bool across_steps = step_end != c.step_ends.end() && life.to > *step_end;
    switch (kind) {
      case PhaseKind::before: return "weights, and what else was made before the first step";
      case PhaseKind::forward: {
        if (across_steps) return "kept across steps";
        for (auto at = std::upper_bound(c.phase_changes.begin(), c.phase_changes.end(), std::pair(life.from, ~std::uint32_t(0)));
             at != c.phase_changes.end() && at->first <= life.to; ++at)
          if (kind_of_phase(phases_[at->second]) == PhaseKind::backward) return saved;
        return life.to == never ? saved : "temporaries of forward";
      }
      case PhaseKind::backward: {
        const std::uint64_t end = ends_after(PhaseKind::backward);
        if (end == never) return "gradients, and temporaries of backward";  // it was not seen to its end
        return life.to >= end ? "gradients" : "temporaries of backward";
      }
      case PhaseKind::optimizer: return life.to >= ends_after(PhaseKind::optimizer) ? "optimizer state" : "temporaries of the optimizer";
      case PhaseKind::other: return phases_[life.phase];
    }
    return "";
  }

  std::vector<ForecastBlockRow> rows_of(const CardLog& c, int rank, std::uint64_t at, bool only_saved) {
    struct Sum {
      std::uint64_t bytes = 0;
      std::int64_t blocks = 0;
    };
    std::map<std::array<std::string, 3>, Sum> sums;
    std::uint64_t all = 0;
    for (const BlockLife& life : c.lives) {
      if (life.from > at || life.to <= at) continue;
      std::string what = what_is(c, life);
      if (only_saved && what != saved) continue;
      const auto scope = scopes_.find(life.scope);
      Sum& sum = sums[{std::move(what), scope == scopes_.end() ? "" : scope->second, lines_(life.stack).line}];
      sum.bytes += life.bytes;
      ++sum.blocks;
      all += life.bytes;
    }
    std::vector<ForecastBlockRow> rows;
    for (const auto& [key, sum] : sums)
      rows.push_back({rank, key[0], key[1], key[2], sum.bytes, double(sum.bytes) / double(std::max<std::uint64_t>(all, 1)), sum.blocks});
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return rows;
  }

  ProgramAccount account_of(std::uint32_t device, CardLog& c) {
    ProgramAccount a;
    for (const int card : {-1, int(device)})
      if (const auto said = fractions_.find(card); said != fractions_.end()) a.fraction = said->second;
    if (a.fraction && a.fraction->share >= 1) a.fraction.reset();
    a.pid = process_.head().pid;
    a.rank = process_.head().rank >= 0 ? process_.head().rank : int(device);  // without a launcher: a card each
    a.card = int(device);
    a.ran_out = c.ran_out;
    a.others_bytes = c.card_most - c.driver_most;
    constexpr std::uint64_t page = 2 << 20;
    a.pool_slack_bytes = c.pool_taken - std::min(c.pool_taken, (c.pool_live + page - 1) / page * page);
    a.addresses_matter = c.pool_taken > 0;  // what a driver's pool keeps is not published
    if (c.points.empty()) {                 // no PyTorch: what the program took from the driver
      a.peak_allocated_bytes = a.peak_reserved_bytes = c.driver_most;
      a.addresses_matter |= !story_.torch.empty();
      if (c.pool_taken > 0) {  // PyTorch by cudaMallocAsync
        a.peak_allocated_bytes = c.pool_live;
        a.peak_reserved_bytes = c.pool_taken;
        a.elsewhere_bytes = c.driver_most - std::min(c.driver_most, c.pool_taken);
      }
      return a;
    }
    std::uint64_t peak = 0;
    for (std::uint64_t i = 0; i < c.points.size(); ++i) {
      if (c.points[i].allocated > c.points[peak].allocated) peak = i;
      a.peak_reserved_bytes = std::max(a.peak_reserved_bytes, c.points[i].reserved);
    }
    a.elsewhere_bytes = c.driver_most > a.peak_reserved_bytes ? c.driver_most - a.peak_reserved_bytes : 0;
    const Point& top = c.points[peak];
    a.peak_allocated_bytes = top.allocated;
    add_spread(device, a, c.taken_by_step);
    a.blocks = std::int64_t(c.lives.size());
    a.peak_phase = phases_[top.phase];
    a.peak_line = lines_(top.stack).line;
    a.peak_own_line = lines_(top.stack).own;
    const auto step_of = [&](std::uint64_t at) {
      return std::int64_t(std::upper_bound(c.step_ends.begin(), c.step_ends.end(), at) - c.step_ends.begin()) + 1;
    };
    a.peak_step = kind_of_phase(a.peak_phase) == PhaseKind::before ? 0 : step_of(peak);
    a.unsure_bytes = unsure_;
    add_steps(c, a);
    add_phases(c, a);
    a.at_peak = rows_of(c, a.rank, peak, false);
    add_saved(c, a, a.peak_step);
    add_curve(c, a);
    return a;
  }

  // Expandable segments are one range of addresses for all blocks: where it lies changes nothing.
  void add_spread(std::uint32_t device, ProgramAccount& a, std::span<const std::size_t> taken_by_step) const {
    const auto requests = process_.requests(device);
    const bool expandable =
        std::ranges::any_of(requests, [](const dry::Request& r) { return r.what == std::uint32_t(dry::RequestIs::mapped); });
    if (expandable) return;
    const dry::FileHead& head = process_.head();
    std::uint64_t limit = head.device_bytes - std::min(head.device_bytes, head.context_bytes + a.elsewhere_bytes + a.others_bytes);
    if (a.fraction) limit = std::min(limit, a.fraction->of(head.device_bytes));
    if (a.peak_reserved_bytes > limit) limit = 0;  // the run had none
    a.spread = requests.empty() ? std::nullopt : dry::spread_of(requests, limit, taken_by_step);
    if (a.spread && (a.spread->run.reserved != a.peak_reserved_bytes || a.spread->run.allocated != a.peak_allocated_bytes))
      a.spread.reset();
    a.addresses_matter |= !a.spread && story_.torch_with_cuda && !story_.torch.empty();
  }

  void add_steps(const CardLog& c, ProgramAccount& a) const {
    std::uint64_t from = 0;
    for (const std::uint64_t end : c.step_ends) {
      ForecastStepRow row{a.rank, std::int64_t(a.steps.size()) + 1, 0, 0, {}, {}};
      for (std::uint64_t i = from; i < end; ++i) {
        row.peak_allocated_bytes = std::max(row.peak_allocated_bytes, c.points[i].allocated);
        row.peak_reserved_bytes = std::max(row.peak_reserved_bytes, c.points[i].reserved);
      }
      if (a.spread && a.steps.size() < a.spread->steps.size()) {
        const dry::StepSpread& step = a.spread->steps[a.steps.size()];
        const ReservedRange range = reserved_range(step.low, step.high, a.unsure_bytes);
        row.reserved_low_bytes = range.low;
        row.reserved_high_bytes = range.high;
      }
      a.steps.push_back(row);
      from = end;
    }
    a.whole_steps = std::int64_t(a.steps.size());
    if (!a.steps.empty()) a.step_allocated_bytes = a.steps.back().peak_allocated_bytes;
  }

  void add_phases(const CardLog& c, ProgramAccount& a) const {
    std::vector<ForecastPhaseRow> rows(phases_.size());
    for (std::size_t i = 0; i < c.phase_changes.size(); ++i) {
      const auto [from, phase] = c.phase_changes[i];
      const std::uint64_t to = i + 1 < c.phase_changes.size() ? c.phase_changes[i + 1].first : c.points.size();
      ForecastPhaseRow& row = rows[phase];
      ++row.count;
      for (std::uint64_t k = from; k < to; ++k) {
        row.peak_allocated_bytes = std::max(row.peak_allocated_bytes, c.points[k].allocated);
        row.peak_reserved_bytes = std::max(row.peak_reserved_bytes, c.points[k].reserved);
      }
      if (to > 0) row.left_bytes = c.points[to - 1].allocated;
    }
    for (const auto& [from, phase] : c.phase_changes) {  // in the order in which they came first
      if (rows[phase].count == 0) continue;
      rows[phase].rank = a.rank;
      rows[phase].phase = phases_[phase];
      a.phases.push_back(std::move(rows[phase]));
      rows[phase].count = 0;
    }
  }

  // What stands when backward begins, in the step of the peak; before the first step, or in a later one without backward: the last that has one.
  void add_saved(const CardLog& c, ProgramAccount& a, std::int64_t step) {
    std::optional<std::uint64_t> begin;
    for (const auto& [from, phase] : c.phase_changes) {
      if (kind_of_phase(phases_[phase]) != PhaseKind::backward || from == 0) continue;
      const auto of = std::int64_t(std::upper_bound(c.step_ends.begin(), c.step_ends.end(), from) - c.step_ends.begin()) + 1;
      if (!begin || of <= std::max<std::int64_t>(step, 1)) begin = from;
    }
    if (!begin) return;
    a.saved = rows_of(c, a.rank, *begin - 1, true);
    for (const ForecastBlockRow& row : a.saved) a.saved_bytes += row.bytes;
  }

  void add_curve(const CardLog& c, ProgramAccount& a) const {
    // The last three of many steps are like the others.
    const std::size_t begin = c.step_ends.size() > 6 ? c.step_ends[c.step_ends.size() - 4] : 0, all = c.points.size() - begin;
    const std::size_t n = std::min(curve_points, all);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t from = begin + i * all / n, to = begin + (i + 1) * all / n;
      std::size_t most = from;
      for (std::size_t k = from; k < to; ++k)
        if (c.points[k].allocated > c.points[most].allocated) most = k;
      const Point& p = c.points[most];
      a.curve.push_back({a.rank, double(p.at_ns) / 1e6, phases_[p.phase], p.allocated, p.reserved});
    }
  }

  const dry::Process& process_;
  LinesOf lines_;
  ProcessStory story_;
  std::map<std::uint32_t, CardLog> cards_;
  std::vector<std::string> phases_;
  std::unordered_map<std::uint32_t, std::string> scopes_;
  std::map<std::string, UnknownValueRow> values_;
  std::map<std::string, std::int64_t> named_values_;
  std::map<std::pair<std::string, dry::Said>, OnlyAcceptedRow> functions_;
  std::map<int, Fraction> fractions_;  // by card; −1: every card
  std::uint64_t unsure_ = 0;
  std::string phase_;  // said by the observer
  std::uint32_t main_thread_ = 0;
  bool marked_ = false, forward_said_ = false, backward_said_ = false;
};

}  // namespace

ReservedRange reserved_range(const dry::Needs& low, const dry::Needs& high, std::uint64_t unsure_bytes) {
  constexpr std::uint64_t segment = 2 << 20;
  const std::uint64_t more = ((high.reserved - low.reserved) / 8 + unsure_bytes + segment - 1) / segment * segment;
  return {std::max(low.reserved - std::min(low.reserved, more), low.allocated - std::min(low.allocated, unsure_bytes)),
          high.reserved + more};
}

ReservedRange reserved_range(const ProgramAccount& a) {
  const dry::Needs run{a.peak_allocated_bytes, a.peak_reserved_bytes};
  ReservedRange range = reserved_range(a.spread ? a.spread->low : run, a.spread ? a.spread->high : run, a.unsure_bytes);
  range.low -= std::min(range.low, a.pool_slack_bytes);
  return range;
}

std::int64_t ProcessStory::unknown_values() const {
  std::int64_t n = 0;
  for (const UnknownValueRow& v : values) n += v.count;
  return n;
}

bool ProcessStory::ran_out_at_its_end() const {
  return end.empty() && std::ranges::any_of(cards, [](const ProgramAccount& a) { return a.ran_out && a.ran_out->raised; });
}

ProcessStory story_of(const dry::Process& p) {
  Reading reading(p);
  p.each(reading);
  return reading.story();
}

}  // namespace headroom::studies
