// What a GPU of one architecture is: everything that kernels, forecasts and `headroom device --known` need to know about it and
// cannot ask a card that is not here. A new architecture is one row in architecture.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/device.h"

namespace headroom {

struct Beside {                          // what is taken on a card beside a program's tensors
  std::uint64_t driver_keeps_bytes = 0;  // of the memory that the driver reports: no program gets these
  std::uint64_t context_bytes = 0;       // the CUDA context
  std::uint64_t libraries_bytes = 0;     // kernels' code, cuBLAS, recorded graphs, rounding of the one allocation
};

// Chosen to be too large rather than too small, for cards that were not measured: about twice what an H200's context takes. An H100
// that reports 81 559 MiB lends 79.11 GiB in all (vLLM's issue 27508), so that its driver keeps 0.54 GiB; held back is twice that.
constexpr Beside beside_reserve{.driver_keeps_bytes = 1280u << 20, .context_bytes = 1024u << 20, .libraries_bytes = 64u << 20};

struct Architecture {
  int sm = 0;  // the compute capability that it begins with, 90 for 9.0
  std::string_view name;
  int shared_bytes = 0;  // that a block may have, by the CUDA programming guide

  // FLOPs of one multiprocessor's tensor cores in a cycle, dense; 0: none, or not known.
  double half_flops = 0, tf32_flops = 0, fp8_flops = 0;

  // Blocks that run at once in clusters of 1 to 8, of `clusters_of_units` multiprocessors; all 0: no clusters, or not measured.
  int clusters_of_units = 0;
  std::array<int, 8> clusters_at_once{};

  std::uint64_t pytorch_workspace_bytes = 0;  // that PyTorch gives cuBLAS for each thread

  Beside beside = beside_reserve;  // of a card of any name
  std::string_view measured_on{};  // a card's name; empty: none was measured
  Beside measured{};               // of that card

  // NCCL's buffers for each other GPU of the host, at most seven. A reserve: 544 MB were seen between two A100 (NCCL's issue 964),
  // 3.3 GB for an all-to-all of eight H100 (its issue 1685).
  std::uint64_t peer_bytes = 576u << 20;
  // And what the first of them costs besides. The whole of it, with the other process's context, was 1.80 to 1.94 GiB between two H200,
  // and 2.17 GiB with 8B's arena of 134 GiB (NCCL 2.28.9, 2026-11-22: driver_bytes less peak_bytes and the context, of 22 rows of `headroom
  // step --gpus 2`).
  std::uint64_t joining_bytes = 1216u << 20;
};

std::span<const Architecture> architectures();  // oldest first

// The row that describes this compute capability: its own, else the newest before it.
const Architecture& architecture_of(int sm);

double flops_per_cycle(const Architecture&, Precision);  // of one multiprocessor's tensor cores; 0: none, or not known

// What a step takes on a device beside its tensors; on a CPU nothing.
struct Overhead {
  Beside beside;
  std::uint64_t communication_bytes = 0;
  bool measured = true;  // else a reserve
  std::uint64_t bytes() const { return beside.context_bytes + beside.libraries_bytes + communication_bytes; }
};
Overhead overhead_of(const Device&, int gpus = 1);

}  // namespace headroom
