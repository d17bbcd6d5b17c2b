// The bytes of a decoder's training step in PyTorch eager, written as most people write it (bench/peers/pytorch_memory.py is
// the program, line by line): pre-norm blocks, RMSNorm in FP32, rotary positions, attention, SwiGLU, untied head, cross-entropy,
// AdamW. With bf16 the forward pass runs under torch.autocast; parameters and gradients stay FP32. bench/peers/pytorch_steps.py is the
// program beyond that: checkpoints, LoRA, micro-batches, FSDP2, whose mixed precision replaces autocast.
#pragma once
#include <vector>

#include "base/other_words.h"
#include "engine/recipe/keep.h"
#include "engine/recipe/ranks.h"
#include "memory/account.h"
#include "pytorch/attention.h"

namespace headroom::pytorch {

enum class Adam : std::uint8_t {
  foreach,    // PyTorch's default: a temporary as large as all parameters together
  fused,      // in place
  eight_bit,  // bitsandbytes: moments in 8 bits, with a scale for every 256 of them; parameters of less than 4096 numbers in FP32
  paged,  // bitsandbytes' PagedAdamW8bit: the moments of a parameter of 100 000 numbers or more are in managed memory, which the host has
  offloaded,  // torchao's CPUOffloadOptimizer: moments and a copy of the parameters are the host's
  adafactor,  // torch.optim.Adafactor: a row and a column of each matrix, and a temporary as large as the largest parameter
  sgd,        // torch.optim.SGD without momentum
  muon,       // torch.optim.Muon of the hidden matrices, one moment and temporaries of one matrix; fused AdamW of the others
  lion,       // bitsandbytes' Lion: one moment, in FP32
  lion_8bit   // the same in 8 bits
};
std::string_view in_words(Adam);  // as its author names it

enum class Loss : std::uint8_t {
  whole,             // F.cross_entropy of all logits
  in_fp32,           // F.cross_entropy of their FP32 copy: logits.float(), as transformers and torchtitan
  chunked,           // torchtune's CEWithChunkedOutputLoss, 8 parts
  chunked_compiled,  // the same under torch.compile
  fused              // Liger's fused linear cross-entropy
};

enum class Base : std::uint8_t {
  precision,  // what LoRA freezes is in the precision
  four_bit    // the blocks' matrices in bitsandbytes' NF4 with double quantisation: QLoRA
};

enum class Selective : std::uint8_t {
  none,
  ops,    // torchtitan's "op": every second product and attention are kept, what lies between is made again
  blocks  // every second block is checkpointed
};

enum class Silu : std::uint8_t { builtin, composed };  // F.silu, or x * torch.sigmoid(x)

enum class Parameters : std::uint8_t {
  whole,  // FP32; products run in the precision under torch.autocast
  half    // in the precision, as from_pretrained loads a checkpoint of 16 bits: gradients and moments too, without autocast
};

enum class Family : std::uint8_t {
  llama,    // the program of bench/peers
  gpt2,     // transformers' GPT2LMHeadModel
  gemma,    // transformers' Gemma, 1 to 3
  experts,  // transformers' Mixtral and Qwen3-MoE, whose experts are grouped products: routing changes no size
  gpt_oss   // transformers' gpt-oss, the same with biases and sinks, and plain attention
};

enum class Compile : std::uint8_t {
  none,
  blocks,  // torch.compile of each block by itself, as torchtitan does
  model    // the whole model with its loss
};

}  // namespace headroom::pytorch

