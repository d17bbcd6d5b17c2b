#include "studies/memory/model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "engine/model/decoder.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "engine/recipe/recipe.h"
#include "memory/account.h"
#include "memory/largest_within.h"
#include "report/described_table.h"
#include "studies/memory/edge_table.h"
#include "studies/memory/inference.h"
#include "studies/memory/live_bytes.h"
#include "studies/memory/measured.h"
#include "studies/memory/model_mitigations.h"
#include "studies/memory/model_pytorch.h"
#include "studies/memory/rows.h"
#include "studies/memory/standing.h"
#include "studies/step/words.h"

namespace headroom::studies {

using engine::Forecast;
using engine::Keep;
using engine::Keeping;
using engine::Purpose;
using engine::Recipe;

namespace {

struct Case {
  Recipe recipe;
  bool keep_found;  // it was asked to be
  Forecast step;
  std::size_t forward_peak = 0;
  std::optional<std::uint64_t> backward_peak{}, train_peak{};
};

Recipe with_purpose(Recipe r, Purpose p) {
  r.purpose = p;
  return r;
}

std::vector<engine::Levers> levers_of(const ModelMemory& s) {
  engine::LeverLists lists = s.levers;
  if (lists.attention.empty()) lists.attention = {s.attention_family()};
  return each_of(lists);
}

Recipe step_of(const ModelMemory& s, std::int64_t batch, std::int64_t len, const engine::Levers& levers, const Room& room) {
  Recipe r = engine::recipe_of(s.model, batch, len, levers, purpose_of(s.use), s.ranks);
  if (r.keep.found()) return r;
  engine::find_keep(r, room.for_peak(), s.device, s.workers);
  return r;
}

Case case_of(const ModelMemory& s, const Recipe& r, bool keep_found) {
  Case c{r, keep_found, engine::forecast(r, s.device, s.workers),
         engine::forecast_peak(with_purpose(r, Purpose::forward), s.device, s.workers)};
  if (r.purpose != Purpose::forward) c.backward_peak = engine::forecast_peak(with_purpose(r, Purpose::gradients), s.device, s.workers);
  if (r.purpose == Purpose::training) c.train_peak = c.step.peak_bytes;
  return c;
}

// The sizes that name the dimensions of a model's tensors. Nothing where layers may have sizes of their own: formulas are numbers alone.
std::optional<engine::PlainModel> named_sizes(engine::Decoder d) {
  for (engine::DecoderLayer& layer : d.layers) {  // how positions are scaled changes no dimension
    const rope::Positions turned = layer.attention.turned;
    layer.attention.turned = {.theta = turned.theta, .dim = turned.dim};
  }
  return plain_of(d);
}

// The same model with sizes that are all different, so that a tensor's formula can be read off its dimensions.
Recipe probe_of(Recipe r, engine::PlainModel m) {
  m.vocab = 1009;
  if (r.holding.gradients == engine::Gradients::none) {  // sizes that ops/product_update serves
    m.width = 512;
    m.ffn = 1792;
    m.head_dim = 64;
    m.kv_heads = 4;
    m.heads = 12;
  } else if (r.formats().quantised()) {  // sides that fp8 takes on a GPU
    m.width = 224;
    m.ffn = 464;
    m.head_dim = 48;
    m.kv_heads = 3;
    m.heads = 6;
  } else {
    m.width = 211;
    m.ffn = 463;
    m.head_dim = 22;
    m.kv_heads = 3;
    m.heads = 6;
  }
  r.model = decoder_of(m);
  r.batch = 13;
  r.len = (r.formats().quantised() ? 16 : 17) * (r.ranks.split_tokens ? 2 * std::int64_t(r.ranks.count) : 1);
  r.loss_rows = 11;
  return r;
}
std::vector<Symbol> symbols_of(const Recipe& probe, const Recipe& r, const Device& device) {
  const std::int64_t rows = r.rows_of_rank();
  const DType stored = r.formats().stored.dtype;
  const std::int64_t chunk =
      r.loss_rows > 0 ? r.loss_rows : engine::chunk_of(r.model, stored, engine::type_of(r.logits, stored), device, rows);
  std::vector<Symbol> out{{"B", probe.batch, r.batch},
                          {"N", probe.len, r.len},
                          {"B·N", probe.batch * probe.len, r.batch * r.len},
                          {"C", probe.loss_rows, std::min(chunk, rows)}};
  const engine::PlainModel of_probe = sizes_of(probe.model), asked = sizes_of(r.model);
  const auto of = [&](const char* name, auto size) { out.push_back({name, size(of_probe), size(asked)}); };
  of("V", [](const auto& m) { return m.vocab; });
  of("W", [](const auto& m) { return m.width; });
  of("F", [](const auto& m) { return m.ffn; });
  of("2F", [](const auto& m) { return 2 * m.ffn; });
  of("D", [](const auto& m) { return m.head_dim; });
  of("H·D", [](const auto& m) { return m.heads * m.head_dim; });
  of("(H+2K)·D", [](const auto& m) { return (m.heads + 2 * m.kv_heads) * m.head_dim; });
  of("(H+K)·D", [](const auto& m) { return (m.heads + m.kv_heads) * m.head_dim; });
  of("H", [](const auto& m) { return m.heads; });
  if (r.ranks.split_tokens) {
    out.push_back({"B·N/R", probe.rows_of_rank(), rows});
    out.push_back({"N/R", probe.len / probe.ranks.count, r.len / r.ranks.count});
    out.push_back({"N/2R", probe.len / probe.ranks.count / 2, r.len / r.ranks.count / 2});
  }
  return out;
}

using Key = std::tuple<Phase, std::string, DType>;
Key key_of(const Entry& e) { return {e.phase, e.name.text, e.dtype}; }

Table components(const Case& c, const ModelMemory& s) {
  std::map<Key, Shape> probe;
  std::vector<Symbol> symbols;
  if (const auto sizes = named_sizes(c.recipe.model)) {
    const Recipe other = probe_of(c.recipe, *sizes);
    symbols = symbols_of(other, c.recipe, s.device);
    const Forecast shapes = engine::forecast(other, s.device, s.workers);
    for (const Entry& e : shapes.entries) probe.try_emplace(key_of(e), e.shape);
  }
  std::vector<ModelTensorRow> rows;
  auto groups = standing_by_name(c.step);
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const Standing& g : groups) {
    const std::string of_one = formula_of(probe[key_of(g.first)], g.first.shape, size_of(g.first.dtype), symbols);
    rows.push_back({.name = g.first.name.text,
                    .shape = shape_text(g.first.shape),
                    .dtype = std::string(name_of(g.first.dtype)),
                    .tensors = g.count,
                    .bytes = g.bytes,
                    .formula = formula_of_several(std::size_t(g.count), of_one),
                    .phase = std::string(name_of(g.first.phase)),
                    .at_peak_bytes = g.at_peak,
                    .share = double(g.at_peak) / double(c.step.peak_bytes)});
  }
  return table_of("components", "Who holds the bytes", rows);
}

// Ops alike, those first that take longest. Without expected times: at their ceilings.
Table times(const Case& c, const ModelMemory& s) {
  const engine::OpTimesOrWhy says = engine::op_times(c.recipe, s.device);
  const double longer = c.step.expected ? c.step.expected->longer : 1;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, OpTimeRow> rows;
  for (const OpCall& op : c.step.walk.steps) {
    const Sides& n = op.cost.sides;
    OpTimeRow& row = rows[{op.op.text, n.m, n.n, n.k, n.batch}];
    if (row.count == 0)
      row = {op.op.text, std::string(name_of(op.work)), op.making == Making::gradients ? "gradients" : "values", 0, n.m, n.n,
             n.k,        n.m > 0 ? n.batch : 0};
    row.count += op.times;
    row.flops += op.times * op.cost.flops;
    row.traffic_bytes += op.times * op.cost.bytes;
    row.ms_at_least += engine::least_ms(op, c.recipe, s.device.ceilings, says.times);
    const bool on_a_link = op.cost.link_bytes > 0;  // beside the step: what it waits for them has a row of its own
    if (says.times && !on_a_link) row.ms = row.ms.value_or(0) + engine::expected_ms(op, c.recipe, *says.times, longer);
  }
  const auto beside_ops = [&](const char* what, double ms) {
    if (ms > 0) rows[{what, 0, 0, 0, 0}] = {.op = what, .kind = "other", .making = "values", .count = 1, .ms = ms};
  };
  if (c.step.expected) {
    beside_ops("the step's beginning", c.step.expected->begins_ms);
    beside_ops("waits for links", c.step.expected->waits_ms);
  }
  std::vector<OpTimeRow> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  const auto ms = [](const OpTimeRow& r) { return r.ms.value_or(r.ms_at_least); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const OpTimeRow& a, const OpTimeRow& b) { return ms(a) > ms(b); });
  return table_of("time", "Where a step's time goes", sorted);
}

