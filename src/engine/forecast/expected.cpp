#include "engine/forecast/expected.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/text.h"
#include "engine/forecast/at_ceilings.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/hopper.h"
#include "engine/forecast/step_terms.h"
#include "engine/model/decoder.h"
#include "ops/attention/choose_dry.h"

namespace headroom::engine {

namespace {

const Efficiency* of_precision(const Efficiencies& all, Precision p) {
  for (const Efficiency& e : all.by_precision)
    if (e.precision == p) return &e;
  return nullptr;
}

// How much further from its time a step may lie, for each thing that was not measured itself; docs/performance.md says where each is from.
constexpr double scores_in_memory = 1.3, recorded_within = 1.15;
constexpr double other_card = 1.1, datasheets_share = 1.1, other_kernels = 1.4, split_link = 1.1;
// Products in 8 bits beside bf16's, of an H200: with a scale for each tensor, and what those with more scales take beside them
// (bench/results/h200_fp8_products_2026-11-22.txt: 1282, 1237 and 1153 TFLOP/s).
constexpr double fp8_product = 1.1, fp8_gradient_product = 1.07, fp8_by_rows = 1.04, fp8_by_blocks = 1.11;
constexpr double quantising = 1.15;  // over memory's rate: 1.05 to 1.4 of an H200 (bench/results/h200_fp8_quantise_2026-11-22.txt)
double of_scales(Scales s) { return s == Scales::tensor ? 1 : s == Scales::row ? fp8_by_rows : fp8_by_blocks; }
constexpr double updating_product = 1.25, updating_product_in_fp8 = 1.5;  // beside a gradient's product, of an H200
constexpr double tf32_product = 1.07,
                 tf32_gradient_product = 1.39;  // over the ceiling: an H100's own 1.08 and 1.36, an H200's steps 1.06 and 1.43

// The shares of their datasheets that an H200 and an H100 reach, in the mean; of a card with a datasheet alone as much is expected. An H200 multiplies
// 8 bits 1.89 times as fast as 16; the H100's 8 bits are its datasheet's.
Ceilings expected_ceilings(Ceilings c, bool of_fp8) {
  if (c.bf16_flops > 0 && !of_fp8) c.fp8_flops = std::min(c.fp8_flops, 1.89 * c.bf16_flops);
  if (!by_datasheet(c)) return c;
  c.copy_bytes_per_s *= 0.88;
  c.fp32_flops *= 0.77;
  c.tf32_flops *= 0.77;
  c.bf16_flops *= 0.78;
  c.fp16_flops *= 0.77;
  c.fp8_flops = std::min(c.fp8_flops * 0.72, 1.89 * c.bf16_flops);
  return c;
}

// Steps of this precision; or, where none were measured, of two that have its parts: products as in bf16, everything else as in its own types.
struct InPrecision {
  Efficiency efficiency;
  bool derived = false;
  std::string by;
};
std::optional<InPrecision> in_precision(const Efficiencies& all, Precision p) {
  if (const Efficiency* e = of_precision(all, p)) return InPrecision{*e, false, ""};
  const Efficiency *half = of_precision(all, {DType::bf16}), *single = of_precision(all, {DType::f32});
  if (p.dtype == DType::f32 && half && single) {
    InPrecision f{*single, true, "steps in FP32 and bf16"};
    f.efficiency.product = tf32_product, f.efficiency.gradient_product = tf32_gradient_product;
    f.efficiency.forward_op_ms = half->forward_op_ms,
    f.efficiency.backward_op_ms = half->backward_op_ms;  // they begin kernels of the same kinds
    f.efficiency.within = std::max(half->within, single->within);
    return f;
  }
  if (p.dtype == DType::f16 && half) return InPrecision{*half, true, "steps in bf16"};
  if (size_of(p.dtype) == 1 && half) return InPrecision{*half, true, "steps in bf16"};
  return {};
}

// Why no step of ours can be timed so, or nothing.
std::string why_no_step(const Recipe& r, const Device& device) {
  const Ceilings& c = device.ceilings;
  if (!r.model.trained()) return "the model is only counted: this library has no step of it that could be timed";
  if (c.copy_bytes_per_s <= 0 || c.of(r.precision) <= 0)
    return fmt::format("the ceilings of {} in {} are not known: headroom device --efficiencies measures them there", device.name,
                       name_of(r.precision));
  if (r.ranks.count > 1 && c.link_bytes_per_s <= 0) return "the rate of the link between the cards is not known";
  return "";
}

}  // namespace

OpTimesOrWhy op_times(const Recipe& r, const Device& device) {
  if (const std::string why = why_no_step(r, device); !why.empty()) return {{}, why};
  const bool own = bool(device.efficiencies);
  if (!own && device.kind == DeviceKind::cpu) return {{}, "no steps of this CPU were measured: headroom device --efficiencies"};
  const Efficiencies& others = efficiencies_of_others();
  const bool own_over_units = own && std::ranges::all_of(device.efficiencies->by_precision, &Efficiency::of_units);
  const bool over_units = hopper::has_units_of(device) && (!own || own_over_units);
  const auto f = in_precision(own && !own_over_units ? *device.efficiencies : others, r.precision);
  if (!f)
    return {{},
            fmt::format("no steps in {} were measured: headroom device --efficiencies --precision {}", name_of(r.precision),
                        name_of(r.precision))};
  Ceilings ceilings = own ? device.efficiencies->ceilings : device.ceilings;
  for (const auto member :
       {&Ceilings::fp32_flops, &Ceilings::tf32_flops, &Ceilings::bf16_flops, &Ceilings::fp16_flops, &Ceilings::fp8_flops})
    if (ceilings.*member <= 0) ceilings.*member = device.ceilings.*member;  // it was not measured with the steps
  OpTimes t{f->efficiency,
            expected_ceilings(ceilings, size_of(r.precision.dtype) == 1 && !f->derived),
            step_terms::units_of(device),
            {},
            f->efficiency.within,
            1,
            f->by,
            f->derived};
  if (over_units) {
    const Efficiency* measured = own ? of_precision(*device.efficiencies, r.precision) : nullptr;
    t.over_units = measured ? *measured : Efficiency{.precision = r.precision, .of_units = true};
    t.within = measured ? measured->within : recorded_within, t.by_other_precisions = false;
    t.by = own && !measured ? fmt::format("no steps in {} were measured on it: as an H100 and H200 take", name_of(r.precision)) : "";
  }
  const auto also = [&](bool is, double wider, const std::string& by) {
    if (!is) return;
    t.wider *= wider;
    t.by += (t.by.empty() ? "" : "; ") + by;
  };
  also(own && step_terms::units_of(device) > 0 && !f->efficiency.of_kernels, other_card,
       "efficiencies of an older version, which counted an op as one kernel: headroom device --efficiencies --save measures them again");
  also(own && hopper::has_units_of(device) && !over_units && f->efficiency.of_kernels, 1,
       "efficiencies of an older version, over rooflines: headroom device --efficiencies --save measures them again");
  also(hopper::has_slower_units(device), 1,
       "its products reach less than 0.8 of an H200's for each multiprocessor, so its ops are taken by rooflines");
  if (!over_units) {
    also(!own, other_card, fmt::format("steps of an H200 at the ceilings of {}, none of whose were measured", device.name));
    also(!own && by_datasheet(device.ceilings), datasheets_share, "its ceilings as a share of its datasheet's");
    also(!own && device.sm != 90, other_kernels, "its kernels are others than the H200's");
  }
  also(attention::family_of(r.attention) != "flash", scores_in_memory, "scores in memory were not measured");
  also(r.ranks.count > 2 || r.ranks.split_tokens || (r.ranks.count > 1 && own && f->efficiency.link == 0), split_link,
       "the link by steps of two H200");
  if (t.efficiency.link == 0) t.efficiency.link = of_precision(others, {DType::bf16})->link;
  return {t, ""};
}

// What an op takes of what a kind of op takes: the factor that was measured, and what is known of kernels that it was not measured with.
static double factor_of(const OpCall& op, const Recipe& r, const OpTimes& t) {
  const bool backward = op.making == Making::gradients, updates = op.work == Work::matmul && op.cost.sides.m == 0;
  const std::size_t bytes = size_of(op.precision.dtype);
  double factor = step_terms::factor_of(op, attention_of(r).head_dim, t.efficiency);
  if (op.work == Work::loss && t.units > 0 && !t.efficiency.of_kernels) factor *= share_of_copy_rate(fitted_words);
  if (op.work == Work::quantise && t.by_other_precisions) factor = quantising;
  if (updates) factor *= bytes == 1 ? updating_product_in_fp8 : updating_product;
  if (op.work == Work::matmul && bytes == 1)  // steps in fp8 are measured with a scale for each block
    factor *= of_scales(r.scales.value_or(usual_scales)) * (!t.by_other_precisions ? 1 / fp8_by_blocks
                                                            : backward             ? fp8_gradient_product
                                                                                   : fp8_product);
  // Steps in tf32 are attended by the older kernels, and their fit is of these.
  return op.cost.on_card.older && (bytes == 2 || t.by_other_precisions) ? older_over_ceiling(op) : factor;
}

namespace {

// Attention that no kernel was timed for is a roofline times the factor of other attention.
bool timed(const OpCall& op, const OpTimes& t) { return t.over_units && step_terms::timed(op); }

double over_units(const OpCall& op, const Recipe& r, const OpTimes& t) {
  return step_terms::factor_of(op, attention_of(r).head_dim, *t.over_units);
}

double begins_ms(const OpCall& op, const OpTimes& t) {
  if (timed(op, t)) return 0;  // its kernels' time has it
  return op.times * (t.efficiency.of_kernels ? step_terms::launches_of(op, t.units) : 1) *
         (op.making == Making::gradients ? t.efficiency.backward_op_ms : t.efficiency.forward_op_ms);
}

double works_ms(const OpCall& op, const Recipe& r, const OpTimes& t) {
  if (timed(op, t)) return op.times * hopper::taken(op, r, t.ceilings.copy_bytes_per_s, t.units).ms * over_units(op, r, t);
  const OnCard& on_card = op.cost.on_card;
  double in_turn = 0;
  if (t.units > 0 && t.ceilings.fp32_flops > 0)
    in_turn = on_card.in_turn / t.ceilings.fp32_flops * 1e3 * (on_card.older ? older_attention(op, r, t.units) : 1);
  return op.times * (ceiling_ms(op, r, t.ceilings, t.units) * factor_of(op, r, t) + in_turn);
}

Known known_of(const OpCall& op, const OpTimes& t) {
  switch (op.work) {
    case Work::matmul: return t.by_other_precisions ? Known::derived_product : Known::product;
    case Work::attention:
    case Work::attention_parts: {
      const bool older = op.cost.on_card.older || op.cost.on_card.tf32_products > 0;
      return older || (t.over_units && size_of(op.precision.dtype) == 4) ? Known::older_attention : Known::attention;
    }
    case Work::loss: return Known::loss;
    case Work::update: return Known::update;
    case Work::rounding_update: return Known::rounding_update;
    case Work::quantise: return Known::quantise;
    default: return Known::elementwise;
  }
}

// How far each kind of work lay from its time, as a logarithm: the smallest numbers that enclose 164 steps on two H200 and an H100, a tenth wider.
// bench/lab/expected_times.md has the rule and what other steps make of it.
constexpr std::array<double, std::size_t(Known::wait) + 1> doubts_over_rooflines{0.14, 0.29, 0.20, 0.34, 0.10, 0.31,
                                                                                 0.05, 0.15, 0.10, 0.37, 0.40};
// The same where every kernel was timed, of 320 steps of which eleven lie outside; there a step has no beginnings of their own.
constexpr std::array<double, std::size_t(Known::wait) + 1> doubts_over_units{0.19, 0.19, 0.15, 0.45, 0.12, 0.10,
                                                                             0.08, 0.12, 0.31, 0.37, 0.60};
constexpr double doubt_of_all = 0.03;

}  // namespace

double expected_ms(const OpCall& op, const Recipe& r, const OpTimes& t, double longer) {
  if (op.cost.link_bytes > 0) return 0;
  const double ms = works_ms(op, r, t) + begins_ms(op, t);
  if (longer == 1 || !timed(op, t)) return ms;
  return ms + op.times * hopper::taken(op, r, t.ceilings.copy_bytes_per_s, t.units).computes_ms * over_units(op, r, t) * (longer - 1);
}

void Composition::add(const OpCall& op, const Recipe& r, const OpTimes& t, double often) {
  if (op.cost.link_bytes > 0) return;
  (*this)[known_of(op, t)] += often * works_ms(op, r, t);
  (*this)[Known::begin] += often * begins_ms(op, t);
  over_units_ = bool(t.over_units);
  if (!timed(op, t)) return;
  const hopper::Taken taken = hopper::taken(op, r, t.ceilings.copy_bytes_per_s, t.units);
  const double factor = over_units(op, r, t);
  computes_ms_[std::size_t(known_of(op, t))] += often * op.times * taken.computes_ms * factor;
  joules_ += often * op.times * taken.joules;
}

double Composition::hold_back() {
  if (!over_units_) return 1;
  const double longer = hopper::longer_at_its_clock(joules_, ms());
  for (std::size_t i = 0; i < ms_.size(); ++i) ms_[i] += computes_ms_[i] * (longer - 1);
  return longer;
}

double Composition::ms() const { return std::accumulate(ms_.begin(), ms_.end(), 0.0); }

double Composition::doubt() const {
  const double all = ms();
  const auto& doubts = over_units_ ? doubts_over_units : doubts_over_rooflines;
  double squares = doubt_of_all * doubt_of_all;
  for (std::size_t i = 0; i < ms_.size() && all > 0; ++i) squares += std::pow(ms_[i] / all * doubts[i], 2);
  return std::sqrt(squares);
}

Expected expected_time(Composition of_step, const LinkTime& link, const OpTimes& t, double ms_at_least) {
  of_step.wait(link.exposed_ms + link.host_exposed_ms);
  const double begins_ms = t.over_units ? step_terms::begins_ms : 0, longer = of_step.hold_back();  // a step that waits needs less power
  const double beside_ms = t.efficiency.link * link.ms;
  of_step.wait(beside_ms);
  of_step.begin(begins_ms);
  const double ms = of_step.ms();
  // A card whose own steps lie further from what the others say than an H200's is known less well. A CPU has its own steps alone to go by.
  const double ratio =
      t.wider * (t.units > 0 ? std::exp(of_step.doubt() * std::max(1.0, std::log(t.within) / std::log(recorded_within))) : t.within);
  const double waits_ms = link.exposed_ms + link.host_exposed_ms + beside_ms;
  return {ms, std::max(ms / ratio, ms_at_least), ms * ratio, t.by, longer, begins_ms, waits_ms};
}

}  // namespace headroom::engine
