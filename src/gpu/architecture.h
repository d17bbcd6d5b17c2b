// What a GPU of one architecture is: everything that kernels, forecasts and `headroom device --known` need to know about it and
// cannot ask a card that is not here. A new architecture is one row in architecture.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/device.h"

namespace headroom {

struct Beside {                          // bytes taken on a card beside a program's tensors
  std::uint64_t driver_keeps_bytes = 0;  // reported by the driver, but not available to any program
  std::uint64_t context_bytes = 0;       // the CUDA context
  std::uint64_t libraries_bytes = 0;     // kernels' code, cuBLAS, recorded graphs, rounding of the one allocation
};

// Chosen to be too large rather than too small, for cards that were not measured: about twice what an H200's context takes. An H100
// that reports 81 559 MiB lends 79.11 GiB in all (vLLM's issue 27508), so that its driver keeps 0.54 GiB; held back is twice that.
constexpr Beside beside_reserve{.driver_keeps_bytes = 1280u << 20, .context_bytes = 1024u << 20, .libraries_bytes = 64u << 20};

// A training step of PyTorch has as much beside the context in kernels' code and handles of libraries; its streams take as much, which it makes all at once
// where a program asks for one; and what is left of 1.57 GiB is NCCL's. An H200's, with torch 2.11 (bench/results/h200_pytorch_beside_2026-11-30.txt).
constexpr std::uint64_t pytorch_libraries_bytes = 252u << 20, pytorch_streams_bytes = 70u << 20, pytorch_nccl_bytes = 767u << 20;

struct Architecture {
  int sm = 0;  // the compute capability that it begins with, 90 for 9.0
  std::string_view name;
  bool runs_cuda = true;  // otherwise only PyTorch's bytes are counted there
  int shared_bytes = 0;   // most shared memory of a block, by the CUDA programming guide

  // FLOPs of one multiprocessor's tensor cores in a cycle, dense; 0: none, or not known.
  double half_flops = 0, tf32_flops = 0, fp8_flops = 0;

  // Clusters of 1 to 16 blocks that run at once on `clusters_of_units` multiprocessors, by cudaOccupancyMaxActiveClusters: where a block has a
  // multiprocessor alone, and where two blocks share one. 0: not measured; all 0: no clusters.
  int clusters_of_units = 0;
  std::array<int, 16> clusters_at_once{}, shared_clusters_at_once{};
  double l2_bytes = 0, cache_read_bytes_per_us = 0;  // the measured card's L2, and its rate of reading keys and values

  std::uint64_t pytorch_workspace_bytes = 0;  // given to cuBLAS by PyTorch, for each thread

  // Between hosts, one way, of each GPU: an adapter of 100 Gb/s, and the makers' own servers where there are some (DGX A100: 200 Gb/s a GPU, DGX
  // H100, H200 and B200: 400).
  double network_bytes_per_s = 12.5e9;

  Beside beside = beside_reserve;  // for a card of any name
  std::string_view measured_on{};  // a card's name; empty: none was measured
  Beside measured{};               // for that card

  // Communication with the first other GPU of the host. Between two H200 it took 1.80 to 1.94 GiB with the other process's context, and 2.17 GiB
  // with 8B's arena of 134 GiB (NCCL 2.28.9, 2026-11-22: driver_bytes less peak_bytes and the context, of 22 rows of `headroom step --gpus 2`).
  std::uint64_t joining_bytes = 1792u << 20;
  // And with each one after it, up to seven: a reserve, not measured. With joining_bytes it is 3.25 GiB of NCCL's for eight GPUs, of which 3.3 GB
  // were seen for an all-to-all of eight H100 (NCCL's issue 1685), the most that is known of.
  std::uint64_t peer_bytes = 256u << 20;
  // The context that a process has on a card whose memory it maps (dist/peers.h): an H200's, and a reserve for others.
  std::uint64_t peer_context_bytes = 544u << 20;
  // The same of a PyTorch process, which maps no other card's memory: beside its segments it took 1.57 GiB of an H200, context, libraries, streams
  // and NCCL together, for FSDP2 and DDP alike (two cards, docs/memory-as-pytorch-checks.md).
  std::uint64_t pytorch_joining_bytes = 1064u << 20;
};

constexpr int oldest_sm = 80;  // the oldest architecture of this library's kernels (cmake/cuda.cmake)

// Why this library's kernels cannot run on a device, in a sentence; empty where they can. A file that does not say its architecture is such a device.
std::string why_no_kernels(const Device&);

std::span<const Architecture> architectures();  // oldest first
std::string called(int sm);                     // "sm_90"; a name where there is no CUDA

// The row that describes this compute capability: its own, else the newest before it.
const Architecture& architecture_of(int sm);

double flops_per_cycle(const Architecture&, Precision);  // one multiprocessor's tensor cores; 0: none, or unknown

// What a step takes on a device beside its tensors; on a CPU nothing.
struct Overhead {
  Beside beside;
  std::uint64_t communication_bytes = 0;
  bool measured = true;  // else a reserve
  std::uint64_t bytes() const { return beside.context_bytes + beside.libraries_bytes + communication_bytes; }
};
// dry_pytorch: a dry run of a PyTorch program, which counts what libraries take where that was measured (dry/library/beside.h).
enum class RunBy : std::uint8_t { headroom, pytorch, dry_pytorch };
Overhead overhead_of(const Device&, int gpus = 1, RunBy = RunBy::headroom);

// Ranks of this library that have a context on each card, because ranks of one host map each other's memory; up to eight share a host.
int mapping_ranks(int gpus);

}  // namespace headroom