Table phases(const Case& c) {
  std::vector<PeakPhaseRow> rows;
  for (int p = 0; p < phase_count; ++p)
    if (const auto bytes = c.step.bytes_at_peak(Phase(p)); bytes > 0)
      rows.push_back({std::string(name_of(Phase(p))), bytes, double(bytes) / double(c.step.peak_bytes)});
  return table_of("phases", "The peak by phase", rows);
}

std::int64_t largest_that_fits(const ModelMemory& s, const Recipe& r, std::int64_t Recipe::*which, const Room& room) {
  const std::int64_t other = r.batch * r.len / (r.*which);
  const std::int64_t unit = which == &Recipe::len && r.ranks.split_tokens ? 2 * std::int64_t(r.ranks.count) : 1;  // two stripes a rank
  const std::int64_t most = which == &Recipe::len ? engine::most_tokens(r.model) : std::numeric_limits<std::int64_t>::max();
  const auto peak_at = [&](std::int64_t n) {
    Recipe tried = r;
    tried.*which = unit * engine::served_from(r, s.device, other * unit, n);
    return std::uint64_t(engine::forecast_peak(tried, s.device, s.workers));
  };
  return unit *
         largest_within(std::min((std::int64_t(1) << 31) / other / unit - 1, most / unit), room.for_peak(), peak_at, r.*which / unit);
}

