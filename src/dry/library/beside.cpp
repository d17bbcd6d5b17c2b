#include "dry/library/beside.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "dry/library/memory.h"
#include "dry/library/world.h"

namespace headroom::dry {

namespace {

constexpr std::uint64_t kib = 1 << 10, mib = 1 << 20, piece = 2 * mib;

struct Cost {
  std::uint64_t bytes;
  std::uint64_t most = ~std::uint64_t(0);  // of them that take memory
};

constexpr std::array<Cost, 7> costs = {{
    {98 * mib, 1},  // kernels: the module that holds PyTorch's 92, and up to 6 that 42 programs had more than the rest of this list
    {65 * mib},     // blas_handle: the first 66, another thread's 64
    {10 * mib, 2},  // dnn_or_attention: forward and backward of cuDNN's or of flash attention 10 and 8 to 10, both together 20
    {97 * mib},     // solver: the first 98, another thread's 96
    {8 * mib, 1},   // transforms
    {560 * kib},    // stream: PyTorch makes 128 at once, which take 70 MiB
    {5 * kib},      // graph_node: 2 to 5
}};

using Counts = std::array<std::atomic<std::uint64_t>, costs.size()>;

std::uint64_t count_of(const Counts& counts, Beside what) {
  return std::min<std::uint64_t>(counts[std::size_t(what)], costs[std::size_t(what)].most);
}

std::uint64_t bytes_of(const Counts& counts) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) bytes += costs[i].bytes * count_of(counts, Beside(i));
  // Gradients of determinants solve on a card by a handle of autograd's thread, which a dry run does not ask for.
  if (count_of(counts, Beside::solver) > 0 && count_of(counts, Beside::blas_handle) == 1)
    bytes += costs[std::size_t(Beside::blas_handle)].bytes;
  return bytes / piece * piece;
}

}  // namespace

void takes_beside(Beside what, int device, std::int64_t more) {
  static std::array<Counts, most_cards> counts;
  Counts& own = counts[std::size_t(device)];
  const std::uint64_t before = bytes_of(own);
  own[std::size_t(what)] += std::uint64_t(more);
  if (const std::uint64_t now = bytes_of(own); now != before) beside_is(device, now - std::min(now, card().libraries_bytes));
}

}  // namespace headroom::dry

extern "C" {
int cusolverDnCreate(void** out) {
  headroom::dry::takes_beside(headroom::dry::Beside::solver, headroom::dry::device());
  *out = new char[64]();
  return 0;
}
int cufftCreate(int* out) {
  headroom::dry::takes_beside(headroom::dry::Beside::transforms, headroom::dry::device());
  *out = 1;
  return 0;
}
}