namespace headroom {
template <>
inline constexpr auto names_of<pytorch::Compile> = names<pytorch::Compile>("none", "blocks", "model");
template <>
inline constexpr auto names_of<pytorch::Silu> = names<pytorch::Silu>("builtin", "composed");
template <>
inline constexpr auto names_of<pytorch::Parameters> = names<pytorch::Parameters>("whole", "half");
template <>
inline constexpr auto names_of<pytorch::Adam> = names<pytorch::Adam>("foreach", "fused", "8bit", "paged-8bit", "offloaded", "adafactor",
                                                                     "sgd", "muon", "lion", "lion-8bit");
template <>
inline constexpr auto other_words_of<pytorch::Adam> = std::to_array<OtherWord<pytorch::Adam>>({
    {"adamw", pytorch::Adam::foreach},
    {"adamw_torch", pytorch::Adam::foreach},
    {"adamw_torch_fused", pytorch::Adam::fused},
    {"adamw8bit", pytorch::Adam::eight_bit},
    {"adamw_8bit", pytorch::Adam::eight_bit},
    {"adamw_bnb_8bit", pytorch::Adam::eight_bit},
    {"paged_adamw_8bit", pytorch::Adam::paged},
    {"muon", pytorch::Adam::muon},  // in any case
    {"lion", pytorch::Adam::lion},
    {"lion_32bit", pytorch::Adam::lion},
    {"lion_8bit", pytorch::Adam::lion_8bit},
});
template <>
inline constexpr auto names_of<pytorch::Loss> = names<pytorch::Loss>("whole", "fp32", "chunked", "chunked-compiled", "fused");
template <>
inline constexpr auto names_of<pytorch::Base> = names<pytorch::Base>("precision", "4bit");
template <>
inline constexpr auto other_words_of<pytorch::Base> = std::to_array<OtherWord<pytorch::Base>>({
    {"4bit", pytorch::Base::four_bit},  // 4-bit
    {"nf4", pytorch::Base::four_bit},
});
template <>
inline constexpr auto names_of<pytorch::Selective> = names<pytorch::Selective>("none", "ops", "blocks");
}  // namespace headroom

