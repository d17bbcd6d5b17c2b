// memory_attention — where every byte of one attention goes, forward and backward: ours from the ledger of a dry run, or PyTorch
// eager's from its list of operations. Rows, components with formulas, timeline, growth with len, the largest length, ways to save bytes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/precision_words.h"
#include "memory/account.h"
#include "ops/attention/attention.h"
#include "ops/attention/mask_words.h"
#include "pytorch/attention.h"
#include "studies/attention/asked.h"
#include "studies/life.h"
#include "studies/memory/asked.h"
#include "studies/memory/lent_bytes.h"
#include "studies/memory/room.h"
#include "studies/step/words.h"

namespace headroom::studies {

struct AttentionMemory {
  Whose whose = Whose::headroom;
  std::vector<std::string> variants;                // none: plain and flash; PyTorch's: plain
  std::int64_t batch = 8, heads = 1, kv_heads = 0;  // kv_heads 0: as many as heads
  std::vector<std::int64_t> dims{64}, lens{1024, 4096, 16384};
  std::int64_t len_k = 0;  // 0: len
  attention::Mask mask;
  std::vector<Precision> precisions{{}};
  std::optional<std::uint64_t> memory_bytes;  // empty: all that a program can have of the device
  pytorch::Program as_pytorch;                // `fused` comes from the variant
  bool measure = false;                       // run every row that fits, too
  Device device;
  int workers = 1;                                    // threads that the CPU's scratch is counted for
  std::function<bool()> stop = [] { return false; };  // asked between measurements

  bool eager() const { return whose == Whose::pytorch; }
  std::vector<std::string> families() const {
    return !variants.empty() ? variants : eager() ? std::vector<std::string>{"plain"} : std::vector<std::string>{"plain", "flash"};
  }
  attention::Problem problem(std::int64_t dim, std::int64_t len, Precision) const;
};
void describe(Of<AttentionMemory> auto& s, auto&& f) {
  f(s.whose, {.name = "as", .about = "Whose attention: this library's, or PyTorch eager's"});
  f(s.variants, {.name = "variant",
                 .about = "plain keeps N×N matrices, flash does not [plain,flash; as pytorch: plain]",
                 .choices = engine::attention_families,
                 .option = "--attention"});
  f(s.batch, asked::batch);
  f(s.heads, asked::heads);
  f(s.kv_heads, asked::kv_heads);
  f(s.dims, {.name = "dim", .about = "Head dimensions", .allowed = {1, 256}});
  f(s.lens, {.name = "len", .about = "Lengths", .allowed = {1, asked::most_len}});
  f(s.len_k, asked::len_k);
  f(s.precisions, asked::dtype);
  f(s.mask, asked::mask);
  f(s.memory_bytes, memory_limit);
  describe(s.as_pytorch, f);
  f(s.measure, {.name = "measure", .about = "Run every row that fits, and show the measured bytes beside the forecast"});
}

Outcome memory_attention(const AttentionMemory&);  // yes: any of the rows fits

// Ours: inputs, forward, what is saved, backward, in an arena without memory behind it. A GPU that no kernel here serves is
// accounted for with the CPU's kernels.
Account attention_account(const attention::Problem&, const Device&, std::string_view variant, int workers = 1);
MeasuredMemory attention_measured(const attention::Problem&, const Device&, std::string_view variant, int threads);  // on the machine
std::uint64_t attention_peak_bytes(const attention::Problem&, const Device&, std::string_view variant, int workers = 1);

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

}  // namespace headroom::studies
