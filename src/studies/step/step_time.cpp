#include "studies/step/step_time.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "base/random.h"
#include "base/text.h"
#include "base/threads.h"
#include "engine/agree.h"
#include "engine/feed_random.h"
#include "engine/recorded.h"
#include "gpu/place.h"
#include "instruments/bench/bench.h"
#include "memory/block.h"
#include "ops/matmul/matmul.h"
#include "report/described_table.h"
#include "studies/memory/driver_bytes.h"
#include "studies/memory/room.h"

namespace headroom::studies {

using engine::Purpose;
using engine::Recipe;
using engine::Training;

namespace {

// The best FP32 rate of this machine's matmul on random data, 1024³: the CPU's ceiling, whatever the storage type.
double matmul_ceiling(const Device& device, Threads& pool) {
  constexpr std::int64_t n = 1024;
  const Block memory(3 * n * n * 4);
  Arena arena(memory.data(), memory.bytes());
  Context ctx{arena, device, &pool};
  const Tensor a = arena.make("a", DType::f32, {n, n}), b = arena.make("b", DType::f32, {n, n}), c = arena.make("c", DType::f32, {n, n});
  const Random random{1};
  for (std::int64_t i = 0; i < n * n; ++i) {
    a.as<float>()[i] = random.normal(std::uint64_t(i));
    b.as<float>()[i] = random.normal(std::uint64_t(n * n + i));
  }
  const auto m = bench::measure([&] { matmul::multiply({a, b, c}, ctx); }, {2, 8}, bench::host_timer());
  return 2e3 * double(n) * double(n) * double(n) / m.ms.min;
}

std::string who_did_not_fit(const engine::Forecast& f, std::uint64_t memory) {
  std::size_t sum = 0;
  for (const Entry& e : f.at_peak)
    if ((sum += e.taken) > memory)
      return fmt::format("needs {} of {}; {} ({}) could not be allocated", bytes_in_words(double(f.peak_bytes)),
                         bytes_in_words(double(memory)), e.name.full(), bytes_in_words(double(e.taken)));
  return fmt::format("fits here, and another rank needs more than {}", bytes_in_words(double(memory)));
}

// On a GPU the first call of all plans and records the step, so that a warm-up of 0 has that in its first sample.
bench::Measurement measured(Training& t, const Context& ctx, const Place& place, const bench::Protocol& protocol, std::uint64_t seed,
                            const std::vector<std::int64_t>& documents, DriverBytes& driver, const std::function<bool()>& stop) {
  const auto step = [&] {
    if (t.recipe().purpose == Purpose::forward) return t.forward();
    if (t.recipe().purpose == Purpose::gradients) return t.backward();
    t.passes(t.recipe().hyper());
  };
  t.set_rate(1e-4);
  std::optional<engine::Recorded> recorded;
  std::optional<Stopwatch> watch;
  if (place.on_gpu()) watch.emplace();
  const auto call = [&] {
    const bool first = !recorded;
    if (first) {
      t.warm();
      engine::feed_random(t, seed, 0, documents);
      recorded.emplace(step, ctx);
    }
    (*recorded)();
    if (first) {
      place.wait();
      driver.after_first_run();
    }
  };
  const bench::Timer timer = [&](const std::function<void()>& work) {
    watch->start(place.queue());
    work();
    watch->stop(place.queue());
    return double(watch->elapsed_ms());
  };
  return bench::measure(call, protocol, watch ? timer : bench::host_timer(), stop);
}

// The same step after each number of warm-up steps, side by side.
Table by_warm_up(const std::vector<StepRow>& rows, const std::vector<std::int64_t>& warmups) {
  Table t{"warmup", "Milliseconds after so many warm-up steps", {{"model"}, {"len"}, {"precision"}, {"phase"}}, {}};
  for (const auto w : warmups) {
    t.columns.push_back({fmt::format("after_{}", w), Unit::ms});
    t.columns.push_back({fmt::format("after_{}_std", w), Unit::ms, Show::spread});
  }
  for (const StepRow& row : rows) {
    const std::vector<Value> which{row.model, row.len, std::string(name_of(row.precision)), std::string(name_of(row.phase))};
    const bool more = !t.rows.empty() && std::equal(which.begin(), which.end(), t.rows.back().begin());
    if (!more) t.add(which);
    t.rows.back().insert(t.rows.back().end(), {value_of_member(row.ms), value_of_member(row.ms_std)});
  }
  for (auto& row : t.rows) row.resize(t.columns.size());  // Ctrl-C left some out
  return t;
}

struct StepCase {
  Recipe recipe;
  std::int64_t warmup;
  std::string key;  // the settings that ask for this row alone
};

std::vector<StepCase> cases_of(const StepTime& s) {
  std::vector<StepCase> cases;
  const auto lens = lens_of(s);
  std::vector<Purpose> phases = s.phases;
  std::sort(phases.begin(), phases.end());
  phases.erase(std::unique(phases.begin(), phases.end()), phases.end());
  for (const engine::ModelConfig& model : s.models)
    for (const Precision precision : s.precisions)
      for (const auto len : lens)
        for (const Purpose phase : phases)
          for (const auto warmup : s.warmups) {
            Recipe r{model, s.batch, len, precision, {}, s.attention};
            r.keep_as(s.keep.what.value_or(engine::Keeping{}));
            r.purpose = phase, r.holding = s.holding, r.ranks = s.ranks, r.logits = s.logits;
            r.documents = engine::packed_as(s.documents);
            if (r.formats().quantised()) r.scales = s.scales.value_or(engine::usual_scales);
            StepTime alone = s;
            alone.models = {model};
            alone.precisions = {precision};
            alone.lens = {len};
            alone.phases = {phase};
            alone.warmups = {warmup};
            cases.push_back({std::move(r), warmup, key_of(alone)});
          }
  return cases;
}

class StepRows {
 public:
  StepRows(const StepTime& s, const Device& device, const std::function<bool()>& stop, dist::Group* group)
      : s_(s),
        device_(device),
        stop_(stop),
        group_(group),
        comm_(group ? group->comm(device) : nullptr),
        memory_(s.memory ? *s.memory
                : group  ? group->memory_of_each(device, comm_->own_bytes())
                         : device.memory_bytes),
        room_(s.keep.what ? 0 : std::min(memory_, room_for_a_run(device, s.memory, group))),
        place_(device, s.threads),
        driver_(place_),
        cpu_ceiling_(place_.on_gpu()      ? 0
                     : s.matmul_flops > 0 ? s.matmul_flops
                                          : matmul_ceiling(device, place_.threads())) {}

