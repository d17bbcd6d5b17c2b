#include "engine/forecast.h"

#include <algorithm>

#include "base/divide.h"
#include "base/interrupt.h"
#include "dist/dry.h"
#include "engine/params.h"
#include "engine/training.h"

namespace headroom::engine {

namespace {

// peak: only what the peak needs to be known.
enum class Dry : std::uint8_t { whole, peak };

// Of many micro-batches the first, the second and the last are walked: those between are like the second.
void run_dry(const Recipe& recipe, Context& ctx, Dry how, Forecast* into) {
  stop_if_interrupted();  // a model of thousands of layers takes a second, and commands ask for dozens
  Walk* walk = ctx.walk;
  dist::DryComm comm(0, recipe.ranks.count, ctx.device.ceilings.link_bytes_per_s, [walk] { return walk ? walk->steps.size() : 0; });
  Training t(recipe, ctx, &comm);
  if (into) into->standing_bytes = ctx.arena.used();
  struct Mark {
    std::size_t steps = 0;
    double link_ms = 0;
  } begin, end;  // of the second micro-batch
  const auto now = [&] { return Mark{walk ? walk->steps.size() : 0, comm.link_ms()}; };
  const int micros = recipe.micro_batches;
  if (recipe.purpose == Purpose::forward) {
    t.forward();
  } else if (recipe.purpose == Purpose::training && !recipe.knows_norm()) {
    t.passes(recipe.hyper());
  } else {
    t.backward();
    begin = now();
    if (how == Dry::whole && micros > 2) t.backward(1);
    end = now();
    if (micros > 1) t.backward(micros - 1);
    if (recipe.purpose == Purpose::training) t.update(recipe.hyper());
  }
  if (!into || !walk) return;
  std::vector<double> step_ms;
  for (const OpCall& s : walk->steps)
    step_ms.push_back(s.cost.link_bytes > 0 ? 0 : s.times * roofline_ms(s, recipe.precision, ctx.device.ceilings));
  const double link_ms = comm.link_ms(), like_it = std::max(0, micros - 3), middle_ms = end.link_ms - begin.link_ms;
  into->link_ms = link_ms + like_it * middle_ms;
  const dist::Exposed exposed = dist::exposed_ms(comm, step_ms);
  const double of_link = link_ms > 0 ? into->link_ms / link_ms : 1;
  into->exposed_ms = exposed.link_ms * of_link;
  const OpTimesOrWhy times = op_times(recipe, ctx.device);
  LinkTime waits{into->link_ms};
  if (times.times) {  // longer than at their ceilings, ops hide more of what the links do
    std::vector<double> expected;
    for (const OpCall& s : walk->steps) expected.push_back(expected_ms(s, recipe, *times.times));
    const dist::Exposed beside = dist::exposed_ms(comm, expected);
    waits.exposed_ms = beside.link_ms * of_link;
    waits.host_exposed_ms = beside.other_ms;
  }
  if (const HostKeep* host = t.host_keep()) {
    const double of_walked = double(micros) / double(std::min(micros, 3));
    into->host_bytes = host->host_bytes();
    into->host_moved_bytes = host->moved_bytes() * of_walked;
    into->host_ms = host->moved_ms() * of_walked;
    into->host_exposed_ms = exposed.other_ms * of_walked;
    waits.host_ms = into->host_ms;
    waits.host_exposed_ms *= of_walked;
  }
  for (const double ms : step_ms) into->ms += ms;
  for (std::size_t i = begin.steps; i < end.steps; ++i) {
    into->ms += like_it * step_ms[i];
    walk->steps[i].times *= 1 + like_it;
  }
  into->ms += into->exposed_ms + into->host_exposed_ms;
  into->why_no_ms = times.why;
  if (times.times) into->expected = expected_time(recipe, *walk, waits, *times.times);
}

}  // namespace

std::size_t Forecast::bytes_at_peak(Phase phase) const {
  std::size_t sum = 0;
  for (const Entry& e : at_peak)
    if (e.phase == phase) sum += e.taken;
  return sum;
}

double roofline_ms(const OpCall& s, Precision of_model, const Ceilings& ceilings) {
  Precision p = s.precision;
  if (p.dtype == DType::f32) p.math = of_model.math;
  const double rate = ceilings.of(p);
  const double arithmetic = rate > 0 ? s.cost.flops / rate : 0,
               traffic = ceilings.copy_bytes_per_s > 0 ? s.cost.bytes / ceilings.copy_bytes_per_s : 0,
               link = ceilings.link_bytes_per_s > 0 ? s.cost.link_bytes / ceilings.link_bytes_per_s : 0;
  return 1e3 * std::max({arithmetic, traffic, link});
}

double model_flops(const Recipe& r) {
  double multiplied = 0, attention = 0;
  for (const ParamSpec& s : param_table(r.model)) {
    if (!s.multiplied) continue;
    const bool of_expert = s.shape.rank == 3;
    const double share = of_expert ? double(r.model.layers[std::size_t(s.layer)].ffn.experts_of_token) / double(s.shape[0]) : 1;
    multiplied += share * double(s.shape.count());
  }
  for (const DecoderLayer& l : r.model.layers) {
    const auto p = r.documents.of(problem_of(l.attention, r.batch, r.len, r.len, r.formats().stored));
    attention += attention::forward_flops(p) / r.ranks.parts();
  }
  const double rows = double(r.rows_of_rank());
  const bool forward = r.purpose == Purpose::forward;
  return 2 * multiplied * rows * (forward ? 1 : 3) + attention * (forward ? 1 : 3.5);
}

Forecast forecast(const Recipe& recipe, const Device& device, int workers) {
  Forecast f;
  Ledger ledger;
  Arena arena(&ledger);
  Context ctx{arena, device};
  ctx.dry_workers = workers;
  ctx.walk = &f.walk;
  run_dry(recipe, ctx, Dry::whole, &f);
  f.peak_bytes = arena.peak();
  f.at_peak = ledger.at_peak();
  f.events = ledger.events();
  f.entries = ledger.entries();
  for (const OpCall& s : f.walk.steps) {
    f.flops += s.times * s.cost.flops;
    f.bytes += s.times * s.cost.bytes;
    f.link_bytes += s.times * s.cost.link_bytes;
  }
  if (device.ceilings.copy_bytes_per_s <= 0 || device.ceilings.of(recipe.precision) <= 0 ||
      (f.link_bytes > 0 && device.ceilings.link_bytes_per_s <= 0) ||
      (f.host_moved_bytes > 0 && f.host_ms <= 0 && device.kind == DeviceKind::cuda))
    f.ms = 0;
  f.model_flops = model_flops(recipe);
  if (f.ms <= 0 && f.expected) {
    f.expected.reset();
    f.why_no_ms = "a ceiling that the step needs is not known";
  }
  return f;
}

std::size_t forecast_peak(const Recipe& recipe, const Device& device, int workers) {
  Arena arena;
  Context ctx{arena, device};
  ctx.dry_workers = workers;
  run_dry(recipe, ctx, Dry::peak, nullptr);
  return arena.peak();
}

std::size_t stand_in_bytes(const Recipe& r, const Device& device) {
  if (device.kind == DeviceKind::cpu) return 0;
  Arena arena;
  Context ctx{arena, device};
  Recipe bare = r;  // the choice of kernels does not depend on what stands
  auto& layers = bare.model.layers;
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  bare.keep = {Keep::input};
  bare.holding = {};
  bare.micro_batches = 1;
  bare.ranks.sharding = Sharding::none;
  if (!r.ranks.split_tokens) bare.ranks = {};
  if (!Training(bare, ctx).stands_in()) return 0;
  const SelfAttention& a = r.model.first().attention;
  attention::Problem p;
  p.batch = r.batch;
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.head_dim = a.head_dim;
  p.len_q = r.len / r.ranks.parts();
  p.len_k = r.len;
  return stand_in_bytes(p, r.attention);
}

std::size_t stand_in_bytes(const attention::Problem& p, std::string_view variant) {
  // The widest tiles of any kernel in ops/attention: 256 rows, head dimensions of 32, 64, 128, 256.
  const std::int64_t pairs = p.batch * p.heads, rows = round_up(p.len_q, 256);
  const std::int64_t dim = p.head_dim <= 32 ? 32 : p.head_dim <= 64 ? 64 : p.head_dim <= 128 ? 128 : 256;
  constexpr std::int64_t partial_outputs = 40 << 20, workspace = 32 << 20;
  std::int64_t bytes = partial_outputs + pairs * rows * (4 * dim + 16);  // the sum of dQ, numbers for each row
  if (variant.starts_with("plain"))
    bytes = workspace + pairs * p.len_q * p.len_k * 6 + 4 * p.k_shape().count();  // dP, dS in 16 bits, the sum of dK
  return std::size_t(bytes);
}

std::string in_words_of_fp8(std::span<const Recipe> recipes, const Device& device) {
  const auto quantised = [](const Recipe& r) { return r.formats().quantised(); };
  const auto one = std::find_if(recipes.begin(), recipes.end(), quantised);
  if (one == recipes.end()) return "";
  return fmt::format("fp8: the blocks' products, with scales by {}; everything else is in bf16. {}",
                     names_of<Scales>.of(one->scales.value_or(usual_scales)),
                     device.kind == DeviceKind::cpu
                         ? "On a CPU its arithmetic is emulated: same numbers, no faster."
                         : "Its weights are quantised just before each use, and nothing of them is kept in 8 bits.");
}

std::string counted_by(std::span<const Recipe> recipes, const Device& device) {
  if (device.kind == DeviceKind::cpu) return "";
  std::vector<std::pair<std::string, std::string>> kernels;  // who, and for what
  for (const Recipe& r : recipes) {
    Arena arena;
    Context ctx{arena, device};
    const Training t(r, ctx);
    std::string who(t.variant().name);
    if (t.stands_in()) who = fmt::format("the CPU's {} (no GPU kernel serves it)", who);
    const std::string what = fmt::format("{} {}", name_of(r.precision), r.attention);
    auto at = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.first == who; });
    if (at == kernels.end()) at = kernels.insert(at, {who, ""});
    if (at->second.find(what) == std::string::npos) at->second += (at->second.empty() ? "" : ", ") + what;
  }
  std::string line = fmt::format("Tensors for {} are counted as these kernels take them: ", device.name);
  for (const auto& [who, what] : kernels) line += fmt::format("attention {} as {}; ", what, who);
  return line + "every other op as the GPU's.";
}

}  // namespace headroom::engine
