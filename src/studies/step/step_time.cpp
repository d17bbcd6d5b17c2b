#include "studies/step/step_time.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "base/threads.h"
#include "report/described_table.h"
#include "studies/step/step_rows.h"

namespace headroom::studies {

using engine::Purpose;
using engine::Recipe;

namespace {

// The same step after each number of warm-up steps, side by side.
Table by_warm_up(const std::vector<StepRow>& rows, const std::vector<std::int64_t>& warmups) {
  Table t{"warmup", "Milliseconds after so many warm-up steps", {{"model"}, {"len"}, {"precision"}, {"phase"}, {"with"}}, {}};
  for (const auto w : warmups) {
    t.columns.push_back({fmt::format("after_{}", w), Unit::ms});
    t.columns.push_back({fmt::format("after_{}_std", w), Unit::ms, Show::spread});
  }
  for (const StepRow& row : rows) {
    const std::vector<Value> which{row.model, row.len, std::string(name_of(row.levers.precision)), std::string(name_of(row.phase)),
                                   engine::changed_in_words(row.levers, {"precision"})};
    const bool more = !t.rows.empty() && std::equal(which.begin(), which.end(), t.rows.back().begin());
    if (!more) t.add(which);
    t.rows.back().insert(t.rows.back().end(), {value_of_member(row.ms), value_of_member(row.ms_std)});
  }
  for (auto& row : t.rows) row.resize(t.columns.size());  // Ctrl-C left some out
  if (std::all_of(rows.begin(), rows.end(), [](const StepRow& row) { return engine::changed(row.levers, {"precision"}).empty(); }))
    leave_out(t, "with");
  return t;
}

std::vector<StepCase> cases_of(const StepTime& s) {
  std::vector<StepCase> cases;
  const auto lens = lens_of(s);
  std::vector<Purpose> phases = s.phases;
  std::sort(phases.begin(), phases.end());
  phases.erase(std::unique(phases.begin(), phases.end()), phases.end());
  for (const engine::Decoder& model : s.models)
    for (const engine::Levers& levers : each_of(s.levers))
      for (const auto len : lens)
        for (const Purpose phase : phases)
          for (const auto warmup : s.warmups) {
            StepTime alone = s;
            alone.models = {model};
            alone.levers = lists_of(levers);
            alone.lens = {len};
            alone.phases = {phase};
            alone.warmups = {warmup};
            cases.push_back({recipe_of(s, model, levers, len, phase), warmup, key_of(alone)});
          }
  return cases;
}

// In one line: the last row that was measured, or why there is none.
std::string answer_of(const std::vector<StepRow>& rows) {
  const auto last = std::find_if(rows.rbegin(), rows.rend(), [](const StepRow& r) { return r.ms.has_value(); });
  if (last == rows.rend())
    return rows.empty() || rows.back().why.empty() ? "Nothing was measured" : fmt::format("Nothing was measured: {}", rows.back().why);
  std::string answer = fmt::format("{} len {} {}: {} a {} step", last->model, last->len, name_of(last->levers.precision),
                                   time_in_words(*last->ms), name_of(last->phase));
  if (last->tokens_per_s) answer += fmt::format(", {} tokens/s", number_in_words(*last->tokens_per_s));
  if (last->mfu) answer += fmt::format(", {:.0f} % of the matmul rate", 100 * *last->mfu);
  if (last->peak_bytes) answer += fmt::format(", {}", bytes_in_words(double(*last->peak_bytes)));
  return answer;
}

Record step_record(const StepTime& s, const Device& device, const StepRows& study, const std::vector<StepRow>& rows) {
  const bool gpu = study.on_gpu();
  Table t = table_of("rows", "Milliseconds of a step", rows);
  if (gpu) {
    t.show("driver_bytes", Show::always);
    t.show("unexplained_bytes", Show::always);
  }
  if (s.warmups.size() > 1) t.show("warmup", Show::always);
  show_changed(t, rows);
  if (s.ranks.count > 1)
    for (const char* column : {"ranks", "shard", "split_tokens", "link_bytes", "link_ms", "exposed_ms"}) t.show(column, Show::always);
  if (s.ranks.count > 1 && gpu) t.show("comm_bytes", Show::always);
  const bool on_host = std::any_of(rows.begin(), rows.end(), [](const StepRow& r) { return r.forecast_host_bytes.has_value(); });
  if (on_host)
    for (const char* column : {"kept", "host_bytes", "forecast_host_bytes"}) t.show(column, Show::always);
  Record record{"",
                fmt::format("{}, on {}.", answer_of(rows),
                            gpu ? device.name : fmt::format("{}, {}", device.name, counted(std::uint64_t(s.threads), "thread"))),
                {}};
  if (gpu)
    record.add("context_bytes", study.context_bytes(), Unit::bytes);
  else
    record.add("matmul_ceiling_tflops", study.cpu_ceiling() / 1e12, Unit::tflops).add("threads", std::int64_t(s.threads));
  record.add(Part{std::move(t)});
  if (s.ranks.count > 1)
    record.add(Part{Note{
        fmt::format("{} ranks, {}: tokens/s are of all ranks, bytes, FLOP/s and MFU of one. link_bytes is what a rank sends in a "
                    "call of this row; link_ms and exposed_ms, how long that takes and what of it the step waits for, are forecasts{}.",
                    s.ranks.count, s.ranks.split_tokens ? "a part of every sequence each" : "a batch each",
                    device.ceilings.link_bytes_per_s > 0 ? " (profile step measures them)" : ": headroom comm measures the link")}});
  if (on_host)
    record.add(
        Part{Note{fmt::format("host_bytes is {} memory of the host, where blocks' kept tensors wait for backward; it is not in the peak.",
                              gpu ? "pinned" : "more")}});
  if (s.warmups.size() > 1) record.add(Part{by_warm_up(rows, s.warmups)});
  if (!s.documents.empty())
    record.add(Part{Note{fmt::format("Each row holds {} documents. FLOPs and MFU count the pairs of tokens that see each other inside one.",
                                     s.documents.size())}});
  if (!gpu)
    return record.add(Part{Note{fmt::format(
        "MFU is against {}.", s.matmul_flops > 0
                                  ? "the FP32 matmul that headroom device measured last"
                                  : "one FP32 matmul of 1024³ measured just now; headroom device measures longer and keeps it")}});
  record.add(Part{Note{fmt::format(
      "MFU: 2 FLOPs for each multiplied weight and token forward, twice that backward, causal attention's visible half, no recomputation; "
      "{}.",
      device.ceilings.source.empty() ? "the card's matmul rate is not known: headroom device measures it"
                                     : fmt::format("over the card's matmul rate in that precision ({})", device.ceilings.source))}});
  return record.add(
      Part{Note{"driver is all memory in use by cudaMemGetInfo: the arena (forecast), the context and other programs "
                "(context_bytes), what running loaded (loaded_bytes: kernels' code, cuBLAS, the recorded graph), and unexplained bytes."}});
}

}  // namespace

std::string in_words(const std::vector<std::int64_t>& documents) {
  std::string words;
  for (const std::int64_t one : documents) words += fmt::format("{}{}", words.empty() ? "" : ",", one);
  return words;
}

Recipe recipe_of(const StepTime& s, const engine::Decoder& model, const engine::Levers& levers, std::int64_t len, Purpose phase) {
  Recipe r = engine::recipe_of(model, s.batch, len, levers, phase, s.ranks);
  r.documents = engine::packed_as(s.documents);
  return r;
}

std::vector<std::int64_t> lens_of(const StepTime& s) {
  if (s.documents.empty()) return s.lens;
  const std::int64_t sum = std::accumulate(s.documents.begin(), s.documents.end(), std::int64_t(0));
  check(sum > 0, Code::bad_argument, "--documents {}: they have no token; give lengths above 0", in_words(s.documents));
  return {sum};
}

Outcome step_study(const StepTime& asked, const Device& device, const Host& host, dist::Group* group) {
  StepTime s = asked;
  if (s.threads == 0) s.threads = std::max(1, available_cores() / (group ? group->rendezvous().local_ranks() : 1));
  check(!group || s.seconds == 0, Code::bad_argument,
        "--seconds {:g}: ranks take the same number of steps, and each has a clock of its own; give --steps", s.seconds);
  check_needs_fp8(s.levers);
  for (const StepCase& c : cases_of(s)) engine::check(c.recipe);  // bad settings end here, before a store is touched
  const std::function<bool()> stop = [&] { return group ? group->stop(host.stop()) : host.stop(); };  // all ranks hear the same
  StepRows study(s, device, stop, group);
  const bool first = !group || group->first();
  std::optional<Life> life;
  if (first) life.emplace(host, "step", json_of(s), device.name);
  const auto known = [&](const std::string& key) -> std::string {  // a row from before: what the first rank has is what all go by
    const RowObject* row = first ? life->known(key) : nullptr;
    const std::string text = row ? row->dump() : "";
    return group ? group->rendezvous().collect(text, "a row that was kept")[0] : text;
  };
  std::vector<StepRow> rows;
  auto cases = cases_of(s);
  for (StepCase& c : cases) {
    if (stop()) break;
    const std::string row_in_words = fmt::format("{} of {}: {} len {} {}, {}", rows.size() + 1, cases.size(), c.recipe.model.name,
                                                 c.recipe.len, name_of(c.recipe.precision), name_of(c.recipe.purpose));
    const double share = double(rows.size()) / double(cases.size());
    if (first) {
      host.progress(share, row_in_words);
      c.progress = [&host, share, row_in_words](const std::string& doing) { host.progress(share, doing + " · " + row_in_words); };
    }
    if (const std::string row = known(c.key); !row.empty()) {
      rows.push_back(read_described<StepRow>(parse_json<RowObject>(row, "results: a stored row", Code::io), "results: a stored row"));
      if (const auto was = rows.back().status; was != Status::interrupted && was != Status::failed) continue;
      rows.pop_back();
    }
    rows.push_back(study.measured_row(c));
    if (first) life->keep(c.key, json_of(rows.back()));
  }
  const auto all = [&](auto&& is) { return !rows.empty() && std::all_of(rows.begin(), rows.end(), is); };
  const bool whole = rows.size() == cases.size() && all([](const StepRow& r) { return r.status != Status::interrupted; });
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const StepRow& r) { return r.status == Status::failed; });
  const bool none = all([](const StepRow& r) { return answers_no(r.status); });
  Outcome outcome{step_record(s, device, study, rows)};
  outcome.answer = !whole || wrong ? Answer::failed : none ? Answer::no : Answer::yes;
  if (!first) return outcome;
  const auto done = std::count_if(rows.begin(), rows.end(), [](const StepRow& r) { return r.status != studies::Status::interrupted; });
  outcome.said = whole ? life->name() : life->stopped(fmt::format("after {} of {} rows", done, cases.size()));
  if (whole) outcome.life.emplace(std::move(*life));
  return outcome;
}

}  // namespace headroom::studies