constexpr double share_of_cases = 0.2;  // share of the time: the searches take dozens of dry runs for each of them

Table edges(const ModelMemory& s, const std::vector<Case>& cases, const Room& room) {
  std::vector<LargestRow> rows;
  for (const Case& c : cases) {
    s.progress(share_of_cases + (1 - share_of_cases) * double(rows.size()) / double(cases.size()),
               fmt::format("searching the largest that fits, row {} of {}", rows.size() + 1, cases.size()));
    Recipe least = c.recipe;
    if (c.keep_found) least.keep = {Keep::input};  // what is found where nothing else fits
    rows.push_back({.precision = c.recipe.precision,
                    .keep = c.keep_found ? Keeping::automatic() : c.recipe.kept_as(),
                    .with = engine::changed_in_words(c.recipe, {"precision", "keep"}),
                    .batch = c.recipe.batch,
                    .len = c.recipe.len,
                    .largest_len = largest_that_fits(s, least, &Recipe::len, room),
                    .largest_batch = largest_that_fits(s, least, &Recipe::batch, room)});
  }
  return edge_table(rows, room);
}

Table growth(const ModelMemory& s, const Room& room) {
  std::vector<ScalingRow> rows;
  for (const engine::Levers& levers : levers_of(s))
    for (const auto batch : s.batches) {
      std::vector<std::pair<double, double>> peak, activations;
      for (const auto len : s.lens) {
        const Forecast f = engine::forecast(step_of(s, batch, len, levers, room), s.device, s.workers);
        peak.emplace_back(double(len), double(f.peak_bytes));
        activations.emplace_back(double(len), double(f.peak_bytes - f.standing_bytes));
      }
      rows.push_back({.precision = levers.precision,
                      .keep = levers.keep,
                      .with = engine::changed_in_words(levers, {"precision", "keep"}),
                      .batch = batch,
                      .exponent_of_peak = growth_exponent(peak),
                      .exponent_of_activations = growth_exponent(activations)});
    }
  return without_usual(table_of("scaling", "How bytes grow with len: bytes ~ len^exponent", rows), rows);
}

std::string answer_of(const std::vector<ModelMemoryRow>& rows, const Room& room, const ModelMemory& s, const Recipe& last,
                      const Combination<Recipe>& together) {
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  std::string answer = rows_fit_in_words(room, s.device, rows);
  if (rows.back().fits) return answer + ".";
  if (rows.size() > 1) answer += fmt::format("; the last needs {}", words(rows.back().needed_bytes));
  answer += fmt::format(". What it holds between steps takes {} of that.", words(rows.back().standing_bytes));
  const std::string ways = together.words.empty() ? "as it is" : joined(together.words, " "),
                    needs = words(room.needed_bytes(together.peak));
  answer += together.fits ? fmt::format(" Least that would fit: {}: {}.", ways, needs)
                          : fmt::format(" No combination here makes it fit; the nearest, {}, needs {}.", ways, needs);
  return answer + as_it_is_in_words(gpus_that_hold(last, s.device, s.memory_bytes));
}

