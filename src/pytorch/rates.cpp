#include "pytorch/rates.h"

#include <algorithm>
#include <array>

#include "base/efficiency.h"
#include "base/text.h"
#include "gpu/architecture.h"

namespace headroom::pytorch {

namespace {

// A card that was not measured is taken for an H200 with other ceilings. Its steps take at least what its ceilings allow, and at most so much
// longer than that: parts of the H200's own steps reach between a third and all of a ceiling.
constexpr double unmeasured_low = 0.65, unmeasured_high = 1.7;

// No step passes the ceiling. No product passes a datasheet's either; beside a measured one, which is that of a few large products, some shapes do.
void scale(dry::ProductRate& rate, double by, double units, double ceiling, bool of_datasheet) {
  rate.most = ceiling;
  for (double* flops_per_s : {&rate.large, &rate.middle, &rate.small, &rate.least}) {
    *flops_per_s *= by;
    if (of_datasheet) *flops_per_s = std::min(*flops_per_s, ceiling);
  }
  rate.start_s /= std::clamp(units, 0.5, 1.0);
}

void scale(dry::AttentionRate& rate, double by) {
  for (double* flops_per_s : {&rate.of_64, &rate.of_64_backward, &rate.of_128, &rate.of_128_backward, &rate.of_256, &rate.of_256_backward})
    *flops_per_s *= by;
}

void scale(dry::KernelRate& rate, double bytes, double cached) {
  rate.bytes_per_s *= bytes;
  rate.cached_bytes_per_s = std::max(rate.cached_bytes_per_s * cached, rate.bytes_per_s);
}

std::optional<dry::Rates> of_card(const Device& device) {
  const Device h200 = device_described("h200");
  const Ceilings &c = device.ceilings, &of = h200.ceilings;
  if (!architecture_of(device.sm).runs_cuda) return {};
  if (device.kind != DeviceKind::cuda || c.copy_bytes_per_s <= 0 || c.fp32_flops <= 0) return {};
  if (std::max(c.bf16_flops, c.fp16_flops) <= 0) return {};
  dry::Rates r = dry::rates_of_h200();
  if (device.name == h200.name) return r;
  const auto ratio = [](double x, double y, double otherwise) { return x > 0 && y > 0 ? x / y : otherwise; };
  const double single = c.fp32_flops / of.fp32_flops, bytes = c.copy_bytes_per_s / of.copy_bytes_per_s;
  const double half = ratio(c.fp16_flops, of.fp16_flops, c.bf16_flops / of.bf16_flops);
  const double units = device.units > 0 ? double(device.units) / r.units : 1;
  // A card without tensor cores for a type multiplies it as FP32: bf16 and tf32 before Ampere.
  const bool of_datasheet = by_datasheet(c);
  const auto scale_to = [&](dry::ProductRate& rate, double by, double ceiling) { scale(rate, by, units, ceiling, of_datasheet); };
  const auto scale_or_single = [&](dry::ProductRate& rate, double flops, double of_flops) {
    if (flops <= 0) rate = r.single;
    scale_to(rate, flops > 0 ? flops / of_flops : single, flops > 0 ? flops : c.fp32_flops);
  };
  const double half_ceiling = c.fp16_flops > 0 ? c.fp16_flops : c.bf16_flops;
  scale_to(r.half, half, half_ceiling);
  scale_or_single(r.brain, c.bf16_flops, of.bf16_flops);
  scale_or_single(r.tf32, c.tf32_flops, of.tf32_flops);
  scale_to(r.single, single, c.fp32_flops);
  scale_to(r.twice, single, c.fp32_flops);
  scale_to(r.eight, ratio(c.fp8_flops, of.fp8_flops, half), c.fp8_flops > 0 ? c.fp8_flops : 2 * half_ceiling);
  for (dry::AttentionRate* a : {&r.cudnn, &r.flash, &r.efficient}) scale(*a, half);
  scale(r.efficient_single, single);
  for (dry::KernelRate* k : {&r.pointwise, &r.strided, &r.converting, &r.reducing, &r.norm, &r.norm_backward, &r.norm_weights, &r.softmax,
                             &r.lists, &r.joining, &r.other, &r.generated, &r.generated_sums, &r.single_channels})
    scale(*k, bytes, units);
  r.long_row_bytes_per_s *= bytes;
  r.strided_per_s *= units;
  r.looking_up /= units;
  r.reducing_block_s /= units, r.reducing_narrow_block_s /= units;
  r.strided_converting_per_s *= units;
  dry::TouchedRate& t = r.touched;
  for (double* s : {&t.element_s, &t.converted_s, &t.dimension_s}) *s /= units;
  for (double* rate : {&t.bytes_per_s, &t.reread_bytes_per_s}) *rate *= bytes;
  for (double* rate : {&t.sector_bytes_per_s, &t.lines_per_s}) *rate *= units;
  r.link_bytes_per_s *= ratio(c.link_bytes_per_s, of.link_bytes_per_s, 0.1);
  r.host_bytes_per_s *= ratio(c.host_bytes_per_s, of.host_bytes_per_s, 0.5);
  if (device.units > 0) r.units = device.units;
  r.low *= unmeasured_low;
  r.high *= unmeasured_high;
  r.source = fmt::format("rates of an NVIDIA H200, scaled by the ceilings of {}, which was not measured", device.name);
  return r;
}

}  // namespace

std::optional<dry::Rates> rates_of(const Device& device, double host_speed) {
  std::optional<dry::Rates> r = of_card(device);
  if (r && host_speed != 1) {
    dry::scale_host(*r, 1 / host_speed);
    r->source += fmt::format("; a host {} times as fast as that beside the H200", number_in_words(host_speed));
  }
  return r;
}

std::string why_no_rates(const Device& device) {
  if (!architecture_of(device.sm).runs_cuda)
    return fmt::format("expected times are those of CUDA's libraries, and {} runs no CUDA", device.name);
  return fmt::format("neither rates nor ceilings of {} are known: headroom device --save FILE there, then --device FILE", device.name);
}

}  // namespace headroom::pytorch
