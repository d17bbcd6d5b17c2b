#include "studies/forecast/reading.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace headroom::studies {

namespace {

constexpr const char* between_phases = "between";

bool of_convolutions(dry::Said said) { return said == dry::Said::by_library || said == dry::Said::by_another_version; }

}  // namespace

PhaseKind kind_of_phase(std::string_view name) {
  if (name.starts_with("forward")) return PhaseKind::forward;
  if (name.starts_with("backward")) return PhaseKind::backward;
  if (name.starts_with("optimizer")) return PhaseKind::optimizer;
  return name.empty() || name == before_first_step || name == before_first_backward ? PhaseKind::before : PhaseKind::other;
}

void Reading::operator()(const Head& h, const dry::BlockChange& b) {
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

void Reading::operator()(const Head&, const dry::Driver& d) {
  CardLog& c = cards_[d.device];
  if (d.address == 0) c.libraries += std::uint64_t(d.bytes);
  c.libraries_most = std::max(c.libraries_most, c.libraries);
  c.blocks_most = std::max(c.blocks_most, d.used - c.libraries);
  c.driver_most = std::max(c.driver_most, d.used);
  c.card_most = std::max(c.card_most, d.used + d.others);
}

void Reading::operator()(const Head&, const dry::Pool& p) {
  CardLog& c = cards_[p.device];
  c.pool_live = std::max(c.pool_live, p.live);
  c.pool_taken = std::max(c.pool_taken, p.taken);
}

void Reading::operator()(const Head&, const dry::Host& host) {
  std::uint64_t& most = host.managed ? story_.managed_bytes : story_.pinned_bytes;
  most = std::max(most, host.used);
}

void Reading::operator()(const Head&, const dry::Collective& c) {
  story_.collectives = true;
  story_.ranks = std::max(story_.ranks, int(c.ranks));
}

void Reading::operator()(const Head&, const dry::Read& r) {
  if (r.known) return;
  const Lines& lines = lines_(r.place.stack);
  auto& row = values_[lines.line];
  ++row.count;
  row.bytes += r.bytes;
  unknown_by(lines.own);
}

void Reading::value_named(std::string_view text) {
  const std::string_view where = text.substr(0, text.rfind(' '));
  ++named_values_[shown_file(where)];
  unknown_by(shown_file(where));
}

void Reading::unknown_by(const std::string& line) {
  std::vector<std::string>& lines = story_.unknown_lines;
  if (!line.empty() && lines.size() < 3 && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
}

void Reading::operator()(const Head&, const dry::Note& n) {
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
    story_.raised += raised;
    if (raised || !c.ran_out) {
      const std::string phase = marked_ ? phases_[phase_said()] : "";
      c.ran_out = RanOut{n.bytes, std::int64_t(c.step_ends.size()) + 1, phase, l.line, l.own, raised};
    }
    return;
  }
  if (n.said == Said::host_full) return;
  auto& row = functions_[{name, n.said}];
  row.count = std::max(row.count, std::int64_t(n.count));
  if (n.said == Said::by_rule || of_convolutions(n.said)) row.bytes = std::max(row.bytes, n.bytes);
  if (row.line.empty()) row.line = lines_(n.place.stack).line;
}

void Reading::operator()(const Head&, const dry::Mark& m) {
  const std::string_view what = process_.name(m.what), text = process_.name(m.text);
  if (what == "workspace") return workspace_told(std::uint64_t(m.value));  // the library's own, not the observer's
  if (what == "workspace on a card") return workspace_on_card_told(std::uint64_t(m.value), text);
  if (what == "tries are known") {
    tries_known_ = true;
    return;
  }
  marked_ = true;
  if (what == "phase") {
    phase_begins(text);
  } else if (what == "step") {
    step_ends();
  } else if (what == "scope") {
    scopes_[std::uint32_t(m.value)] = folded(text);
  } else if (what == "value") {
    value_named(text);
  } else if (what == "optimizer") {
    story_.made_optimizer = true;
  } else if (what == "scaled") {
    story_.skips = m.value;
  } else if (what == "loop") {
    story_.loop = shown_file(text);
    story_.loop_reads = m.value;
  } else if (what == "fraction") {
    fraction_said(text);
  } else if (what == "max split") {
    max_split_ = std::uint64_t(m.value);
  } else if (what == "rounds") {
    divisions_said(text);
  } else if (what == "collects above") {
    collects_above_ = std::strtod(std::string(text).c_str(), nullptr);
  } else if (what == "settled") {
    story_.settled = text;
  } else if (what == "end") {
    story_.end = shown_file(text);
    story_.waits = m.value != 0;
  } else if (what == "routed") {
    const auto guessed = Guessed(std::clamp<std::int64_t>(m.value, 0, guesses - 1));
    if (std::ranges::find(story_.routed, guessed, &Routing::guessed) == story_.routed.end())
      story_.routed.push_back({shown_file(text), guessed});
  } else if (what == "run") {
    const std::size_t end = std::min(text.find('|'), text.size() - 1);
    story_.runs.push_back({std::string(text.substr(0, end)), std::string(text.substr(end + 1)), m.value != 0});
  } else if (what == "events") {
    story_.late_events = true;
  } else if (what == "torch") {
    story_.torch = text;
    story_.torch_with_cuda = m.value != 0;
  } else if (what == "tuned") {
    story_.tuned = true;
    story_.said.push_back({"note", std::string(text)});
  } else if (what == "benchmark") {
    benchmark_ = text;
  } else if (what == "open") {
    open_said(shown_file(text), m.value);
  } else if (what == "replaced" || what == "cannot" || what == "note") {
    story_.said.push_back({std::string(what), std::string(text)});
  }
  story_.observed = true;
}

void Reading::phase_begins(std::string_view phase) {
  const PhaseKind kind = kind_of_phase(phase);
  forward_said_ |= kind == PhaseKind::forward;
  backward_said_ |= kind == PhaseKind::backward;
  phase_ = phase;
  if (kind != PhaseKind::optimizer) return;
  for (auto& [device, c] : cards_)  // it counts where it allocates nothing, too
    if (!c.points.empty()) {
      note_phase(c, c.points.size(), phase_said());
      c.first_update = std::min<std::uint64_t>(c.first_update, c.points.size());
    }
}

void Reading::step_ends() {
  story_.unknown_lines.clear();
  story_.loop.clear();
  for (auto& [device, c] : cards_) {
    c.step_ends.push_back(c.points.size());
    c.taken_by_step.push_back(c.lives.size());
  }
}

void Reading::divisions_said(std::string_view numbers) {
  const char* at = numbers.data();
  const char* const end = at + numbers.size();
  for (std::uint32_t& parts : divisions_) {
    at = std::from_chars(at, end, parts).ptr;
    if (at != end) ++at;  // a comma
  }
}

void Reading::open_said(const std::string& why, std::int64_t threads) {
  if (story_.open != why) story_.said.push_back({"note", why});
  story_.open = why;
  story_.threads = std::max(story_.threads, std::uint64_t(std::max<std::int64_t>(threads, 1)));
}

void Reading::workspace_told(std::uint64_t address) {
  for (auto& [device, c] : cards_)
    if (const auto at = c.live.find(address); at != c.live.end()) c.lives[at->second].workspace = true;
}

void Reading::workspace_on_card_told(std::uint64_t address, std::string_view range) {
  const std::string words(range);
  char* rest = nullptr;
  const std::uint64_t least = std::strtoull(words.c_str(), &rest, 10), most = std::strtoull(rest, &rest, 10);
  const bool tried = *rest != '\0';
  const std::uint64_t seldom_less = tried ? std::strtoull(rest, nullptr, 10) : least;
  for (auto& [device, c] : cards_)
    if (const auto at = c.live.find(address); at != c.live.end()) {
      c.workspaces.push_back({at->second, least, most});
      if (tried) c.tried.push_back({at->second, seldom_less, most});
    }
}

void Reading::fraction_said(std::string_view text) {
  const auto second = text.rfind(' '), first = text.rfind(' ', second - 1);
  if (second == std::string_view::npos || first == std::string_view::npos) return;
  const int card = std::atoi(std::string(text.substr(first + 1, second - first - 1)).c_str());
  fractions_[card] = {std::strtod(std::string(text.substr(second + 1)).c_str(), nullptr), shown_file(text.substr(0, first))};
  if (card < 0) fractions_ = {{card, fractions_[card]}};
}

ProcessStory Reading::story() {
  if (backward_said_ && !forward_said_) phases_.front() = before_first_backward;  // the first forward is in it: its beginning was not said
  const dry::FileHead& head = process_.head();
  story_.pid = head.pid;
  story_.visible = head.devices;
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
    row.what = key.second == dry::Said::accepted             ? "only accepted"
               : key.second == dry::Said::refused            ? "refused"
               : key.second == dry::Said::by_formula         ? workspace_by_a_formula
               : key.second == dry::Said::by_rule            ? workspace_as_measured
               : key.second == dry::Said::by_library         ? workspace_by_the_library
               : key.second == dry::Said::by_another_version ? workspace_of_another_version
                                                             : workspace_taken_as_nothing;
    if (of_convolutions(key.second) && !benchmark_.empty() && !tries_known_ && !story_.tuned) {  // convolutions, of which cuDNN has several
      story_.tuned = true;
      story_.said.push_back({"note", benchmark_});
    }
    story_.functions.push_back(row);
    unsure_ += row.bytes;
  }
  if (tries_known_)
    story_.said.push_back(
        {"note",
         "torch.backends.cudnn.benchmark tries cuDNN's kernels for each convolution's shape, in the largest workspace that one of them "
         "asks "
         "for. That is counted, with the kernels that only a card lists; the one that is kept is taken to be cuDNN's first."});
  for (auto& [device, card] : cards_) {
    const bool used = !card.points.empty() || card.ran_out || card.driver_most > 0;
    if (used) story_.cards.push_back(account_of(device, card));
    if (used) open(story_.cards.back());
    if (!used) story_.seen_bytes = std::max(story_.seen_bytes, card.card_most);
  }
  return std::move(story_);
}

void Reading::open(ProgramAccount& a) const {
  a.threads = story_.threads;
  for (ForecastStepRow& step : a.steps) {
    if (!story_.open.empty()) step.reserved_high_bytes.reset();
    if (a.threads > 1) step.reserved_low_bytes.reset();
  }
}

std::uint32_t Reading::number_of(std::string_view phase) {
  for (std::uint32_t i = 0; i < phases_.size(); ++i)
    if (phases_[i] == phase) return i;
  phases_.emplace_back(phase);
  return std::uint32_t(phases_.size() - 1);
}

std::uint32_t Reading::phase_said() {
  if (!phase_.empty()) return number_of(phase_);
  if (forward_said_) return number_of(between_phases);
  return backward_said_ ? number_of("forward") : 0;
}

}  // namespace headroom::studies