std::vector<Case> cases_of(const ModelMemory& s, const Room& room) {
  std::vector<Case> cases;
  const std::vector<engine::Levers> every = levers_of(s);
  const std::size_t all = every.size() * s.batches.size() * s.lens.size();
  for (const engine::Levers& levers : every)
    for (const auto batch : s.batches)
      for (const auto len : s.lens) {
        const Recipe r = step_of(s, batch, len, levers, room);
        const std::string misfit = engine::fp8_misfit(r, s.device);
        check(misfit.empty(), Code::bad_argument, "{}", misfit);
        s.progress(share_of_cases * double(cases.size()) / double(all), fmt::format("row {} of {}", cases.size() + 1, all));
        cases.push_back(case_of(s, r, !levers.keep.found()));
      }
  return cases;
}

ModelMemoryRow row_of(const Case& c, const ModelMemory& s, const Room& room) {
  ModelMemoryRow row{.model = s.model.name,
                     .batch = c.recipe.batch,
                     .len = c.recipe.len,
                     .levers = c.recipe.levers(),
                     .phase = s.use,
                     .params = engine::param_count(s.model),
                     .forward_peak_bytes = c.forward_peak,
                     .forward_backward_peak_bytes = c.backward_peak,
                     .train_peak_bytes = c.train_peak,
                     .needed_bytes = room.needed_bytes(c.step.peak_bytes, c.step.host_bytes),
                     .standing_bytes = c.step.standing_bytes,
                     .flops = c.step.flops,
                     .ranks = s.ranks,
                     .link_bytes = c.step.link_bytes,
                     .host_bytes = c.step.host_bytes,
                     .fits = room.holds(c.step.peak_bytes, c.step.host_bytes)};
  row.levers.keep = c.recipe.kept_as();
  if (c.step.ms > 0) row.ms_at_least = c.step.ms;
  if (const auto& e = c.step.expected) row.ms = e->ms, row.ms_low = e->low_ms, row.ms_high = e->high_ms;
  row.ms_by = c.step.expected ? c.step.expected->by : c.step.why_no_ms;
  return row;
}

void note(Record& r, const std::string& words) {
  if (!words.empty()) r.add(Part{Note{words}});
}

void add_what_is_counted(Record& r, const ModelMemory& s, const std::vector<Recipe>& recipes) {
  note(r, fmt::format("{} ({} parameters) on {}", s.model.name, engine::param_count(s.model), s.device.name));
  note(r, engine::preset_in_words(s.model));
  if (const auto words = engine::why_not_trained(s.model); !words.empty())
    note(r, words + (!s.model.trained() ? " Every op keeps its inputs, by the rules of the models that are trained." : ""));
  for (const std::string& what : s.model.not_counted) note(r, fmt::format("Not in the account: {}.", what));
  note(r, engine::past_its_positions(s.model, std::ranges::max(s.lens)));
  note(r, engine::counted_by(recipes, s.device));
}

Table table_of_rows(const std::vector<ModelMemoryRow>& described, const std::vector<Case>& cases, const ModelMemory& s) {
  Table rows = table_of("rows", "Peak bytes", described);
  show_changed(rows, described);
  if (s.ranks.count > 1) rows.show("shard", Show::always), rows.show("link_bytes", Show::always);
  if (s.ranks.split_tokens) rows.show("split_tokens", Show::always);
  for (const Case& c : cases) {
    if (c.step.host_bytes > 0) rows.show("host_bytes", Show::always);
    rows.within.push_back({components(c, s), times(c, s)});
  }
  return rows;
}

void add_remarks(Record& r, const ModelMemory& s, const std::vector<Case>& cases, const std::vector<Recipe>& recipes, const Room& room) {
  if (std::any_of(cases.begin(), cases.end(), [](const Case& c) { return c.step.host_bytes > 0; }))
    note(r,
         "host_bytes is pinned memory of the host, where blocks' kept tensors wait for backward; it is not in the peak. A card maps it, "
         "which takes a 512th of it there, for each rank of its host.");
  note(r, room.words);
  note(r, engine::in_words_of_fp8(recipes, s.device));
  if (s.ranks.count > 1)
    note(r, fmt::format("Bytes and FLOPs are of one of {} ranks, {}; each takes the same. link_bytes is what it sends in a step.",
                        s.ranks.count, s.ranks.split_tokens ? "with a part of every sequence each" : "with this batch each"));
  if (!s.measure) return;
  r.add(Part{measured_bytes(recipes, s.device, s.workers, [&s](const std::string& doing) { s.progress(share_of_cases, doing); })});
  note(r,
       s.device.kind == DeviceKind::cuda
           ? "driver is all memory in use by cudaMemGetInfo: the arena, the context and other programs, what the run loaded (kernels' code "
             "and cuBLAS), and unexplained bytes."
           : "unexplained is the growth of this process's memory beyond the arena: libraries' buffers, threads' stacks.");
}

