#include "studies/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "report/described_table.h"
#include "store/row_objects.h"
#include "studies/launch.h"
#include "studies/report/run.h"
#include "studies/results/rows_table.h"
#include "studies/scratch_folder.h"

namespace headroom::studies {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

// In --quick fewer rounds and cells: all but the steps of torch.compile take two minutes and a half on an H100. What takes longest is last; it
// keeps what it has when the time is over.
std::vector<BenchTable> tables_of_gpu(int gpus, bool quick) {
  const auto peers = [&](const char* more, const char* shorter) {
    return words_of(fmt::format("python3 bench/peers/attention_gpu.py libheadroom_variants.so {}{}", more, quick ? shorter : ""));
  };
  const auto ours = [](const char* more) { return words_of(fmt::format("headroom {}", more)); };
  constexpr const char* fewer = " --rounds 5";
  std::vector<BenchTable> all{
      {"device", "Ceilings of this machine", "docs/measuring.md", ours("device --device cuda"), "ceilings", 0.5},
      {"attention-forward", "Attention forward beside FlashAttention-3 and PyTorch's", "docs/attention.md",
       peers("--pass forward --dims 64,128,256 --peers cudnn,fa3,flash", fewer), "rows", quick ? 0.4 : 1.0},
      {"attention-backward", "Attention backward beside FlashAttention-3 and PyTorch's", "docs/attention.md",
       peers("--pass backward --dims 64,128,256 --peers cudnn,fa3,flash", fewer), "rows", quick ? 0.7 : 1.5},
      {"attention-documents", "Packed documents beside rows of a batch", "docs/attention.md", peers("--set documents --pass both", fewer),
       "rows", quick ? 0.5 : 1},
      {"attention-decode", "One new position against a cache beside PyTorch's", "docs/attention.md",
       peers("--set decode --peers cudnn,flash", fewer), "rows", quick ? 0.3 : 0.7},
      {"step", "Training steps, ours", "docs/performance.md",
       ours(quick ? "step --device cuda --model small,large,2.7B --len 1024 --batch 4 --precision bf16 --steps 5 --warmup 3"
                  : "step --device cuda --model small,large,2.7B --len 1024 --batch 4 --precision bf16 --steps 10"),
       "rows", quick ? 0.2 : 0.5, true},
      {"step-fp8", "Training steps in fp8, ours", "docs/performance.md",
       ours("step --device cuda --model small,2.7B --len 1024 --batch 4 --precision fp8 --masters halves --update during --gradients half "
            "--phase train --steps 10"),
       "rows", quick ? 0.1 : 0.2, true},
      {"attention-others", "Attention beside other kernels of PyTorch's, Triton's and cuDNN's", "docs/attention.md",
       peers(
           "--pass both --dims 128 --lens 4096 --masks causal --peers cudnn,efficient,math,flex,tlx,cudnn-frontend,cudnn-frontend-ordered",
           fewer),
       "rows", 0.5},
      {"attention", "Attention, ours", "docs/attention.md",
       ours(quick
                ? "attention --device cuda --attention all --precision bf16 --batch 4 --heads 16 --dim 128 --len 1024,4096 --mask causal "
                  "--seconds 0.1"
                : "attention --device cuda --attention all --precision bf16 --batch 4 --heads 16 --dim 64,128 --len 1024,4096,16384 --mask "
                  "causal --seconds 0.3"),
       "rows", quick ? 0.3 : 2, true},
      {"step-peers", "Training steps beside torch.compile", "docs/performance.md",
       words_of(fmt::format("python3 bench/peers/gpu_step.py --models small,large,2.7B --modes {} --gradients {} --rounds {}",
                            quick ? "graphs" : "compile,graphs", quick ? "none" : "half,none", quick ? 1 : 3)),
       "rows", quick ? 4.0 : 10}};
  if (gpus > 1)
    all.push_back({"comm", "Collectives between the GPUs", "docs/several-gpus.md",
                   words_of(fmt::format("headroom comm --device cuda --gpus {}", gpus)), "comm", quick ? 0.5 : 1});
  return all;
}

std::vector<BenchTable> tables_of_cpu(bool quick) {
  return {
      {"device", "Ceilings of this machine", "docs/measuring.md", words_of("headroom device --device cpu"), "ceilings", 1},
      {"attention", "Attention, ours", "docs/attention.md",
       words_of(
           quick ? "headroom attention --device cpu --attention plain,flash --precision fp32 --batch 1 --heads 4 --dim 64 --len 256,1024 "
                   "--mask causal --seconds 0.1"
                 : "headroom attention --device cpu --attention plain,flash --precision fp32 --batch 1 --heads 4 --dim 64 --len "
                   "256,1024,2048 "
                   "--mask causal --seconds 0.3"),
       "rows", 1, true},
      {"attention-peers", "Attention beside PyTorch's", "docs/attention.md",
       words_of(quick ? "python3 bench/peers/cpu_attention.py --dims 64 --lens 256,1024 --masks causal --seconds 0.1"
                      : "python3 bench/peers/cpu_attention.py --dims 64,128 --lens 256,1024,4096 --masks causal --seconds 0.5"),
       "rows", quick ? 0.5 : 2},
      {"step", "Training steps, ours", "docs/engine.md",
       words_of(quick ? "headroom step --device cpu --layers 4 --width 256 --heads 4 --vocab 10000 --len 256 --steps 2 --warmup 1"
                      : "headroom step --device cpu --layers 4 --width 256 --heads 4 --vocab 10000 --len 256 --steps 5 --warmup 1"),
       "rows", 1, true},
      {"step-peers", "Training steps beside PyTorch", "docs/engine.md",
       words_of(quick ? "python3 bench/peers/cpu_step.py --layers 4 --width 256 --heads 4 --len 256 --steps 3 --warmup 1 --rounds 1"
                      : "python3 bench/peers/cpu_step.py --layers 4 --width 256 --heads 4 --len 256 --steps 5 --warmup 2 --rounds 3"),
       "rows", quick ? 1.0 : 2},
      {"comm", "Collectives between processes", "docs/several-gpus.md", words_of("headroom comm --device cpu --ranks 2 --bytes 1MB,10MB"),
       "comm", 0.5}};
}

bool of_peers(const BenchTable& t) { return t.command.front() == "python3"; }

fs::path this_program() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

struct Peers {  // libraries that can take turns with this one here
  fs::path folder;
  std::string python, torch, why_not;
};

std::string tail_of(std::string text) {
  constexpr std::size_t most = 4096;
  return text.size() > most ? text.substr(text.size() - most) : text;
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \n\r");
  if (end == std::string::npos) return "";
  const auto begin = text.find_last_of("\n\r", end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

Peers peers_of(const BenchAsked& asked) {
  Peers p{"", asked.python, "", ""};
  for (const fs::path& place : {fs::path(asked.peers), fs::path("bench/peers"), this_program().parent_path() / "../../bench/peers"})
    if (std::error_code ignored; !place.empty() && p.folder.empty() && fs::exists(place / "cells.py", ignored))
      p.folder = fs::canonical(place, ignored);
  if (p.folder.empty()) p.why_not = "the scripts of bench/peers are not here; --peers names their folder in a clone of the repository";
  if (!p.why_not.empty()) return p;
  std::string said;
  const std::string no_torch = fmt::format("{} has no torch to take turns with; --python names one that has", asked.python);
  try {
    const Ended e = launch({.who = "bench",
                            .advice = "--python names another",
                            .command = {asked.python, "-c", "import torch; print(torch.__version__)"},
                            .output = [&](std::string_view text) { said += text; }});
    e.exit_code == 0 ? p.torch = last_line(said) : p.why_not = no_torch;
  } catch (const Error&) { p.why_not = no_torch; }
  return p;
}

// The words that are run: this program, that Python, and where the other files lie.
struct Runnable {
  std::vector<std::string> words;
  std::string why_not;
};
Runnable runnable(const BenchTable& t, const Peers& peers, const fs::path& out, const Host& host) {
  Runnable r{t.command, ""};
  if (!of_peers(t)) {
    r.words.front() = this_program().string();
    if (!host.store.empty()) r.words.insert(r.words.end(), {"--db", host.store});
    if (t.resumes && host.resume) r.words.emplace_back("--resume");
    r.words.insert(r.words.end(), {"--out", out.string()});
    return r;
  }
  r.why_not = peers.why_not;
  r.words.front() = peers.python;
  for (std::string& word : r.words)
    if (word.starts_with("bench/peers/")) word = (peers.folder / fs::path(word).filename()).string();
  const auto needs = [&](const std::string& file, const char* target) {
    const fs::path found = beside_program(file);
    if (found.empty() && r.why_not.empty())
      r.why_not = fmt::format("there is no {} beside this program; build the target {} first", file, target);
    return found.string();
  };
  const std::string script = fs::path(t.command[1]).filename().string();
  if (script == "attention_gpu.py") r.words[2] = needs("libheadroom_variants.so", "headroom_variants");
  if (script == "cpu_attention.py") r.words.insert(r.words.end(), {"--program", needs("bench/attention_cpu_time", "attention_cpu_time")});
  if (script == "gpu_step.py" || script == "cpu_step.py") r.words.insert(r.words.end(), {"--headroom", this_program().string()});
  r.words.insert(r.words.end(), {"--cells", out.string()});
  return r;
}

struct Measured {
  BenchRow row;
  RowObject lines = RowObject::array();
  bool asked_to_stop = false;
};

BenchRow row_of(const BenchTable& t) { return {.table = t.name, .title = t.title, .docs = t.docs, .command = joined(t.command, " ")}; }

// The lines of a table that a command wrote, until it ended or was stopped; none where it wrote no row.
RowObject lines_of(const BenchTable& t, const fs::path& written) {
  RowObject lines = RowObject::array();
  std::error_code ignored;
  if (!fs::exists(written, ignored) || fs::file_size(written, ignored) == 0) return lines;
  try {
    for (const ReportRun& read : runs_from_file(written.string()))
      for (const RowObject& line : read.rows(t.lines)) lines.push_back(line);
  } catch (const Error& without_rows) {
    if (without_rows.at.code != Code::bad_argument) throw;
  }
  return lines;
}

Measured measured(const BenchTable& t, const Peers& peers, double minutes_left, const Host& host) {
  const ScratchFolder scratch("bench", "headroom-bench", ScratchFolder::Orphans::go_on);
  const fs::path out = scratch.path() / (of_peers(t) ? "cells.csv" : "rows.json");
  const Runnable run = runnable(t, peers, out, host);
  Measured m{row_of(t)};
  BenchRow& row = m.row;
  if (!run.why_not.empty() || minutes_left < 0.25 * t.minutes) {
    row.status = Status::refused;
    row.why =
        !run.why_not.empty() ? run.why_not : fmt::format("the time is over; --minutes gives more, --tables {} measures it alone", t.name);
    return m;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto minutes = [&] { return std::chrono::duration<double, std::ratio<60>>(std::chrono::steady_clock::now() - start).count(); };
  const double most = std::min(minutes_left, 2 * t.minutes);
  std::string said;
  const Ended e = launch({.who = "bench",
                          .command = run.words,
                          .output = [&](std::string_view text) { said = tail_of(said + std::string(text)); },
                          .watch = [&] { return host.stop() || minutes() > most ? Launch::Next::end : Launch::Next::go_on; }});
  row.seconds = e.wall_s;
  m.asked_to_stop = e.asked || host.stop();
  const bool cut = !m.asked_to_stop && minutes() > most;
  m.lines = lines_of(t, out);
  row.lines = std::int64_t(m.lines.size());
  const bool whole = e.exit_code == 0 || e.exit_code == 3;  // 3: the answer is no, and the rows say so
  row.status = m.asked_to_stop ? Status::interrupted : m.lines.empty() || (!whole && !cut) ? Status::failed : Status::ok;
  if (cut)
    row.why = fmt::format("cut after {:.1f} minutes; these are the cells until then", minutes());
  else if (row.status != Status::ok)
    row.why = last_line(said);
  return m;
}

// As a run in the store and a file have it: the lines in the row's field of the table's name.
RowObject object_of(const Measured& m) {
  RowObject j = json_of(m.row);
  j[m.row.table] = m.lines;
  return j;
}

// What a card's file has already, by the table's name: measured on this machine, with the lines.
std::map<std::string, Measured> measured_before(const BenchAsked& asked, const Device& device) {
  std::map<std::string, Measured> all;
  if (asked.card.empty()) return all;
  const std::string why = why_no_file(asked.card);
  check(why.empty(), Code::bad_argument, "--card: {}; leave --card out to measure every table", why);
  for (const ReportRun& run : runs_from_file(asked.card)) {
    check(run.machine == device.name, Code::bad_argument, "--card {}: it is of {}, this is {}", asked.card, run.machine, device.name);
    for (const RowObject& row : run.rows()) {
      Measured m{read_described<BenchRow>(row, asked.card)};
      if (m.row.status != Status::ok || m.row.lines == 0) continue;
      if (m.row.made.empty()) m.row.made = fmt::format("{}, {}", run.started, run.version);
      for (RowObject line : run.rows(m.row.table)) {
        line.erase("row");  // names the table of the file
        m.lines.push_back(std::move(line));
      }
      all.emplace(m.row.table, std::move(m));
    }
  }
  check(!all.empty(), Code::bad_argument, "--card {}: it has no table of headroom bench; leave --card out", asked.card);
  return all;
}

std::string answer_of(const std::vector<Measured>& all, std::size_t asked, const Device& device, const std::vector<BesideRow>& beside) {
  double seconds = 0;
  const auto ok = std::count_if(all.begin(), all.end(), [](const Measured& m) { return m.row.status == Status::ok; });
  for (const Measured& m : all) seconds += m.row.seconds;
  std::vector<std::string> ratios;
  std::map<std::string, const BesideRow*> last;  // the fastest peer of each table, or the only one
  for (const BesideRow& r : beside)
    if (!r.peer.starts_with("our ")) last[r.table] = &r;
  for (const auto& [table, r] : last)
    if (r->mean) ratios.push_back(fmt::format("{} {:.2f}× (lowest {:.2f}×)", table, *r->mean, *r->lowest));
  return fmt::format("{} of {} tables measured on {} in {}{}.", ok, asked, device.name, time_in_words(1e3 * seconds),
                     ratios.empty() ? "; no peer took a turn" : "; speed over the fastest peer: " + joined(ratios));
}

Record record_of(const std::vector<Measured>& all, std::size_t asked, const Device& device, const Peers& peers) {
  std::vector<BesideRow> beside;
  std::vector<LossRow> losses;
  std::vector<BenchRow> rows;
  std::vector<std::vector<Table>> within;
  for (const Measured& m : all) {
    const std::vector<RowObject> lines(m.lines.begin(), m.lines.end());
    rows.push_back(m.row);
    within.push_back({});
    if (!lines.empty()) within.back().push_back(rows_table(m.row.table, m.row.title, lines));
    if (!holds_cells(lines)) continue;
    const auto cells = cells_of(lines);
    for (auto& r : beside_of(m.row.table, cells)) beside.push_back(std::move(r));
    for (auto& r : losses_of(m.row.table, cells)) losses.push_back(std::move(r));
  }
  Record r{"bench", answer_of(all, asked, device, beside), {}};
  r.add("machine", device.name);
  if (!peers.torch.empty()) r.add("torch", peers.torch);
  Table tables = table_of("rows", "Tables", rows);
  tables.within = std::move(within);
  r.add(Part{std::move(tables)});
  if (!beside.empty()) r.add(Part{table_of("beside", "The peer's time over ours: above 1 we are faster (geometric means)", beside)});
  if (!beside.empty()) r.add(Part{table_of("losses", "Where a peer is faster", losses)});
  return r.add(
      Part{Note{"Every line is in the JSON: --out cards/NAME.json, and headroom report cards/*.json --out page.html draws them."}});
}

bool is_named(const BenchAsked& asked, const BenchTable& t) {
  return std::find(asked.tables.begin(), asked.tables.end(), t.name) != asked.tables.end();
}

// Those of --tables, or all; and those of `also`.
std::vector<BenchTable> tables_asked(
    const BenchAsked& asked, const Device& device, int gpus,
    const std::function<bool(const BenchTable&)>& also = [](const BenchTable&) { return false; }) {
  std::vector<BenchTable> tables = bench_tables(device, gpus, asked.quick);
  std::erase_if(tables, [&](const BenchTable& t) { return !asked.tables.empty() && !is_named(asked, t) && !also(t); });
  check(!tables.empty(), Code::bad_argument, "--tables {}: {} has none of these; headroom bench --list shows which there are",
        joined(asked.tables, ","), device.name);
  return tables;
}

}  // namespace

std::vector<BenchTable> bench_tables(const Device& device, int gpus, bool quick) {
  return device.kind == DeviceKind::cuda ? tables_of_gpu(gpus, quick) : tables_of_cpu(quick);
}

std::vector<std::string> bench_table_names() {
  std::vector<std::string> names;
  for (const auto& tables : {tables_of_gpu(2, false), tables_of_cpu(false)})
    for (const BenchTable& t : tables)
      if (std::find(names.begin(), names.end(), t.name) == names.end()) names.push_back(t.name);
  return names;
}

Record bench_list(const BenchAsked& asked, const Device& device, int gpus) {
  Table t{"rows", "", {{"bench"}, {"docs"}, {"minutes"}, {"command"}}, {}};
  double minutes = 0;
  const auto tables = tables_asked(asked, device, gpus);
  for (const BenchTable& one : tables) {
    t.add({one.name, one.docs, one.minutes, joined(one.command, " ")});
    minutes += one.minutes;
  }
  Record r{"bench",
           fmt::format("{} of {}, {:g} {}.", counted(tables.size(), "table"), device.name, minutes, minutes == 1 ? "minute" : "minutes"),
           {}};
  return r.add(Part{std::move(t)});
}

Outcome bench_study(const BenchAsked& asked, const Device& device, int gpus, const Host& host) {
  const auto before = measured_before(asked, device);
  const auto kept = [&](const BenchTable& t) { return before.contains(t.name) && !is_named(asked, t); };
  const std::vector<BenchTable> tables = tables_asked(asked, device, gpus, kept);
  Life life(host, "bench", json_of(asked), device.name);
  const bool any_peer = std::any_of(tables.begin(), tables.end(), [](const BenchTable& t) { return of_peers(t); });
  const Peers peers = any_peer ? peers_of(asked) : Peers{};
  std::vector<Measured> all;
  double minutes_left = asked.minutes.value_or(asked.quick ? 5 : 20);
  bool stopped = false;
  for (const BenchTable& t : tables) {
    host.progress(double(all.size()) / double(tables.size()), fmt::format("{}, {} of {}", t.name, all.size() + 1, tables.size()));
    if ((stopped = host.stop())) break;
    if (kept(t)) {
      all.push_back(before.at(t.name));
      life.keep(t.name, object_of(all.back()));
      continue;
    }
    if (const RowObject* known = life.known(t.name); known && text_at(*known, "status") == "ok") {
      Measured m{read_described<BenchRow>(*known, "results: a stored table")};
      if (known->contains(t.name)) m.lines = (*known)[t.name];
      minutes_left -= m.row.seconds / 60;
      all.push_back(std::move(m));
      continue;
    }
    Measured m = measured(t, peers, minutes_left, host);
    minutes_left -= m.row.seconds / 60;
    if ((stopped = m.asked_to_stop)) break;
    life.keep(t.name, object_of(m));
    all.push_back(std::move(m));
  }
  const auto has = [&](Status s) { return std::any_of(all.begin(), all.end(), [&](const Measured& m) { return m.row.status == s; }); };
  Outcome outcome{record_of(all, tables.size(), device, peers)};
  outcome.stopped = stopped;
  outcome.answer = stopped || has(Status::failed) ? Answer::failed : has(Status::ok) ? Answer::yes : Answer::no;
  outcome.said = stopped ? life.stopped(fmt::format("after {} of {} tables", all.size(), tables.size())) : life.name();
  if (!stopped) outcome.life.emplace(std::move(life));
  return outcome;
}

}  // namespace headroom::studies
