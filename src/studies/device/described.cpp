#include "studies/device/described.h"

#include <fmt/format.h>

#include "gpu/architecture.h"

namespace headroom::studies {

namespace {
std::optional<double> rate(double x) { return x > 0 ? std::optional(x) : std::nullopt; }
}  // namespace

DeviceFields fields_of(const Device& d) {
  DeviceFields f;
  f.name = d.name;
  f.kind = d.kind;
  f.units = d.units;
  f.memory_bytes = std::int64_t(d.total_bytes);
  f.available_bytes = std::int64_t(d.memory_bytes);
  if (!d.driver.empty()) {
    f.driver = d.driver;
    f.sm = d.sm;
  }
  return f;
}

KnownRow known_row(const Device& d) {
  const Ceilings& c = d.ceilings;
  KnownRow r;
  r.key = d.key;
  r.name = d.name;
  r.memory_bytes = std::int64_t(d.memory_bytes);
  r.source = c.source;
  const Architecture& a = architecture_of(d.sm);
  const Overhead o = overhead_of(d);
  r.architecture = a.runs_cuda ? fmt::format("{} (sm_{})", a.name, d.sm) : std::string(a.name);
  r.shared_bytes = std::int64_t(a.shared_bytes);
  r.beside_bytes = std::int64_t(o.bytes() + o.beside.driver_keeps_bytes);
  r.beside_is = o.measured ? "measured" : "a reserve";
  r.context_bytes = std::int64_t(o.beside.context_bytes);
  r.libraries_bytes = std::int64_t(o.beside.libraries_bytes);
  r.driver_keeps_bytes = std::int64_t(o.beside.driver_keeps_bytes);
  r.copy = rate(c.copy_bytes_per_s);
  r.fp32 = rate(c.fp32_flops);
  r.tf32 = rate(c.tf32_flops);
  r.bf16 = rate(c.bf16_flops);
  r.fp8 = rate(c.fp8_flops);
  return r;
}

CeilingFields fields_of(const Ceilings& c) {
  CeilingFields f;
  f.copy_bytes_per_s = rate(c.copy_bytes_per_s);
  f.source = c.source;
  f.fp32_flops = rate(c.fp32_flops);
  f.tf32_flops = rate(c.tf32_flops);
  f.bf16_flops = rate(c.bf16_flops);
  f.fp16_flops = rate(c.fp16_flops);
  return f;
}

}  // namespace headroom::studies
