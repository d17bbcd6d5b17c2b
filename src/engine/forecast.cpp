#include "engine/forecast.h"

#include <algorithm>

namespace headroom::engine {

namespace {

void run_dry(const Recipe& recipe, Context& ctx, std::size_t* standing) {
  Training t(recipe, ctx);
  if (standing) *standing = ctx.arena.used();
  if (recipe.purpose == Purpose::forward) return t.forward();
  if (recipe.purpose == Purpose::training && recipe.holding.updating == Updating::during) return t.passes({.clip = 0});
  t.backward();
  if (recipe.purpose == Purpose::training) t.update({});
}

}  // namespace

std::size_t Forecast::bytes_at_peak(Phase phase) const {
  std::size_t sum = 0;
  for (const Entry& e : at_peak)
    if (e.phase == phase) sum += e.taken;
  return sum;
}

double roofline_ms(const Step& s, Precision of_model, const Ceilings& ceilings) {
  Precision p = s.precision;
  if (p.dtype == DType::f32) p.math = of_model.math;
  const double rate = ceilings.of(p);
  const double arithmetic = rate > 0 ? s.cost.flops / rate : 0,
               traffic = ceilings.copy_bytes_per_s > 0 ? s.cost.bytes / ceilings.copy_bytes_per_s : 0,
               link = ceilings.link_bytes_per_s > 0 ? s.cost.link_bytes / ceilings.link_bytes_per_s : 0;
  return 1e3 * std::max({arithmetic, traffic, link});
}

double model_flops(const Recipe& r) {
  double multiplied = 0;
  for (const ParamSpec& s : param_table(r.model))
    if (s.multiplied && s.shape.rank == 2) multiplied += double(s.shape.count());
  const double rows = double(r.batch) * double(r.len);
  const double visible = double(r.len) * double(r.len + 1) / 2;  // pairs that a causal row sees
  const double attention = 4.0 * double(r.batch) * double(r.model.q_width()) * visible * double(r.model.layers);
  const double passes = r.purpose == Purpose::forward ? 1 : 3, attention_passes = r.purpose == Purpose::forward ? 1 : 3.5;
  return 2 * multiplied * rows * passes + attention * attention_passes;
}

Forecast forecast(const Recipe& recipe, const Device& device, int workers) {
  Forecast f;
  Ledger ledger;
  Arena arena(&ledger);
  Context ctx{arena, device};
  ctx.dry_workers = workers;
  ctx.walk = &f.walk;
  run_dry(recipe, ctx, &f.standing_bytes);
  f.peak_bytes = arena.peak();
  f.at_peak = ledger.at_peak();
  f.events = ledger.events();
  f.entries = ledger.entries();
  for (const Step& s : f.walk.steps) {
    f.flops += s.cost.flops, f.bytes += s.cost.bytes, f.link_bytes += s.cost.link_bytes;
    f.ms += roofline_ms(s, recipe.precision, device.ceilings);
  }
  if (device.ceilings.copy_bytes_per_s <= 0 || device.ceilings.of(recipe.precision) <= 0 ||
      (f.link_bytes > 0 && device.ceilings.link_bytes_per_s <= 0))
    f.ms = 0;
  f.model_flops = model_flops(recipe);
  return f;
}

std::size_t forecast_peak(const Recipe& recipe, const Device& device, int workers) {
  Arena arena;
  Context ctx{arena, device};
  ctx.dry_workers = workers;
  run_dry(recipe, ctx, nullptr);
  return arena.peak();
}

std::string counted_by(std::span<const Recipe> recipes, const Device& device) {
  if (device.kind == DeviceKind::cpu) return "";
  std::vector<std::pair<std::string, std::string>> kernels;  // who, and for what
  for (const Recipe& r : recipes) {
    Arena arena;
    Context ctx{arena, device};
    const Training t(r, ctx);
    std::string who(t.variant().name);
    if (t.stands_in()) who = fmt::format("the CPU's {} (no GPU kernel of this build serves it)", who);
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
