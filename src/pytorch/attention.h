// The bytes of one attention in PyTorch eager, forward and backward, by running this program with eager.h.
//
//   scores  = q @ k.transpose(-2, -1) / math.sqrt(d)     # then torch.where(mask, scores, -inf) when there is a mask
//   weights = torch.softmax(scores, -1)                  # builtin
//   x = scores - scores.max(-1, keepdim=True)[0]; e = x.exp(); weights = e / e.sum(-1, keepdim=True)   # composed, in its own function
//   o = weights @ v                                      # variant flash: o = F.scaled_dot_product_attention(q, k, v)
//
// Upstream given: o is kept, before_backward is read after a first forward; then dO is made and o = f(); o.backward(dO) repeats,
//   gradients accumulate, and the peak is that of the steady state.
// Upstream sum: a warm-up step leaves gradients and a loss behind; loss = f().sum(), the output is not kept; the peak is read before
//   loss.backward() unless peak_of asks for the whole step.
#pragma once
#include <optional>

#include "base/described.h"
#include "memory/account.h"
#include "ops/attention/attention.h"
#include "pytorch/eager.h"

namespace headroom::pytorch {

enum class Softmax : std::uint8_t { builtin, composed };
enum class Upstream : std::uint8_t { given, sum };
enum class PeakOf : std::uint8_t { forward, step };

}  // namespace headroom::pytorch

namespace headroom {
template <>
inline constexpr auto names_of<pytorch::Softmax> = names<pytorch::Softmax>("builtin", "composed");
template <>
inline constexpr auto names_of<pytorch::Upstream> = names<pytorch::Upstream>("given", "sum");
template <>
inline constexpr auto names_of<pytorch::PeakOf> = names<pytorch::PeakOf>("forward", "step");
}  // namespace headroom

namespace headroom::pytorch {

inline constexpr Description softmax_choice{.name = "softmax", .about = "As pytorch: torch.softmax, or max, subtract, exp, sum, divide"};
inline constexpr Description workspace_choice{
    .name = "workspace_bytes",
    .unit = Unit::bytes,
    .about = "As pytorch: one cuBLAS workspace [by architecture: 32 for H100, H200, B200, else 8.125]",
    .allowed = {0, std::int64_t(4) << 30},
    .option = "--workspace-mib"};

struct Program {
  bool fused = false;  // scaled_dot_product_attention instead of the lines above
  Softmax softmax = Softmax::builtin;
  Upstream upstream = Upstream::given;
  std::optional<PeakOf> peak_of{};                 // empty: forward when upstream is sum, else the step
  std::optional<std::uint64_t> workspace_bytes{};  // cuBLAS's; empty: by architecture
};
void describe(Of<Program> auto& p, auto&& f) {
  f(p.softmax, softmax_choice);
  f(p.upstream, {.name = "upstream", .about = "As pytorch: o.backward(dO) with o kept, or o.sum().backward()"});
  f(p.workspace_bytes, workspace_choice);
  f(p.peak_of, {.name = "peak_of", .about = "As pytorch: the pass whose peak is peak_bytes [upstream sum: forward; given: step]"});
}

// cuBLAS's workspace by architecture as PyTorch chooses it: 32 MiB from Hopper on, else 2 × 4 MiB + 8 × 16 KiB.
std::uint64_t workspace_bytes(int sm);

class Process {  // a Python process: what it has touched stays touched, so rows measured one after the other differ from the first
 public:
  explicit Process(std::uint64_t workspace_bytes, Count count = Count::rounded) : memory_(count), torch_(memory_, workspace_bytes) {}
  Eager& torch() { return torch_; }
  Allocator& memory() { return memory_; }

 private:
  Allocator memory_;
  Eager torch_;
};

// The lines above, softmax and all; `group` query heads share a key head, whose keys and values are repeated for them.
Value naive_attention(Eager&, Softmax, std::int64_t group, const Value& q, const Value& k, const Value& v, const Value& mask);

Support supports(const attention::Problem&);
Account account(Process&, const attention::Problem&, const Program&);
std::uint64_t peak_bytes(const attention::Problem&, const Program&, std::uint64_t workspace_bytes);  // alone in a process, no description

}  // namespace headroom::pytorch