  StepRow measured_row(const StepCase& c) {
    StepRow row{.model = c.recipe.model.name, .batch = c.recipe.batch, .len = c.recipe.len, .precision = c.recipe.precision};
    row.ranks = c.recipe.ranks, row.logits = c.recipe.logits, row.documents = in_words(s_.documents);
    if (c.recipe.formats().quantised()) row.scales = c.recipe.scales;
    row.phase = c.recipe.purpose, row.warmup = c.warmup, row.params = engine::param_count(c.recipe.model);
    try {
      measure(c, row);
    } catch (const Error& e) {
      if (e.at.code == Code::bad_argument) throw;  // the question is wrong, not the answer
      if (comm_) throw;                            // the other ranks cannot go on without this one
      row.why = e.what();
      std::replace(row.why.begin(), row.why.end(), '\n', ';');
      row.status = status_of(e.at.code);
    }
    return row;
  }

  bool on_gpu() const { return place_.on_gpu(); }
  double cpu_ceiling() const { return cpu_ceiling_; }
  std::int64_t context_bytes() const { return driver_.context(); }

 private:
  void measure(const StepCase& c, StepRow& row) {
    Recipe recipe = c.recipe;
    keep_as_first(s_.keep, recipe, group_, [&] { engine::keep_as_asked(s_.keep, recipe, room_, device_, s_.threads); });
    row.kept = engine::kept_in_words(recipe);
    const engine::Forecast f = engine::forecast(recipe, device_, s_.threads);
    row.forecast_peak_bytes = std::int64_t(f.peak_bytes);
    const std::size_t taken = group_ ? group_->most(f.peak_bytes, "what they need") : f.peak_bytes;  // arenas of one size
    if (f.host_bytes > 0) row.forecast_host_bytes = std::int64_t(f.host_bytes);
    if (taken > memory_) {
      row.status = Status::oom;
      row.why = who_did_not_fit(f, memory_);
      return;
    }
    if (row.why = host_misfit(f.host_bytes, device_, group_); !row.why.empty()) {
      row.status = Status::oom;
      return;
    }
    driver_.before_arena();
    std::optional<PlaceMemory> alone;
    std::shared_ptr<void> shared;
    if (comm_)
      shared = comm_->take(taken);
    else
      alone.emplace(place_.take(taken));
    driver_.after_arena();
    Arena arena(comm_ ? shared.get() : alone->data(), taken);
    Context ctx{arena, device_, &place_.threads(), place_.stream()};
    Training training(recipe, ctx, comm_.get());
    if (comm_) engine::agree_on(fmt::format("seed {} warmup {} steps {}", s_.seed, c.warmup, s_.steps), "a row", ctx, *comm_);
    training.initialise(s_.seed);
    if (training.host_keep()) row.host_bytes = std::int64_t(training.host_keep()->host_bytes());
    if (f.host_ms > 0) row.host_ms = f.host_ms, row.host_exposed_ms = f.host_exposed_ms;
    if (f.link_ms > 0) row.link_ms = f.link_ms, row.exposed_ms = f.exposed_ms;
    if (comm_) row.link_bytes = std::int64_t(f.link_bytes), row.comm_bytes = std::int64_t(comm_->own_bytes());
    const auto m = measured(training, ctx, place_, {.warmup = int(c.warmup), .steps = s_.steps, .seconds = s_.seconds}, s_.seed + 1,
                            s_.documents, driver_, stop_);
    row.status = m.complete ? Status::ok : Status::interrupted;
    row.peak_bytes = std::int64_t(arena.peak());
    row.steps = m.ms.count;
    if (m.ms.count > 0) add_times(f, m, row);
    if (!place_.on_gpu()) return;
    row.driver_bytes = driver_.used();
    row.loaded_bytes = driver_.loaded();
    row.unexplained_bytes = driver_.unexplained(f.peak_bytes);
  }

