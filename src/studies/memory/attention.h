// memory_attention — where every byte of one attention goes, forward and backward: ours from the ledger of a dry run, or PyTorch
// eager's from its list of operations. Rows, components with formulas, timeline, growth with len, the largest length, ways to save bytes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "studies/memory/account.h"
#include "studies/memory/lent_bytes.h"
#include "studies/memory/pytorch/attention.h"
#include "studies/memory/room.h"

namespace headroom {

struct AttentionMemory {
  bool as_pytorch = false;
  std::int64_t batch = 8, heads = 1, kv_heads = 0;  // kv_heads 0: as many as heads
  std::vector<std::int64_t> dims{64}, lens{1024, 4096, 16384};
  std::int64_t len_k = 0;  // 0: len
  attention::Mask mask;
  std::vector<Precision> precisions{{}};
  std::vector<std::string> variants{"plain", "flash"};
  Device device;
  int workers = 1;                               // threads that the CPU's scratch is counted for
  std::optional<std::uint64_t> memory_bytes;     // empty: all that a program can have of the device
  bool measure = false;                          // run every row that fits, too
  std::function<bool()> stop;                    // asked between measurements
  pytorch::Program program;                      // as_pytorch; `fused` comes from the variant
  std::optional<std::uint64_t> workspace_bytes;  // of one cuBLAS workspace; empty: by the device's architecture

  attention::Problem problem(std::int64_t dim, std::int64_t len, Precision) const;
};

Answer memory_attention(const AttentionMemory&);  // fits: any of the rows does

// Ours: inputs, forward, what is saved, backward, in an arena without memory behind it. A GPU that no kernel here serves is
// accounted for with the CPU's kernels.
Account attention_account(const attention::Problem&, const Device&, std::string_view variant, int workers = 1);
MeasuredMemory attention_measured(const attention::Problem&, const Device&, std::string_view variant, int threads);  // on the machine
std::uint64_t attention_peak_bytes(const attention::Problem&, const Device&, std::string_view variant, int workers = 1);
std::uint64_t attention_stand_in_bytes(const attention::Problem&, const Device&, std::string_view variant);  // engine::stand_in_bytes

// The sums people do on paper; docs/memory.md says where they differ from what a program holds.
struct OnPaper {
  std::uint64_t inputs_and_gradients;  // Q, K, V and dQ, dK, dV
  std::uint64_t output_and_gradient;   // O and dO
  std::uint64_t scores;                // one matrix of scores
  std::uint64_t lse;
  std::uint64_t naive() const {
    return inputs_and_gradients + output_and_gradient / 2 + 4 * scores;
  }  // S, P, dP, dS; P serves backward, O need not stay
  std::uint64_t tiled() const { return inputs_and_gradients + output_and_gradient + lse; }
};
OnPaper on_paper(const attention::Problem&);

}  // namespace headroom
