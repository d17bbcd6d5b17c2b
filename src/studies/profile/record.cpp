#include <algorithm>

#include "base/text.h"
#include "instruments/profile/activity_file.h"
#include "studies/profile/profile.h"
#include "studies/step/quantised.h"

namespace headroom::studies {

namespace {

constexpr std::size_t rows_for_people = 12;

void shorten(Table& t) {
  constexpr int letters = 60;
  const bool of_kernels = t.name == "kernels" || t.name == "gaps";
  for (auto& row : t.rows)
    for (Value& v : row)
      if (auto* word = std::get_if<std::string>(&v)) *word = shortened(of_kernels ? profile::short_name(*word) : *word, letters);
  if (t.rows.size() <= rows_for_people) return;
  t.title += fmt::format(" (the first {} of {})", rows_for_people, t.rows.size());
  t.rows.resize(rows_for_people);
}

// A roof that is exceeded gets a note.
bool passes_a_roof(const Table& roofline) {
  const auto at = std::find_if(roofline.columns.begin(), roofline.columns.end(), [](const Column& c) { return c.name == "roof_share"; });
  return std::any_of(roofline.rows.begin(), roofline.rows.end(), [&](const auto& row) {
    const auto* share = std::get_if<double>(&row[std::size_t(at - roofline.columns.begin())]);
    return share && *share > 1.05;
  });
}

Record one_profile(const Profile& p, const ProfileResult& result, bool for_people, const std::string& name) {
  const ProfileTables tables{p.timeline, result.ceilings, result.precision};
  Record r{name, p.phase, {}};
  const auto& t = p.timeline;
  if (!for_people) r.add(Part{tables.timeline_rows()});
  r.add("phase", p.phase).add("steps", std::int64_t(tables.steps())).add("step_ms", tables.step_ms(), Unit::ms);
  if (const auto std = tables.step_ms_std()) r.add("step_ms_std", *std, Unit::ms);
  r.add("covered", tables.covered(), Unit::share).add("slices", std::int64_t(t.slices.size()));
  r.add("recording_ms", p.recording_ms, Unit::ms);
  r.add("peak_bytes", std::int64_t(p.peak_bytes), Unit::bytes);
  add_tensor_use(p, result, r);
  if (!p.ranks.empty()) {
    r.add(Part{table_of<RankRow>("ranks", "Ranks: milliseconds of a step, by each one's clock", p.ranks)});
    Table lanes = table_of<LaneRow>("lanes", "Lanes of the last step: collectives, and the work between them", p.lanes);
    if (for_people) shorten(lanes);
    r.add(Part{std::move(lanes)});
    r.add(
        Part{Note{"exposed_ms is the part of the collectives beside which nothing else ran, and what nothing covered just before and after "
                  "them: waiting for another rank. On a CPU nothing runs beside. The tables below are of rank 0.",
                  false}});
  }
  Table list[] = {tables.kernels(), tables.phases(), tables.modules(), tables.attention(), tables.roofline(), tables.gaps()};
  for (Table& table : list) {
    if (table.rows.empty()) continue;
    const bool passed = table.name == "roofline" && passes_a_roof(table);
    if (for_people) shorten(table);
    r.add(Part{std::move(table)});
    if (passed)
      r.add(Part{Note{
          "Above 100 % of a roof: its tensors came from a cache, or the ceiling was measured while the machine was busy; or it is FP32 "
          "attention by products of tf32 (flash_sm80_fp32).",
          false}});
  }
  if (for_people) {
    if (const std::string chart = tables.roofline_chart(); !chart.empty()) r.add(Part{Note{chart, false}});
  } else {
    r.add(Part{tables.layers()}).add(Part{tables.memory()});
  }
  if (!p.quantised.empty()) {
    Table counts =
        table_of("quantised", "Numbers quantised to fp8 in the last step", for_people ? by_tensor(p.quantised) : by_layer(p.quantised));
    if (for_people) leave_out(counts, "layer");
    r.add(Part{std::move(counts)});
  }
  r.add(Part{at_peak_table(p.at_peak, for_people ? rows_for_people : p.at_peak.size())});
  for (const std::string& note : p.notes) r.add(Part{Note{note}});
  return r;
}

}  // namespace

std::unique_ptr<profile::Recording> recording_of(const Place& place, const Ledger& ledger, profile::TimelineTrace* trace) {
  if (!place.on_gpu()) return std::make_unique<profile::Recording>(&ledger, trace);
  return std::make_unique<profile::Recording>(
      &ledger, [&place] { place.wait(); }, trace);
}

// The answer in one line: how long it takes, and which kernels take most of that.
std::string answer_of(const Profile& p, const ProfileTables& tables) {
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  std::vector<std::string> most;
  for (const KernelTimeRow& row : tables.kernel_rows()) {
    if (most.size() == 3) break;
    most.push_back(fmt::format("{} {}", shortened(row.kernel, 40), percent(row.share)));
  }
  std::string words = fmt::format("Phase {} takes {} a step", p.phase, time_in_words(tables.step_ms()));
  if (!most.empty()) words += ": " + joined(most, ", ");
  const double idle = 1 - tables.covered();
  return words + (idle > 0.05 ? fmt::format("; nothing runs for {} of it.", percent(idle)) : ".");
}

Record profile_record(const ProfileResult& result, bool for_people) {
  Record all{"", result.title, {}};
  if (result.profiles.empty()) return all.add(Part{Note{"Stopped before anything was recorded."}});
  const auto tables_of = [&](const Profile& p) { return ProfileTables{p.timeline, result.ceilings, result.precision}; };
  const Profile& last = result.profiles.back();
  all.title = answer_of(last, tables_of(last));
  all.add(Part{Note{result.title}});
  std::vector<WorkRow> rows;
  for (const Profile& p : result.profiles) rows.push_back(tables_of(p).work(p.phase));
  Table work = table_of("work", "Matmul against everything else", rows);
  if (for_people) {
    all.add(Part{one_profile(last, result, true, last.phase)});
    for (std::size_t i = 0; i + 1 < result.profiles.size(); ++i) {  // the comparison of two variants
      Table t = tables_of(result.profiles[i]).attention();
      if (t.rows.empty() || t.rows.size() == 1) continue;
      t.title += fmt::format(" ({})", result.profiles[i].phase);
      all.add(Part{std::move(t)});
    }
    all.add(Part{std::move(work)});
    all.add(Part{Note{"attention_ms is of kernels that do products and softmax together; idle_ms is time in which nothing ran.", false}});
    return all;
  }
  Record first = one_profile(last, result, false, "");
  for (Part& p : first.parts) all.add(std::move(p));
  all.add(Part{std::move(work)});
  for (std::size_t i = 0; i + 1 < result.profiles.size(); ++i)
    all.add(Part{one_profile(result.profiles[i], result, false, result.profiles[i].phase)});
  all.add("ceilings", result.ceilings.source);
  return all;
}

}  // namespace headroom::studies