// The account in full is of the last case.
void add_account(Record& r, const Case& last, const ModelMemory& s, Table components_of_last, const Room& room) {
  const std::string symbols = !named_sizes(last.recipe.model)
                                  ? ""
                                  : fmt::format(
                                        " B batch, N len, W width, F ffn, V vocabulary, H heads, K key heads, D head dimension, "
                                        "C rows of logits at once{}.",
                                        s.ranks.split_tokens ? ", R ranks" : "");
  note(r, fmt::format("In full: batch {}, len {}, {}, keep {}.{}", last.recipe.batch, last.recipe.len, name_of(last.recipe.precision),
                      WordsOf<Keeping>::to(last.recipe.kept_as()), symbols));
  components_of_last.name = "largest";
  r.add(Part{std::move(components_of_last)}).add(Part{phases(last)}).add(Part{live_bytes_chart(last.step, room.for_peak())});
}

Outcome memory_of_steps(const ModelMemory& s) {
  const Room room = room_of(s.device, s.memory_bytes, s.ranks.count);
  const std::vector<Case> cases = cases_of(s, room);
  const Case& last = cases.back();
  std::vector<Recipe> recipes;
  std::vector<ModelMemoryRow> described;
  for (const Case& c : cases) {
    recipes.push_back(c.recipe);
    described.push_back(row_of(c, s, room));
  }
  const auto together = combination_of(last.recipe, s, room);
  Record r{"", answer_of(described, room, s, last.recipe, together), {}};
  add_what_is_counted(r, s, recipes);
  const Table rows = table_of_rows(described, cases, s);
  r.add(Part{rows});
  add_remarks(r, s, cases, recipes, room);
  add_account(r, last, s, rows.within.back()[0], room);
  if (s.lens.size() > 1) r.add(Part{growth(s, room)});
  r.add(Part{edges(s, cases, room)}).add(Part{mitigations_of(last.recipe, last.step, s, together)});
  return yes_or_no(std::move(r), std::any_of(described.begin(), described.end(), [](const ModelMemoryRow& row) { return row.fits; }));
}

}  // namespace

Outcome memory_model(const ModelMemory& asked) {
  ModelMemory s = asked;
  if (s.levers.precision.empty()) s.levers.precision = {engine::usual_precision(s.device)};
  const std::string of_answers = changed_options(s.serving);
  check(s.use == ModelUse::inference || of_answers.empty(), Code::bad_argument, "{}: only with --phase inference; add it, or leave {} out",
        of_answers, of_answers);
  if (s.whose == Whose::pytorch) return memory_model_as_pytorch(s);
  const std::string theirs = changed_options(s.as_pytorch);
  check(theirs.empty(), Code::bad_argument, "{}: only with --as pytorch; add it, or leave {} out", theirs, theirs);
  check_served(s.levers, s.device, s.use == ModelUse::inference ? RunBy::pytorch : RunBy::headroom);
  const engine::Ranks& ranks = s.ranks;
  check(ranks.count > 1 || (ranks.sharding == engine::Sharding::none && !ranks.split_tokens), Code::bad_argument,
        "{}: there is one rank; give --ranks or --gpus", ranks.split_tokens ? "--split-tokens" : "--shard");
  check(ranks.count == 1 || !s.measure, Code::bad_argument,
        "--measure runs one rank; headroom step --ranks {} holds every rank's bytes against the forecast", ranks.count);
  if (s.use == ModelUse::inference) {
    check(!s.measure, Code::bad_argument, "--measure runs a training step; leave --phase inference out");
    engine::Ranks sharing = s.ranks;
    sharing.count = 1;  // tensor parallel
    const std::string shared = changed_options(sharing);
    check(shared.empty(), Code::bad_argument, "--phase inference shares the model out by tensor parallelism; leave {} out", shared);
    check_levers_of_inference(s.levers, {});
    return memory_inference(s);
  }
  if (s.measure) engine::check_trained(s.model);
  check(!s.measure || s.use == ModelUse::train, Code::bad_argument,
        "--measure runs a training step; leave --phase out, or ask headroom step");
  const auto updates = [](const engine::Levers& l) {
    return l.holding.updating != engine::Updating::after || l.holding.gradients == engine::Gradients::none;
  };
  const auto levers = levers_of(s);
  check(s.use == ModelUse::train || std::none_of(levers.begin(), levers.end(), updates), Code::bad_argument,
        "--phase {} has no update; leave --update and --gradients none out", names_of<ModelUse>.of(s.use));
  return memory_of_steps(s);
}

}  // namespace headroom::studies
