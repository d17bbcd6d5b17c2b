// The bytes of a decoder's training step in PyTorch eager, written as most people write it (bench/peers/pytorch_memory.py is
// the program, line by line): pre-norm blocks, RMSNorm in FP32, rotary positions, attention, SwiGLU, untied head, cross-entropy,
// AdamW. With bf16 the forward pass runs under torch.autocast; parameters and gradients stay FP32.
#pragma once
#include "studies/memory/account.h"
#include "studies/memory/pytorch/attention.h"

namespace headroom::studies::pytorch {

enum class Adam : std::uint8_t {
  foreach,  // PyTorch's default: a temporary as large as all parameters together
  fused     // in place
};

}  // namespace headroom::studies::pytorch

namespace headroom {
template <>
inline constexpr auto names_of<studies::pytorch::Adam> = names<studies::pytorch::Adam>("foreach", "fused");
}

namespace headroom::studies::pytorch {

struct StepChoices {
  Softmax softmax = Softmax::builtin;
  Adam adam = Adam::foreach;
  std::optional<std::uint64_t> workspace_bytes{};  // of cuBLAS; empty: by architecture
};
void describe(Of<StepChoices> auto& c, auto&& f) {
  f(c.softmax, softmax_choice);
  f(c.adam, {.name = "adam", .about = "As pytorch: AdamW's default, with a temporary as large as all parameters, or fused"});
  f(c.workspace_bytes, workspace_choice);
}

enum class Until : std::uint8_t { forward, backward, update };  // what of a step runs; only its update makes moments

struct LanguageModel {
  std::int64_t vocab = 10000, width = 0, ffn = 0, layers = 0, heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: width / heads
  std::int64_t batch = 4, len = 1024;
  bool tied = false;
  Precision precision;  // fp32 and tf32 without autocast, bf16 and fp16 with it
  bool fused_attention = false;
  Softmax softmax = Softmax::builtin;
  Adam adam = Adam::foreach;
  Until until = Until::update;
};

struct LanguageModelAccount {
  std::uint64_t params = 0;                 // numbers, not bytes
  std::uint64_t before_backward_bytes = 0;  // all of a later step, when Adam's moments are there
  std::uint64_t forward_peak_bytes = 0;
  std::uint64_t forward_backward_peak_bytes = 0;  // 0: it ends before
  std::uint64_t after_backward_bytes = 0;         // parameters, gradients, moments
  std::uint64_t train_peak_bytes = 0;             // the optimiser's pass included; or of what runs
  std::uint64_t held_bytes = 0;                   // between two steps
  Account account;                                // components (equal ones of different blocks counted together) and timeline
};

enum class Detail : std::uint8_t { totals, components };
LanguageModelAccount account(const LanguageModel&, std::uint64_t workspace_bytes, Detail = Detail::totals);

}  // namespace headroom::studies::pytorch