  void add_times(const engine::Forecast& f, const bench::Measurement& m, StepRow& row) const {
    const double ceiling = place_.on_gpu() ? device_.ceilings.of(row.precision) : cpu_ceiling_;
    const double tokens = double(row.batch) * double(row.len) * double(row.ranks.batches()), rate = f.model_flops / (m.ms.mean * 1e9);
    row.ms = m.ms.mean, row.ms_std = m.ms.std;
    row.tokens_per_s = 1e3 * tokens / m.ms.mean;
    row.model_tflops = rate;
    if (ceiling > 0) row.mfu = rate * 1e12 / ceiling;
  }

  const StepTime& s_;
  const Device& device_;
  const std::function<bool()>& stop_;
  dist::Group* group_;
  std::unique_ptr<dist::Comm> comm_;
  std::uint64_t memory_;
  std::uint64_t room_;  // for --keep auto
  Place place_;
  DriverBytes driver_;
  double cpu_ceiling_;
};

Record step_record(const StepTime& s, const Device& device, const StepRows& study, const std::vector<StepRow>& rows) {
  const bool gpu = study.on_gpu();
  Table t = table_of("rows", "Milliseconds of a step", rows);
  if (gpu) {
    t.show("driver_bytes", Show::always);
    t.show("unexplained_bytes", Show::always);
  }
  if (s.warmups.size() > 1) t.show("warmup", Show::always);
  if (s.ranks.count > 1)
    for (const char* column : {"ranks", "shard", "split_tokens", "link_bytes", "link_ms", "exposed_ms"}) t.show(column, Show::always);
  if (s.ranks.count > 1 && gpu) t.show("comm_bytes", Show::always);
  const bool on_host = std::any_of(rows.begin(), rows.end(), [](const StepRow& r) { return r.forecast_host_bytes.has_value(); });
  if (on_host)
    for (const char* column : {"kept", "host_bytes", "forecast_host_bytes"}) t.show(column, Show::always);
  Record record{"", gpu ? device.name : fmt::format("{}, {} threads", device.name, s.threads), {}};
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
  record.add(Part{Note{
      fmt::format("MFU: 2 FLOPs for each multiplied weight and token forward, twice that backward, causal attention's visible half, no "
                  "recomputation; over the card's matmul rate in that precision ({}).",
                  device.ceilings.source)}});
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
  check_scales(s.precisions, s.scales);
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
  const auto cases = cases_of(s);
  for (const StepCase& c : cases) {
    if (stop()) break;
    if (first)
      host.progress(double(rows.size()) / double(cases.size()),
                    fmt::format("{} of {}: {} len {} {}, {}", rows.size() + 1, cases.size(), c.recipe.model.name, c.recipe.len,
                                name_of(c.recipe.precision), name_of(c.recipe.purpose)));
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
