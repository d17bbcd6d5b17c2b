#include "gpu/architecture.h"

#include <algorithm>

#include <fmt/format.h>

namespace headroom {

namespace {

constexpr int kib = 1024;
constexpr std::uint64_t mib = 1 << 20, small_workspace = 8320 << 10, large_workspace = 32 << 20;

constexpr Architecture table[] = {
    {.sm = 0, .name = "before Ampere", .shared_bytes = 48 * kib, .pytorch_workspace_bytes = small_workspace},
    {.sm = 80,
     .name = "Ampere",
     .shared_bytes = 163 * kib,
     .half_flops = 2048,
     .tf32_flops = 1024,
     .pytorch_workspace_bytes = small_workspace,
     .network_bytes_per_s = 25e9},
    {.sm = 86, .name = "Ampere, desktop", .shared_bytes = 99 * kib, .pytorch_workspace_bytes = small_workspace},
    {.sm = 87, .name = "Ampere, embedded", .shared_bytes = 163 * kib, .pytorch_workspace_bytes = small_workspace},
    {.sm = 89,
     .name = "Ada",
     .shared_bytes = 99 * kib,
     .pytorch_workspace_bytes = small_workspace,
     // An RTX 4090 reports 24 564 MiB; CUDA has 23.65 GiB of them, of which a PyTorch program gets about 23.2.
     .beside = {.driver_keeps_bytes = 352 * mib, .context_bytes = 448 * mib, .libraries_bytes = 64 * mib}},
    {.sm = 90,
     .name = "Hopper",
     .shared_bytes = 227 * kib,
     .half_flops = 4096,
     .tf32_flops = 2048,
     .fp8_flops = 8192,
     .clusters_of_units = 132,
     .clusters_at_once = {132, 66, 39, 30, 22, 17, 15, 15, 0, 0, 0, 0, 0, 0, 0,
                          7},  // on an H200 with 225 KB a block (bench/lab/attention_fwd.md)
     .shared_clusters_at_once = {264, 132, 79, 62, 0, 39, 0, 30, 0, 0, 0, 0, 0, 0, 0, 14},  // with 113 KB
     .l2_bytes = 50e6,
     .cache_read_bytes_per_us = 4.65e6,  // bench/lab/attention_decode.md
     .pytorch_workspace_bytes = large_workspace,
     .network_bytes_per_s = 50e9,
     .measured_on = "NVIDIA H200",
     // Driver for CUDA 13.0. A card that reports 143 771 MiB has 150 109 880 320 bytes by cudaMemGetInfo (2026-11-26). A sweep of `headroom
     // attention` of 2026-11-21 says the same: it could have 148 483 735 552 bytes beside the context, and left 1 GiB to other programs. A step
     // loaded 4 to 15 MB, since 2026-11-30, when it tries more kernels, up to 19, and at most 1 848 320 bytes remain unexplained.
     .measured = {.driver_keeps_bytes = 143771 * mib - 150109880320, .context_bytes = 552402944, .libraries_bytes = 24 * mib}},
    // What PyTorch calls 9.4 is AMD's; it gives hipBLASLt as much there (parseChosenWorkspaceSize).
    {.sm = 94, .name = "AMD CDNA 3", .runs_cuda = false, .shared_bytes = 64 * kib, .pytorch_workspace_bytes = 128 * mib},
    {.sm = 100, .name = "Blackwell", .shared_bytes = 227 * kib, .pytorch_workspace_bytes = large_workspace, .network_bytes_per_s = 50e9},
    {.sm = 110, .name = "Blackwell, embedded", .shared_bytes = 227 * kib, .pytorch_workspace_bytes = small_workspace},
    {.sm = 120, .name = "Blackwell, desktop", .shared_bytes = 99 * kib, .pytorch_workspace_bytes = small_workspace},
};

}  // namespace

std::span<const Architecture> architectures() { return table; }

const Architecture& architecture_of(int sm) {
  const Architecture* found = &table[0];
  for (const Architecture& a : table)
    if (a.sm <= sm) found = &a;
  return *found;
}

std::string called(int sm) {
  const Architecture& a = architecture_of(sm);
  return a.runs_cuda ? fmt::format("sm_{}", sm) : std::string(a.name);
}

std::string why_no_kernels(const Device& d) {
  if (d.kind != DeviceKind::cuda) return "";
  if (d.sm == 0)
    return fmt::format(
        "{}: its file does not say its architecture, by which kernels are chosen; add it (\"sm\": 90, with \"units\"), or ask --as pytorch",
        d.name);
  if (!architecture_of(d.sm).runs_cuda)
    return fmt::format("{} runs no CUDA: this library's kernels need it, and sm_{} or newer. What PyTorch takes there: --as pytorch",
                       d.name, oldest_sm);
  if (d.sm >= oldest_sm) return "";
  return fmt::format(
      "{} is sm_{}: this library's kernels need sm_{} or newer. What PyTorch takes there: --as pytorch, or headroom forecast", d.name, d.sm,
      oldest_sm);
}

double flops_per_cycle(const Architecture& a, Precision p) {
  switch (p.dtype) {
    case DType::bf16:
    case DType::f16: return a.half_flops;
    case DType::f32: return p.math == Math::tf32 ? a.tf32_flops : 0;
    case DType::e4m3:
    case DType::e5m2: return a.fp8_flops;
    default: return 0;
  }
}

int mapping_ranks(int gpus) { return std::clamp(gpus, 1, 8); }

Overhead overhead_of(const Device& d, int gpus, RunBy program) {
  if (d.kind == DeviceKind::cpu) return {};
  const Architecture& a = architecture_of(d.sm);
  const auto peers = std::uint64_t(mapping_ranks(gpus) - 1);
  const bool measured = !a.measured_on.empty() && d.name == a.measured_on;
  const bool ours = program == RunBy::headroom, counted = program == RunBy::dry_pytorch && measured;
  Beside beside = measured ? a.measured : a.beside;
  if (measured && !ours) beside.libraries_bytes = counted ? 0 : pytorch_libraries_bytes;
  if (peers == 0) return {beside, 0, measured};
  const std::uint64_t of_pytorch = measured ? pytorch_nccl_bytes + (counted ? 0 : pytorch_streams_bytes) : a.pytorch_joining_bytes;
  const std::uint64_t first = ours ? a.joining_bytes + a.peer_context_bytes : of_pytorch,
                      each = a.peer_bytes + (ours ? a.peer_context_bytes : 0);
  return {beside, first + (peers - 1) * each, measured && peers == 1};
}

}  // namespace headroom
