// A device as a file describes it: an entry of devices.json, the file of --device FILE, the output of `headroom device --save`.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "base/described.h"
#include "base/efficiency.h"

namespace headroom {

template <>
inline constexpr auto names_of<DeviceKind> = names<DeviceKind>("cpu", "cuda");

struct DeviceFile {  // 0: not known
  DeviceKind kind = DeviceKind::cuda;
  std::string key, name, reported;
  std::int64_t sm = 0, units = 0;
  double memory_mib = 0, copy_tb_s = 0, fp32_tflops = 0, tf32_tflops = 0, bf16_tflops = 0, fp16_tflops = 0, fp8_tflops = 0, link_gb_s = 0,
         host_gb_s = 0;
  std::string source;
  std::int64_t efficiency_version = 1;  // 2: they are of kernels, not of ops (Efficiency::of_kernels); 3: of_units
  std::vector<Efficiency> efficiencies;
};
void describe(Of<DeviceFile> auto& d, auto&& f) {
  constexpr Reals known{0, 1e9};
  constexpr Between counted{0, 1'000'000};
  f(d.kind, {.name = "kind"});
  f(d.key, {.name = "key"});
  f(d.name, {.name = "name"});
  f(d.reported, {.name = "reported"});  // by the driver; empty: as its name
  f(d.sm, {.name = "sm", .allowed = counted});
  f(d.units, {.name = "units", .allowed = counted});
  f(d.memory_mib, {.name = "memory_mib", .real = known});
  f(d.copy_tb_s, {.name = "copy_tb_s", .real = known});
  f(d.fp32_tflops, {.name = "fp32_tflops", .real = known});
  f(d.tf32_tflops, {.name = "tf32_tflops", .real = known});
  f(d.bf16_tflops, {.name = "bf16_tflops", .real = known});
  f(d.fp16_tflops, {.name = "fp16_tflops", .real = known});
  f(d.fp8_tflops, {.name = "fp8_tflops", .real = known});
  f(d.link_gb_s, {.name = "link_gb_s", .real = known});
  f(d.host_gb_s, {.name = "host_gb_s", .real = known});
  f(d.source, {.name = "source"});
  f(d.efficiency_version, {.name = "efficiency_version", .allowed = {1, 3}});
  f(d.efficiencies, {.name = "efficiencies"});
}

Device device_from_json(const nlohmann::json&);  // an Error names the wrong key, but not the device
std::string device_file_text(const Device&);     // JSON that device_described reads, without unknown fields

}  // namespace headroom
