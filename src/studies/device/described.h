// A machine in records: the fields of "device", and of the list of machines that are known by name.
#pragma once
#include <optional>
#include <string>

#include "base/described.h"
#include "base/device_file.h"

namespace headroom::studies {

struct DeviceFields {
  std::string name;
  DeviceKind kind = DeviceKind::cpu;
  std::int64_t units = 0, memory_bytes = 0, available_bytes = 0;
  std::optional<std::string> driver;
  std::optional<std::int64_t> sm;
};
void describe(Of<DeviceFields> auto& d, auto&& f) {
  f(d.name, {.name = "name"});
  f(d.kind, {.name = "kind"});
  f(d.units, {.name = "units"});
  f(d.driver, {.name = "driver"});
  f(d.sm, {.name = "sm"});
  f(d.memory_bytes, {.name = "memory_bytes", .unit = Unit::bytes});
  f(d.available_bytes, {.name = "available_bytes", .unit = Unit::bytes});
}
DeviceFields fields_of(const Device&);

struct KnownRow {
  std::string key, name, architecture;
  std::int64_t memory_bytes = 0, beside_bytes = 0;
  std::string beside_is;
  std::int64_t shared_bytes = 0, context_bytes = 0, libraries_bytes = 0, driver_keeps_bytes = 0;
  std::optional<double> copy, fp32, tf32, bf16, fp8;
  std::string source;
};
void describe(Of<KnownRow> auto& r, auto&& f) {
  f(r.key, {.name = "key"});
  f(r.name, {.name = "name"});
  f(r.architecture, {.name = "architecture"});
  f(r.memory_bytes, {.name = "memory_bytes", .unit = Unit::bytes});
  f(r.beside_bytes, {.name = "beside_bytes", .unit = Unit::bytes});
  f(r.beside_is, {.name = "beside_is"});
  f(r.shared_bytes, {.name = "shared_bytes", .unit = Unit::bytes, .show = Show::detail});
  f(r.context_bytes, {.name = "context_bytes", .unit = Unit::bytes, .show = Show::detail});
  f(r.libraries_bytes, {.name = "libraries_bytes", .unit = Unit::bytes, .show = Show::detail});
  f(r.driver_keeps_bytes, {.name = "driver_keeps_bytes", .unit = Unit::bytes, .show = Show::detail});
  f(r.copy, {.name = "copy", .unit = Unit::bytes_per_s});
  f(r.fp32, {.name = "fp32", .unit = Unit::flops});
  f(r.tf32, {.name = "tf32", .unit = Unit::flops});
  f(r.bf16, {.name = "bf16", .unit = Unit::flops});
  f(r.fp8, {.name = "fp8", .unit = Unit::flops});
  f(r.source, {.name = "source"});
}
KnownRow known_row(const Device&);

struct CeilingFields {  // for a machine whose ceilings are known
  std::optional<double> copy_bytes_per_s, fp32_flops, tf32_flops, bf16_flops, fp16_flops;
  std::string source;
};
void describe(Of<CeilingFields> auto& c, auto&& f) {
  f(c.copy_bytes_per_s, {.name = "copy_bytes_per_s", .unit = Unit::bytes_per_s});
  f(c.fp32_flops, {.name = "fp32_flops", .unit = Unit::flops});
  f(c.tf32_flops, {.name = "tf32_flops", .unit = Unit::flops});
  f(c.bf16_flops, {.name = "bf16_flops", .unit = Unit::flops});
  f(c.fp16_flops, {.name = "fp16_flops", .unit = Unit::flops});
  f(c.source, {.name = "source"});
}
CeilingFields fields_of(const Ceilings&);

}  // namespace headroom::studies