namespace headroom::pytorch {

struct StepChoices {
  Softmax softmax = Softmax::builtin;
  Silu silu = Silu::builtin;
  Parameters parameters = Parameters::whole;
  Adam adam = Adam::foreach;
  bool in_backward = false;
  Loss loss = Loss::whole;
  Selective selective = Selective::none;
  bool offload_inputs = false;
  bool no_dropout = false;
  Compile compile = Compile::none;
  std::int64_t lora = 0, accumulate = 1;
  Base base = Base::precision;
  std::optional<std::uint64_t> workspace_bytes{};  // cuBLAS's; empty: by architecture
};
void describe(Of<StepChoices> auto& c, auto&& f) {
  f(c.softmax, softmax_choice);
  f(c.silu, {.name = "silu", .about = "As pytorch: F.silu, or x * sigmoid(x)"});
  f(c.parameters,
    {.name = "parameters",
     .about =
         "As pytorch: parameters (of --lora: adapters), gradients and moments in FP32, with autocast; or half: in the precision, without"});
  f(c.adam,
    {.name = "adam",
     .about = "As pytorch: the optimizer. foreach is torch.optim.AdamW's default; 8bit paged-8bit and lion are bitsandbytes', offloaded is "
              "torchao's; muon updates hidden matrices, fused AdamW the others",
     .option = "--adam,--optimizer"});
  f(c.in_backward, {.name = "in_backward",
                    .about = "As pytorch: each parameter is updated as soon as its gradient is there, which is then freed",
                    .option = "--optimizer-in-backward"});
  f(c.loss, {.name = "loss",
             .about = "As pytorch: cross-entropy of all logits; of their FP32 copy, as transformers; of 8 parts, as torchtune, compiled or "
                      "not; or Liger's, fused with the head"});
  f(c.selective,
    {.name = "selective",
     .about = "As pytorch: selective checkpoints. ops: every second product and attention are kept (torchtitan's op); blocks: every second "
              "block is checkpointed"});
  f(c.offload_inputs,
    {.name = "offload_inputs",
     .about = "As pytorch, with --keep input: what checkpoints keep is copied to the host (torchtune's activation offloading)",
     .option = "--offload-activations"});
  f(c.no_dropout, {.name = "no_dropout", .about = "As pytorch: GPT-2 without its dropout (0.1 in its config.json)"});
  f(c.compile, {.name = "compile", .about = "As pytorch: torch.compile of nothing, of each block, or of the model with its loss"});
  f(c.lora, {.name = "lora",
             .about = "As pytorch: rank of LoRA adapters of the blocks' matrices; all else is frozen, in the precision. 0: none",
             .allowed = {0, 1 << 16}});
  f(c.base, {.name = "base", .about = "As pytorch, with --lora: frozen matrices in the precision, or in NF4 of 4 bits (QLoRA)"});
  f(c.accumulate, {.name = "accumulate",
                   .about = "As pytorch: micro-batches of --batch sequences whose gradients are added up",
                   .allowed = {1, 1 << 20}});
  f(c.workspace_bytes, workspace_choice);
}

enum class Until : std::uint8_t { forward, backward, update };  // what of a step runs; only its update makes moments

struct LanguageModel {
  std::int64_t vocab = 10000, width = 0, ffn = 0, layers = 0, heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: width / heads
  std::int64_t batch = 4, len = 1024;
  bool tied = false;
  Family family = Family::llama;
  std::int64_t positions = 0;     // learned ones, of GPT-2
  bool dropout = true;            // GPT-2's: behind the embedding, in attention, behind both halves
  bool written_out_gelu = false;  // GPT-2's: an operator for each step of it
  bool norms_after = false;       // Gemma 2's and 3's
  bool capped_scores = false, capped_logits = false;
  std::vector<std::int64_t> windows{};             // one for each block of Gemma; 0: it has none
  std::int64_t experts = 0, experts_of_token = 0;  // each block's; ffn is the width of one
  bool routing_in_fp32 = false;                    // experts are weighted in FP32 (Mixtral), or in the router's type
  Precision precision;                             // fp32 and tf32 without autocast, bf16 and fp16 with it
  bool fused_attention = false;
  Softmax softmax = Softmax::builtin;
  Silu silu = Silu::builtin;
  Parameters parameters = Parameters::whole;
  bool math_attention = false;             // scaled_dot_product_attention(enable_gqa=True) in FP32, which has no fused kernel
  bool fused_norms = false;                // F.rms_norm: launches_of knows it, no account of bytes does
  bool qkv_bias = false, qk_norm = false;  // biases of q, k and v; a norm of each head's queries and keys
  Adam adam = Adam::foreach;
  bool in_backward = false;
  Loss loss = Loss::whole;
  Selective selective = Selective::none;
  bool offload_inputs = false;  // checkpoints', to the host
  Base base = Base::precision;
  Until until = Until::update;
  Compile compile = Compile::none;
  engine::Keeping keep{};       // everything; input: each block checkpointed; groups:K[:everything]: K blocks at once
  std::int64_t lora = 0;        // rank; 0: every parameter is trained
  std::int64_t accumulate = 1;  // micro-batches
  std::int64_t gpus = 1;        // each takes a batch
  // none: DDP; optimizer: DDP with ZeroRedundancyOptimizer; gradients: FSDP2 that keeps gathered weights until backward; everything: FSDP2
  engine::Sharding shard{};
  std::int64_t key_heads() const { return kv_heads ? kv_heads : heads; }
  std::int64_t dim_of_head() const { return head_dim ? head_dim : width / heads; }
  bool routed() const { return family == Family::experts || family == Family::gpt_oss; }
  bool sharded() const { return gpus > 1 && shard >= engine::Sharding::gradients; }        // by FSDP2
  bool shares_update() const { return gpus > 1 && shard == engine::Sharding::optimizer; }  // each rank updates parameters of its own
  bool autocasts() const { return !sharded() && parameters == Parameters::whole; }         // where the precision is not FP32
  bool operator==(const LanguageModel&) const = default;
};

struct LanguageModelAccount {
  std::uint64_t params = 0;                 // numbers, not bytes
  std::uint64_t before_backward_bytes = 0;  // all of a later step, when Adam's moments are there
  std::uint64_t forward_peak_bytes = 0;
  std::uint64_t forward_backward_peak_bytes = 0;  // 0: it ends before
  std::uint64_t after_backward_bytes = 0;         // parameters, gradients, moments
  std::uint64_t train_peak_bytes = 0;             // the optimiser's pass included; or of what runs
  std::uint64_t held_bytes = 0;                   // between two steps
  std::uint64_t reserved_bytes = 0;               // by the caching allocator: segments, of which the peak is a part
  std::uint64_t host_bytes = 0;                   // the optimizer's and the checkpoints', in the host's memory
  std::uint64_t pinned_bytes = 0;                 // the part that is pinned; paged moments are unified memory
  Account account;                                // components (equal ones of different blocks counted together) and timeline
};

// Choices that no step on a card was held against: what they do was read in their sources.
bool measured_choices(const LanguageModel&);

enum class Detail : std::uint8_t { totals, components };
void check(const LanguageModel&);  // whether such a step is accounted for: an Error (bad_argument, unsupported) says why not
LanguageModelAccount account(const LanguageModel&, std::uint64_t workspace_bytes, Detail = Detail::totals);

std::string why_not_timed(const LanguageModel&);     // "": launches_of knows all that its step gives to the card
Launches launches_of(const LanguageModel&, int sm);  // two steps; the first makes the optimizer's state

}  // namespace headroom::pytorch
