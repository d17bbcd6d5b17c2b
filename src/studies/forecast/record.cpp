// What a forecast says: the answer, where the bytes are, what could be wrong.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "base/pinned_pages.h"
#include "base/text.h"
#include "studies/forecast/forecast.h"
#include "studies/forecast/verdict.h"

namespace headroom::studies {

namespace {

constexpr std::size_t rows_shown = 8;

std::string words(std::uint64_t b) { return bytes_in_words(double(b)); }
std::string words(std::uint64_t low, std::uint64_t high) {  // where they differ by less than the words do, by how much
  const std::string from = words(low), to = words(high);
  return low == high ? from : from != to ? fmt::format("{} to {}", from, to) : fmt::format("{} to {} more", from, words(high - low));
}

bool has_width(const dry::Spread& s) { return s.low.allocated < s.high.allocated || s.low.reserved < s.high.reserved; }

// Rows of the blocks of one rank, by one of their words.
Table by_word(const std::vector<ForecastBlockRow>& blocks, const std::string& name, const std::string& title,
              std::string ForecastBlockRow::*word, const char* without) {
  std::map<std::string, ForecastBlockRow> sums;
  std::uint64_t all = 0;
  for (const ForecastBlockRow& b : blocks) {
    ForecastBlockRow& s = sums[b.*word];
    s.bytes += b.bytes;
    s.blocks += b.blocks;
    all += b.bytes;
  }
  std::vector<ForecastBlockRow> rows;
  for (auto& [key, row] : sums) {
    row.*word = key.empty() ? without : key;
    row.share = double(row.bytes) / double(std::max<std::uint64_t>(all, 1));
    rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (rows.size() > rows_shown) {
    ForecastBlockRow rest;
    rest.*word = fmt::format("({} more)", rows.size() - rows_shown + 1);
    for (std::size_t i = rows_shown - 1; i < rows.size(); ++i) {
      rest.bytes += rows[i].bytes;
      rest.share += rows[i].share;
      rest.blocks += rows[i].blocks;
    }
    rows.resize(rows_shown - 1);
    rows.push_back(rest);
  }
  Table t = table_of(name, title, rows);
  leave_out(t, "rank");
  for (const auto& [member, column] : {std::pair{&ForecastBlockRow::what, "what"}, std::pair{&ForecastBlockRow::module, "module"},
                                       std::pair{&ForecastBlockRow::line, "line"}})
    if (member != word) leave_out(t, column);
  return t;
}

bool has_any(const std::vector<ForecastBlockRow>& blocks, std::string ForecastBlockRow::*word) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const auto& b) { return !(b.*word).empty(); });
}

Chart curve_of(const ProgramAccount& a, const Room& room) {
  Chart c{"Live bytes over the run", "share of the run", "", Unit::bytes, false, {{"allocated", {}}, {"reserved", {}}}};
  for (std::size_t i = 0; i < a.curve.size(); ++i) {
    const double x = double(i) / double(std::max<std::size_t>(a.curve.size() - 1, 1));
    c.series[0].points.emplace_back(x, double(a.curve[i].allocated_bytes));
    c.series[0].names.push_back(a.curve[i].phase);
    c.series[1].points.emplace_back(x, double(a.curve[i].reserved_bytes));
  }
  if (double(room.memory_bytes) < 4 * double(a.peak_reserved_bytes + room.overhead_bytes))
    c.marks.push_back({"memory less what is beside", double(room.for_peak())});
  return c;
}

template <class Row>
std::vector<Row> of_all(const std::vector<ProgramAccount>& accounts, std::vector<Row> ProgramAccount::*part) {
  std::vector<Row> all;
  for (const ProgramAccount& a : accounts) all.insert(all.end(), (a.*part).begin(), (a.*part).end());
  return all;
}

std::vector<UnknownValueRow> values_of(const Told& t) {
  std::map<std::string, UnknownValueRow> sums;
  for (const ProcessStory& p : t.processes)
    for (const UnknownValueRow& v : p.values) {
      UnknownValueRow& s = sums[v.line];
      s.line = v.line;
      s.count += v.count;
      s.bytes += v.bytes;
    }
  std::vector<UnknownValueRow> rows;
  for (auto& [line, row] : sums) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return rows;
}

