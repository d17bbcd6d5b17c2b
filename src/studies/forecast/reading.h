// The record of one process, read event by event.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "studies/forecast/account.h"
#include "studies/forecast/source_lines.h"

namespace headroom::studies {

constexpr std::uint64_t never = ~std::uint64_t(0);
constexpr const char *before_first_step = "before the first step", *before_first_backward = "before the first backward pass";

enum class PhaseKind : std::uint8_t { before, forward, backward, optimizer, other };

PhaseKind kind_of_phase(std::string_view name);

struct BlockLife {  // a block's; times are numbers of block events of its card
  std::uint64_t bytes = 0, from = 0, to = never;
  std::uint32_t stack = 0, scope = 0, phase = 0;
  bool workspace = false;  // a library's
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
  std::vector<dry::Workspace> workspaces;  // a card may ask for less or more of these; ascending
  std::vector<dry::Workspace> tried;       // those in which PyTorch tries kernels: here `least` is what a card seldom takes less than
  std::uint64_t pool_live = 0, pool_taken = 0;
  std::uint64_t first_update = never;  // the event at which an optimizer first stepped
  std::uint64_t driver_most = 0, card_most = 0, allocated = 0, reserved = 0;
  std::uint64_t libraries = 0, libraries_most = 0;  // what libraries have, and pages that map pinned memory: a part of the driver's
  std::uint64_t blocks_most = 0;                    // the driver's without them
  std::optional<RanOut> ran_out;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> phase_changes;  // from this event on
};

class Reading {
 public:
  using Head = dry::Head;
  explicit Reading(const dry::Process& p) : process_(p), lines_(p) { phases_.emplace_back(before_first_step); }

  void operator()(const Head& h, const dry::BlockChange& b);
  void operator()(const Head&, const dry::Driver& d);
  void operator()(const Head&, const dry::Pool& p);
  void operator()(const Head&, const dry::Host& host);
  void operator()(const Head&, const dry::Collective& c);
  void operator()(const Head&, const dry::Read& r);
  void value_named(std::string_view text);  // "train.py:31 int64", by the observer, which sees Python where the library does not
  void unknown_by(const std::string& line);
  void operator()(const Head&, const dry::Note& n);
  void operator()(const Head&, const dry::Mark& m);
  void phase_begins(std::string_view phase);
  void step_ends();
  void divisions_said(std::string_view numbers);                 // "2,4,4": roundup_power2_divisions
  void open_said(const std::string& why, std::int64_t threads);  // nothing bounds what the program takes
  void workspace_told(std::uint64_t address);
  void workspace_on_card_told(std::uint64_t address, std::string_view range);
  void fraction_said(std::string_view text);  // "train.py:3 0 0.1": line, card (−1: every one), fraction
  ProcessStory story();

 private:
  std::uint32_t number_of(std::string_view phase);
  // The phase that was said. Where forward is never said, as without Python's frames, it is what lies outside of backward and the optimizer.
  std::uint32_t phase_said();
  // Without an observer: backward has threads of its own.
  std::uint32_t guessed(std::uint32_t thread) { return thread == main_thread_ ? number_of("main thread") : number_of("backward"); }
  static void note_phase(CardLog& c, std::uint64_t now, std::uint32_t phase) {
    if (c.phase_changes.empty() || c.phase_changes.back().second != phase) c.phase_changes.emplace_back(now, phase);
  }
  std::string what_is(const CardLog& c, const BlockLife& life) const;
  std::vector<ForecastBlockRow> rows_of(const CardLog& c, int rank, std::uint64_t at, bool only_saved);
  ProgramAccount account_of(std::uint32_t device, CardLog& c);
  void open(ProgramAccount&) const;  // takes back what nothing bounds
  // Expandable segments are one range of addresses for all blocks: where it lies changes nothing.
  void add_spread(std::uint32_t device, ProgramAccount& a, const CardLog& c) const;
  void add_before_update(const CardLog& c, ProgramAccount& a) const;
  static void settle_tried(CardLog& c);
  void add_steps(const CardLog& c, ProgramAccount& a) const;
  void add_phases(const CardLog& c, ProgramAccount& a) const;
  // What stands when backward begins, in the step of the peak; before the first step, or in a later one without backward: the last that has one.
  void add_saved(const CardLog& c, ProgramAccount& a, std::int64_t step);
  void add_curve(const CardLog& c, ProgramAccount& a) const;

  const dry::Process& process_;
  LinesOf lines_;
  ProcessStory story_;
  std::map<std::uint32_t, CardLog> cards_;
  std::vector<std::string> phases_;
  std::string benchmark_;     // the observer's note that cuDNN's convolutions are chosen by their times; empty: they are not
  bool tries_known_ = false;  // and what trying them takes is counted
  std::unordered_map<std::uint32_t, std::string> scopes_;
  std::map<std::string, UnknownValueRow> values_;
  std::map<std::string, std::int64_t> named_values_;
  std::map<std::pair<std::string, dry::Said>, OnlyAcceptedRow> functions_;
  std::map<int, Fraction> fractions_;             // by card; −1: every card
  std::uint64_t max_split_ = 0;                   // max_split_size_mb, in bytes; 0: it is not set
  std::array<std::uint32_t, 16> divisions_ = {};  // roundup_power2_divisions
  double collects_above_ = 0;                     // garbage_collection_threshold; 0: it is not set
  std::uint64_t unsure_ = 0;
  std::string phase_;  // said by the observer
  std::uint32_t main_thread_ = 0;
  bool marked_ = false, forward_said_ = false, backward_said_ = false;
};

}  // namespace headroom::studies
