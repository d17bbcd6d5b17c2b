// A Device is a value: a machine's name, memory and speed. The machine may be present or only described.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace headroom {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Ceilings {               // 0: not known
  double copy_bytes_per_s = 0;  // bytes read plus bytes written
  double fp32_flops = 0, tf32_flops = 0, bf16_flops = 0, fp16_flops = 0, fp8_flops = 0;
  double link_bytes_per_s = 0;  // sent by a device to its peers while it receives as much
  double host_bytes_per_s = 0;  // between a card and pinned memory of its host, one way
  std::string source;           // "measured …" or "datasheet …"
  double of(Precision p) const {
    switch (p.dtype) {
      case DType::bf16: return bf16_flops;
      case DType::f16: return fp16_flops;
      case DType::e4m3:
      case DType::e5m2: return fp8_flops;
      default: return p.math == Math::tf32 ? tf32_flops : fp32_flops;
    }
  }
};

struct Efficiencies;  // efficiency.h

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::string key;                 // the name to type: "h200"; empty for a machine that is present
  std::string name;                // the name to read: "NVIDIA H200"
  int index = 0;                   // cuda:index
  int sm = 0;                      // 90 for Hopper, 0 for the CPU
  int units = 0;                   // cores or multiprocessors
  std::uint64_t memory_bytes = 0;  // usable: what is available now on a machine that is present, else everything
  std::uint64_t total_bytes = 0;   // everything
  std::string driver, bus;         // for a GPU that is present: the CUDA version that its driver supports; its PCI address
  Ceilings ceilings;
  std::shared_ptr<const Efficiencies> efficiencies;  // the share of its ceilings that steps reach; null: unknown
};

// NVIDIA's cards before Ampere have none, and PyTorch emulates it there.
inline bool computes_bf16(const Device& d) { return d.kind == DeviceKind::cpu || d.sm >= 80; }

Device cpu_device();                                     // this machine
const std::vector<Device>& known_devices();              // devices.json, built in
Device device_described(std::string_view name_or_file);  // "h200", or a path of a JSON file; an Error lists the names

}  // namespace headroom