std::vector<OnlyAcceptedRow> functions_of(const Told& t) {
  std::map<std::string, OnlyAcceptedRow> all;
  for (const ProcessStory& p : t.processes)
    for (const OnlyAcceptedRow& f : p.functions) {
      OnlyAcceptedRow& row = all.try_emplace(f.function, f).first->second;
      row.count = std::max(row.count, f.count);
    }
  std::vector<OnlyAcceptedRow> rows;
  for (auto& [name, row] : all) rows.push_back(row);
  return rows;
}

// What was not run, where the forecast itself ended the program after enough steps; else empty.
std::string rest_of(const Told& t) {
  const ProcessStory* const ended = ended_by_forecast(t);
  const std::int64_t steps = t.row.steps.value_or(0);
  if (!ended || ended->ended_itself) return "";
  return fmt::format(
      "The forecast ended the program after {}: {}. What comes later was not run (evaluation, larger batches, saving); "
      "--steps 1000 runs up to 1000 steps.",
      counted(std::uint64_t(steps), "step"), ended->end);
}

// "three times: with A, with B, with C; the need is the interval of all three", of the runs that did not fail.
std::string said_of_runs(const std::string& first, const std::vector<OtherRun>& others) {
  constexpr std::array numbers{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
  const auto number = [&](std::size_t n) { return n < numbers.size() ? std::string(numbers[n]) : std::to_string(n); };
  std::vector<std::string> runs{first};
  for (const OtherRun& other : others)
    if (other.failed.empty()) runs.push_back(other.how);
  const std::size_t n = runs.size();
  const std::string times = n == 1 ? "once" : n == 2 ? "twice" : number(n) + " times", all = n == 2 ? "both" : "all " + number(n);
  return fmt::format("{}: {}{}", times, joined(runs), n > 1 ? fmt::format("; the need is the interval of {}", all) : "");
}

// Runs with other guesses that failed.
std::vector<OtherRun> failed_runs(const Told& t) {
  std::vector<OtherRun> failed;
  for (const auto* runs : {&t.guess_runs, &t.late_runs})
    std::ranges::copy_if(*runs, std::back_inserter(failed), [](const OtherRun& run) { return !run.failed.empty(); });
  return failed;
}

std::set<std::string> runtimes_of(const Told& t) {
  std::set<std::string> files;
  for (const ProcessStory& p : t.processes) files.insert(p.static_runtimes.begin(), p.static_runtimes.end());
  return files;
}

std::vector<SaidRow> said_of(const Told& t) {  // each sentence once, however many ranks say it
  std::vector<SaidRow> rows;
  if (!t.other_float.empty())
    rows.push_back(
        {"note", fmt::format("with 0.75 for a float that only the card knows the program ended before its second step, so it ran "
                             "again with {}",
                             t.other_float)});
  if (const std::string rest = rest_of(t); !rest.empty()) rows.push_back({"ended", rest});
  if (const auto fraction = fraction_of(t))
    rows.push_back({"fraction", fmt::format("{} lets PyTorch reserve {:.4g} of the card, {} of {}", fraction->line, fraction->share,
                                            words(fraction->of(t.room.memory_bytes)), words(t.room.memory_bytes))});
  if (t.accounts.front().before_update)
    rows.push_back(
        {"note",
         fmt::format("a scaler of the loss skips the first steps on a card, while its scale is too large. If it skips all {} of this "
                     "program, there is no optimizer state: {} allocated, {} reserved",
                     t.row.steps.value_or(0), words(t.accounts.front().before_update->allocated),
                     words(t.accounts.front().before_update->reserved))});
  for (const std::string& file : runtimes_of(t))
    rows.push_back(
        {"runtime", fmt::format("{} has a CUDA runtime of its own, or calls one past the program's: it was told that there is no card, "
                                "and what it would take is not counted",
                                file)});
  for (const OtherRun& run : failed_runs(t))
    rows.push_back({"run", fmt::format("another run of the program, {}, failed ({}){}", run.how, run.failed,
                                       run.bounds ? ", so it is not in the interval" : ", so nothing bounds the need from above")});
  for (const ProcessStory& p : t.processes)
    for (const SaidRow& s : p.said)
      if (std::ranges::none_of(rows, [&](const SaidRow& r) { return r.what == s.what && r.text == s.text; })) rows.push_back(s);
  return rows;
}

void note(Record& r, std::string text) { r.add(Part{Note{std::move(text), false}}); }

// For programs: numbers and tables, without sentences.
Record uncertain_as_data(const Told& t) {
  Record r{"uncertain", "", {}};
  const std::optional<std::uint64_t> high = t.row.high_bytes;
  r.add("low_bytes", std::int64_t(t.row.low_bytes.value_or(t.row.needed_bytes)), Unit::bytes);
  r.add("high_bytes", high ? Value(std::int64_t(*high)) : Value(), Unit::bytes);
  const ProgramAccount& a = t.accounts.front();  // with segments at other addresses
  const bool open = (t.runs && t.runs->open) || std::ranges::any_of(t.processes, [](const ProcessStory& p) { return !p.open.empty(); });
  const auto allocated = [&](const auto& end) { return a.spread ? Value(std::int64_t(end(*a.spread))) : Value(); };
  r.add("allocated_low_bytes",
        allocated([&](const dry::Spread& s) { return t.runs ? t.runs->allocated_low_bytes : least_allocated(a, s.low.allocated); }),
        Unit::bytes);
  const Value most = allocated([&](const dry::Spread& s) { return t.runs ? t.runs->allocated_high_bytes : s.high.allocated; });
  r.add("allocated_high_bytes", open ? Value() : most, Unit::bytes);
  r.add("unknown_values", t.row.unknown_values).add("accepted_functions", t.row.accepted_functions);
  r.add(Part{table_of("values", "", values_of(t))});
  r.add(Part{table_of("functions", "", functions_of(t))});
  return r.add(Part{table_of("said", "", said_of(t))});
}

void add_values(Record& r, const Told& t, const std::vector<UnknownValueRow>& values) {
  if (values.empty()) return;
  std::vector<UnknownValueRow> shown(values.begin(), values.begin() + std::ptrdiff_t(std::min(rows_shown, values.size())));
  r.add(Part{
      table_of("values",
               fmt::format("The program read {} that only a card can compute. It got {} for each float, and a guess or 0 for the others",
                           counted(std::size_t(t.row.unknown_values), "value"), t.other_float.empty() ? "0.75" : t.other_float),
               shown)});
  note(r,
       "A value that is only printed or logged changes nothing. One that decides a size, a branch or the end of a loop does: look at these "
       "lines.");
}

void add_functions(Record& r, const Told& t, const std::vector<OnlyAcceptedRow>& functions) {
  std::vector<OnlyAcceptedRow> shown_functions;  // one that is refused answers as a card without it does
  for (const OnlyAcceptedRow& f : functions)
    if (f.what != "refused" || t.row.status == Status::failed) shown_functions.push_back(f);
  if (!shown_functions.empty()) {
    std::vector<OnlyAcceptedRow> shown(shown_functions.begin(),
                                       shown_functions.begin() + std::ptrdiff_t(std::min(rows_shown, shown_functions.size())));
    r.add(Part{table_of("functions", "CUDA functions that did not answer as they do on a card", shown)});
  }
}

// What addresses and workspaces leave open.
void add_spread(Record& r, const ProgramAccount& most) {
  if (most.spread && most.spread->layouts > 1 && has_width(*most.spread))
    note(r,
         fmt::format("{}, PyTorch chose among free blocks of one size by their addresses, which only the card knows. With {} other sets of "
                     "addresses{} the peak is {} allocated and {} reserved.",
                     most.spread->choices == 1 ? "Once" : fmt::format("{} times", most.spread->choices), most.spread->layouts - 1,
                     most.spread->smaller + most.spread->larger > 0 ? ", and with workspaces as a card may ask for them" : "",
                     words(most.spread->low.allocated, most.spread->high.allocated),
                     words(most.spread->low.reserved, most.spread->high.reserved)));
  if (most.spread && most.spread->smaller + most.spread->larger > 0 && has_width(*most.spread))
    note(r, fmt::format("Only a card decides the workspaces of some convolutions: {} may be smaller there, or absent, and {} larger. The "
                        "interval has both.",
                        most.spread->smaller, most.spread->larger));
}

void add_other_runs(Record& r, const Told& t) {
  if (!t.routing.empty()) {
    std::vector<std::string> reads;
    for (const Routing& one : t.routing) reads.push_back(fmt::format("{} {}", one.line, words_of(one.guessed).does));
    const bool drawn = std::ranges::any_of(t.routing, [](const Routing& one) { return one.guessed == Guessed::draws; });
    note(r, fmt::format("{}, which only the card knows. The program was run {}{}.", joined(reads, ", and "),
                        said_of_runs(words_of_run(t.routing, 0), t.guess_runs), drawn ? "; a card draws still other numbers" : ""));
  }
  if (!t.late_runs.empty())
    note(r,
         fmt::format(
             "Memory of one stream that another used, or that PyTorch holds for a collective, comes back once the card is done with it and "
             "PyTorch has looked, sooner or later by the speed of card and host. The program was run {}.",
             said_of_runs("as this card's clock has it", t.late_runs)));
}

// Why nothing bounds the need from above.
std::string why_open(const Told& t, const std::vector<OnlyAcceptedRow>& functions) {
  if (t.at_least) return "what it takes after it runs out was not seen";
  if (std::ranges::any_of(failed_runs(t), [](const OtherRun& run) { return !run.bounds; }))
    return "a run with other values of the card failed, and what it would take was not seen";
  if (!runtimes_of(t).empty()) return "what a runtime of its own would take is not counted";
  if (std::ranges::any_of(t.processes, &ProcessStory::tuned))
    return "measuring kernels to choose among them leaves memory reserved on a card, of which only a part is seen here";
  if (std::ranges::any_of(t.processes, [](const ProcessStory& p) { return !p.open.empty(); }))
    return "values, or an order, that only the card's machine knows may need more, as a remark here says";
  if (std::ranges::any_of(functions, [](const OnlyAcceptedRow& f) { return f.may_take_more(); }))
    return "a function above may ask for more workspace than is counted";
  if (!t.short_by.empty()) return "what a second step takes was not seen";
  return "PyTorch's requests could not be played again at other addresses (another allocator, CUDA graphs, a very long run), where it may "
         "need more";
}

Record uncertain_of(const Told& t, bool for_people) {
  if (!for_people) return uncertain_as_data(t);
  const auto values = values_of(t);
  const auto functions = functions_of(t);
  const ProgramAccount& most = t.accounts.front();
  const std::uint64_t low = t.row.low_bytes.value_or(t.row.needed_bytes);
  const std::optional<std::uint64_t> high = t.row.high_bytes;
  Record r{"uncertain", "What could be wrong", {}};
  if (std::string rest = rest_of(t); !rest.empty()) note(r, std::move(rest));
  if (values.empty() && t.row.accepted_functions == 0)
    note(r,
         "Nothing in PyTorch's own bytes: the program read no value that only a card can compute, and every CUDA function that it called "
         "is known here.");
  add_values(r, t, values);
  add_functions(r, t, functions);
  add_spread(r, most);
  add_other_runs(r, t);
  if (most.pool_slack_bytes > 0)
    note(r, fmt::format("What a pool of cudaMallocAsync keeps is not published. It needs at least what is live, which is {} less than is "
                        "counted here.",
                        words(most.pool_slack_bytes)));
  if (high && low < least_of(t) && !overhead_of(t, int(t.row.ranks)).measured)
    note(r, fmt::format(
                "The bytes beside PyTorch's memory are a reserve, not measured on this card, and rather too large: as little as {} may "
                "be needed.",
                words(low)));
  if (!high) note(r, fmt::format("At least {}: {}.", words(low), why_open(t, functions)));
  return r;
}

void add_beside(const Told& t, Record& r) {
  const Overhead o = overhead_of(t, int(std::max<std::int64_t>(1, t.row.ranks)));
  std::string text = fmt::format("Beside PyTorch's memory: CUDA context {}", words(o.beside.context_bytes));
  if (o.beside.libraries_bytes > 0) text += fmt::format(", libraries' code and handles {}", words(o.beside.libraries_bytes));
  if (t.room.overhead_bytes > o.beside.context_bytes + o.beside.libraries_bytes)
    text += fmt::format(", NCCL and contexts of other ranks {}",
                        words(t.room.overhead_bytes - o.beside.context_bytes - o.beside.libraries_bytes));
  const ProgramAccount& most = t.accounts.front();
  const std::uint64_t libraries = std::min(most.libraries_bytes, most.elsewhere_bytes);
  if (libraries > 0)
    text += fmt::format(", libraries' code and handles, streams, graphs and the map of pinned memory {}", words(libraries));
  if (most.elsewhere_bytes > libraries)
    text += fmt::format(", taken by the program past PyTorch {}", words(most.elsewhere_bytes - libraries));
  if (most.others_bytes > 0)
    text += fmt::format(", of its other processes on the same card {} (the peaks are those of process {}, which has most there)",
                        words(most.others_bytes), most.pid);
  text += o.measured ? " (measured on this card)." : " (a reserve, not measured on this card).";
  if (!t.room.less_than_asked.empty()) text += fmt::format(" The limit is {}, {}.", words(t.room.memory_bytes), t.room.less_than_asked);
  r.add(Part{Note{text, false}});
  const bool one_card = std::ranges::all_of(t.accounts, [&](const ProgramAccount& a) { return a.card == most.card; });
  if (t.started > 1 && t.row.ranks <= 1 && most.others_bytes > 0 && one_card)
    r.add(Part{Note{fmt::format("The launcher starts {} processes, and all use card {}: a rank takes its own by "
                                "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
                                t.started, most.card),
                    false}});
}

void add_host(const Told& t, Record& r) {
  if (const std::uint64_t pinned = t.row.pinned_bytes.value_or(0); pinned >= 1 << 20)  // a loss that is read takes a few KiB
    r.add(Part{Note{fmt::format("Pinned memory of the host: {} in all processes, beside their ordinary memory.{}", words(pinned),
                                bytes_of_pinned_pages(pinned) > 0 ? " A card takes a 512th of it to map it, which is in the need." : ""),
                    false}});
  if (t.row.managed_bytes)
    r.add(Part{Note{fmt::format("Unified memory: {}. It is not in the need: its pages are on the card only while the card uses them.",
                                words(*t.row.managed_bytes)),
                    false}});
}

void add_fragmentation(const Told& t, Record& r) {
  const ForecastRow& row = t.row;
  const std::uint64_t gap = row.fragmented_bytes.value_or(0);
  if (row.peak_reserved_bytes == 0) return;
  std::string text = fmt::format("Fragmentation: the reserved peak is {} above the allocated peak ({:.0f} % of what is reserved).",
                                 words(gap), 100.0 * double(gap) / double(row.peak_reserved_bytes));
  if (t.expandable)
    text += fmt::format(" With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True it needs {}{}.", words(t.expandable->needed_bytes),
                        t.expandable->fits == true && row.fits == false ? " and fits" : "");
  else if (gap > row.peak_reserved_bytes / 20 && !t.tries)
    text += " --try shows which allocator setting avoids it.";
  r.add(Part{Note{text, false}});
}

// For people: the rank that needs most. As data: all of them.
void add_tables(const Told& t, bool for_people, Record& r) {
  Table ranks = table_of("ranks", t.row.ranks > 1 ? "By rank, the largest first" : "By process and card, the largest first", t.ranks);
  if (!for_people) {
    r.add(Part{std::move(ranks)});
    r.add(Part{table_of("phases", "", of_all(t.accounts, &ProgramAccount::phases))});
    r.add(Part{table_of("steps_done", "", of_all(t.accounts, &ProgramAccount::steps))});
    r.add(Part{table_of("at_peak", "", of_all(t.accounts, &ProgramAccount::at_peak))});
    r.add(Part{table_of("saved", "", of_all(t.accounts, &ProgramAccount::saved))});
    r.add(Part{table_of("curve", "", of_all(t.accounts, &ProgramAccount::curve))});
    r.add(Part{table_of("time", "", t.time.parts)});
    r.add(Part{table_of("launches", "", t.time.launches_of_step)});
    return;
  }
  if (t.ranks.size() > 1) r.add(Part{std::move(ranks)});
  const ProgramAccount& a = t.accounts.front();
  const std::string whose = t.row.ranks > 1 ? fmt::format(" of rank {}", a.rank) : t.ranks.size() > 1 ? " of the largest" : "";
  if (!a.phases.empty()) {
    Table phases = table_of("phases", "By phase" + whose, a.phases);
    leave_out(phases, "rank");
    r.add(Part{std::move(phases)});
  }
  const std::string peak = fmt::format("At the peak{}", whose);
  if (!a.at_peak.empty()) r.add(Part{by_word(a.at_peak, "at_peak", peak + ", by what it is", &ForecastBlockRow::what, "")});
  if (has_any(a.at_peak, &ForecastBlockRow::module))
    r.add(Part{by_word(a.at_peak, "at_peak_modules", peak + ", by module", &ForecastBlockRow::module, "(outside every module)")});
  if (has_any(a.at_peak, &ForecastBlockRow::line))
    r.add(Part{by_word(a.at_peak, "at_peak_lines", peak + ", by the line that allocated it", &ForecastBlockRow::line,
                       "(PyTorch's own threads, as in backward)")});
  if (has_any(a.saved, &ForecastBlockRow::line))
    r.add(Part{by_word(a.saved, "saved", fmt::format("Saved for backward{}: {}", whose, words(a.saved_bytes)), &ForecastBlockRow::line,
                       "(no line)")});
  if (!t.time.parts.empty()) {
    Table time = table_of("time", "A step's time, by what the card does" + whose, t.time.parts);
    leave_out(time, "rank");
    r.add(Part{std::move(time)});
  }
  if (a.curve.size() > 2) r.add(Part{curve_of(a, t.room)});
}

}  // namespace

Record told_record(const Told& t, bool for_people) {
  Record r{"forecast", verdict(t), {}};
  const ForecastRow& row = t.row;
  r.add("program", row.program).add("device", row.device);
  r.add("fits", row.fits ? Value(*row.fits) : for_people ? Value(std::string("not known")) : Value());
  r.add("peak_allocated_bytes", std::int64_t(row.peak_allocated_bytes), Unit::bytes);
  r.add("peak_reserved_bytes", std::int64_t(row.peak_reserved_bytes), Unit::bytes);
  r.add("beside_bytes", std::int64_t(row.beside_bytes), Unit::bytes);
  r.add("needed_bytes", std::int64_t(row.needed_bytes), Unit::bytes);
  r.add("memory_bytes", std::int64_t(row.memory_bytes), Unit::bytes);
  if (!for_people || row.allowed_bytes)
    r.add("allowed_bytes", row.allowed_bytes ? Value(std::int64_t(*row.allowed_bytes)) : Value(), Unit::bytes);
  const auto ms = [&](const char* name, const std::optional<double>& x) {
    if (!for_people || x) r.add(name, x ? Value(*x) : Value(), Unit::ms);
  };
  ms("ms", row.ms);
  if (!for_people) {
    ms("ms_low", row.ms_low);
    ms("ms_high", row.ms_high);
    r.add("time_why", row.time_why).add("time_limit", row.time_limit).add("time_source", t.time.source);
    r.add("status", value_of_member(row.status)).add("why", row.why).add("line", row.line).add("source", row.source);
    const auto maybe = [](const auto& x) { return x ? Value(std::int64_t(*x)) : Value(); };
    r.add("step_allocated_bytes", maybe(row.step_allocated_bytes), Unit::bytes).add("saved_bytes", maybe(row.saved_bytes), Unit::bytes);
    r.add("fragmented_bytes", maybe(row.fragmented_bytes), Unit::bytes).add("host_bytes", maybe(row.host_bytes), Unit::bytes);
    r.add("pinned_bytes", maybe(row.pinned_bytes), Unit::bytes).add("managed_bytes", maybe(row.managed_bytes), Unit::bytes);
    r.add("steps", maybe(row.steps)).add("to_its_end", row.to_its_end).add("rank_count", row.ranks);
    r.add(Part{table_of("rows", "", std::vector{row})});
    add_tables(t, false, r);
    r.add(Part{uncertain_of(t, false)});
    return r;
  }
  const ProgramAccount& a = t.accounts.front();
  std::string peak = a.peak_step > 0 ? fmt::format("The peak is in step {}", a.peak_step) : "The peak is before the first step";
  if (!a.peak_phase.empty() && a.peak_step > 0) peak += fmt::format(", {}", a.peak_phase);
  if (!a.peak_line.empty()) peak += fmt::format(", at {}", a.peak_line);
  if (a.step_allocated_bytes && *a.step_allocated_bytes != a.peak_allocated_bytes)
    peak += fmt::format("; later steps reach {}", words(*a.step_allocated_bytes));
  r.add(Part{Note{peak + ".", false}});
  add_beside(t, r);
  add_host(t, r);
  add_fragmentation(t, r);
  r.add(Part{Note{in_words(t.time), false}});
  add_tables(t, true, r);
  r.add(Part{uncertain_of(t, true)});
  for (const auto& [what, text] : said_of(t))
    if (what != "ended") r.add(Part{Note{fmt::format("{}: {}.", what, text), false}});  // "ended" is among what could be wrong
  return r;
}

}  // namespace headroom::studies
