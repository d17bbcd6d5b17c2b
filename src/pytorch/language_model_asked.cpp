// What may be asked of a language model's step as PyTorch: which choices go together, which were measured, and which are timed.
#include "base/error.h"
#include "pytorch/language_model.h"

namespace headroom::pytorch {

std::string_view in_words(Adam a) {
  switch (a) {
    case Adam::foreach: return "AdamW as PyTorch defaults (foreach, one temporary as large as all parameters)";
    case Adam::fused: return "AdamW fused";
    case Adam::eight_bit: return "bitsandbytes' 8-bit AdamW";
    case Adam::paged: return "bitsandbytes' paged 8-bit AdamW, whose moments are in host memory";
    case Adam::offloaded: return "torchao's CPUOffloadOptimizer, whose moments are the host's";
    case Adam::adafactor: return "torch.optim.Adafactor";
    case Adam::sgd: return "SGD without momentum";
    case Adam::muon: return "torch.optim.Muon for matrices of the blocks, fused AdamW for the others";
    case Adam::lion: return "bitsandbytes' Lion";
    case Adam::lion_8bit: return "bitsandbytes' 8-bit Lion";
  }
  return "";
}

bool measured_choices(const LanguageModel& m) {
  return m.family == Family::llama && m.adam <= Adam::eight_bit && !m.in_backward && m.loss == Loss::whole &&
         m.selective == Selective::none && !m.offload_inputs && !m.shares_update() && m.base == Base::precision &&
         (m.lora == 0 || (m.parameters == Parameters::whole && m.gpus == 1));
}

namespace {

void check_sizes_of_pytorch(const LanguageModel& m) {
  check(m.width > 0 && m.ffn > 0 && m.layers > 0 && m.heads > 0 && m.vocab > 0 && m.batch > 0 && m.len > 0, Code::bad_argument,
        "--as pytorch: vocab, width, ffn, layers, heads, batch and len must be at least 1");
  check(m.kv_heads == 0 || (m.kv_heads > 0 && m.heads % m.kv_heads == 0), Code::bad_argument,
        "--as pytorch: kv_heads {} must divide heads {}", m.kv_heads, m.heads);
  check(size_of(m.precision.dtype) >= 2, Code::unsupported, "--as pytorch: torch.autocast has no fp8; ask for fp32, tf32, bf16 or fp16");
}

void check_what_the_family_has(const LanguageModel& m) {
  const bool of_transformers = m.family != Family::llama;
  check(
      !of_transformers || (m.compile == Compile::none && m.selective != Selective::ops), Code::unsupported,
      "--as pytorch: the steps of GPT-2, Gemma and models of experts are accounted for eager; leave --compile and --selective ops out, or "
      "put headroom forecast -- in front of a program");
  check(m.family != Family::gpt_oss || !m.fused_attention, Code::unsupported,
        "--as pytorch: transformers trains gpt-oss with plain attention, because PyTorch's fused kernels have no sinks; choose --attention "
        "plain, or put headroom forecast -- in front of a program");
  check(
      !m.routed() || m.base == Base::precision, Code::unsupported,
      "--as pytorch --base 4bit: bitsandbytes packs nn.Linear, and transformers keeps experts in one parameter of three dimensions, which "
      "stays in 16 bits; leave --base 4bit out, or put headroom forecast -- in front of a program");
  check(m.family != Family::gpt2 || m.lora == 0, Code::unsupported,
        "--as pytorch --lora: adapters are accounted for on products, and GPT-2's layers are Conv1D; put headroom forecast -- in front of "
        "a program");
  check(m.positions == 0 || m.len <= m.positions, Code::bad_argument, "--as pytorch: len is {}, and the model has {} learned positions",
        m.len, m.positions);
  check(!m.capped_logits || m.loss == Loss::whole || m.loss == Loss::in_fp32 || m.loss == Loss::fused, Code::bad_argument,
        "--as pytorch --loss {}: torchtune's loss in parts caps no logits; choose whole, fp32 or fused", names_of<Loss>.of(m.loss));
}

void check_dtypes(const LanguageModel& m) {
  const bool half = m.parameters == Parameters::half;
  check(!half || size_of(m.precision.dtype) == 2, Code::bad_argument,
        "--as pytorch --parameters half: parameters are in the precision; choose --precision bf16 or fp16");
  check(m.base == Base::precision || m.lora > 0, Code::bad_argument,
        "--as pytorch --base 4bit: only what --lora freezes is packed; add --lora R");
  check(m.base == Base::precision || size_of(m.precision.dtype) == 2, Code::bad_argument,
        "--as pytorch --base 4bit: weights are written out in the precision; choose --precision bf16 or fp16");
}

void check_levers(const LanguageModel& m) {
  check(m.selective == Selective::none || (m.keep == engine::Keeping{} && m.compile == Compile::none), Code::bad_argument,
        "--as pytorch --selective {}: accounted for without --keep and --compile; leave them out", names_of<Selective>.of(m.selective));
  check(!m.offload_inputs || (m.keep == engine::Keeping{engine::Keep::input} && m.gpus == 1), Code::bad_argument,
        "--as pytorch --offload-activations: accounted for with --keep input on one GPU");
  check(!m.in_backward || (m.gpus == 1 && m.accumulate == 1), Code::bad_argument,
        "--as pytorch --optimizer-in-backward: no gradient waits, so none can be added up or reduced; leave --accumulate and --gpus out");
  check(m.loss == Loss::whole || m.compile != Compile::model, Code::bad_argument,
        "--as pytorch --loss {}: with --compile model the loss is in the graph; choose --compile blocks", names_of<Loss>.of(m.loss));
  check(m.adam != Adam::adafactor || !m.sharded(), Code::bad_argument,
        "--as pytorch --adam adafactor: its rows and columns are accounted for on one GPU; leave --shard out");
  check(m.adam != Adam::muon || (!m.sharded() && !m.shares_update() && !m.in_backward), Code::bad_argument,
        "--as pytorch --adam muon: torch.optim.Muon reads whole matrices after backward; leave --shard and --optimizer-in-backward out");
  check(m.adam != Adam::offloaded || !m.shares_update(), Code::bad_argument,
        "--as pytorch --adam offloaded --shard optimizer: torch's ZeroRedundancyOptimizer makes its ranks' optimizers itself, and "
        "torchao's wraps one that is made; choose --shard everything or another --adam");
}

void check_keep(const LanguageModel& m) {
  using engine::Keep;
  check(m.keep.levels.size() == 1 && (m.keep.first() == Keep::everything || m.keep.first() == Keep::input) && m.keep.host == 0,
        Code::bad_argument,
        "--as pytorch --keep {}: torch.utils.checkpoint keeps the inputs of blocks or nothing; choose from everything, input, groups:K, "
        "groups:K:everything",
        WordsOf<engine::Keeping>::to(m.keep));
  check(m.keep.group <= m.layers, Code::bad_argument, "--as pytorch --keep groups:{}: the model has {} blocks", m.keep.group, m.layers);
}

void check_compile(const LanguageModel& m) {
  check(m.compile == Compile::none ||
            (m.fused_attention && m.keep.group == 1 && (m.lora == 0 || (m.compile == Compile::blocks && m.parameters == Parameters::half))),
        Code::bad_argument,
        "--as pytorch --compile {}: accounted for with --attention flash, without groups of blocks, and of --lora with --compile blocks "
        "--parameters half",
        names_of<Compile>.of(m.compile));
  check(m.compile != Compile::model || (m.gpus == 1 && m.keep == engine::Keeping{}), Code::bad_argument,
        "--as pytorch --compile model: accounted for on one GPU, with --keep everything; choose --compile blocks");
}

void check_sharding(const LanguageModel& m) {
  check(m.shard == engine::Sharding::none || m.gpus > 1, Code::bad_argument, "--as pytorch --shard {}: there is one rank; name --gpus",
        name_of(m.shard));
  check(
      !m.sharded() || m.lora == 0 || (m.parameters == Parameters::half && m.compile == Compile::none), Code::bad_argument,
      "--as pytorch --lora {} --shard {}: FSDP2 gathers parameters of one type; add --parameters half, without --compile, or leave --shard "
      "out (DDP)",
      m.lora, name_of(m.shard));
  check(!m.sharded() || m.keep.group == 1, Code::bad_argument,
        "--as pytorch --shard {} --keep groups: FSDP2 is accounted for with one group of parameters a block; choose --keep everything or "
        "input",
        name_of(m.shard));
}

}  // namespace

void check(const LanguageModel& m) {
  check_sizes_of_pytorch(m);
  check_what_the_family_has(m);
  check_dtypes(m);
  check_levers(m);
  check_keep(m);
  check_compile(m);
  check_sharding(m);
}

std::string why_not_timed(const LanguageModel& m) {
  if (m.until != Until::update) return "a part of a step is not timed";
  if (m.family != Family::llama)
    return "the steps of GPT-2, Gemma and models of experts are not timed here; headroom forecast -- CMD times a program";
  constexpr std::int64_t gpus_of_host = 8;  // past them the network decides, and PyTorch's hierarchy of rings
  if (m.gpus > gpus_of_host) return "ranks on several hosts are not timed here: what their network takes was not measured";
  if (m.shares_update())
    return "what ZeroRedundancyOptimizer sends after an update is not timed here; headroom forecast -- CMD times a program";
  if (m.compile != Compile::none && (m.lora > 0 || m.loss != Loss::whole))
    return "what torch.compile makes of adapters and of losses in parts is not timed here; headroom forecast -- CMD times a program";
  if (m.adam == Adam::offloaded) return "an update on the host is not timed here: how fast a host computes is not known";
  if (m.adam == Adam::muon || m.adam == Adam::adafactor)
    return "the many small kernels of Muon and Adafactor are not timed here; headroom forecast -- CMD times a program";
  if (m.in_backward) return "an optimizer's step inside backward is not timed here";
  if (m.offload_inputs) return "checkpoints on the host are not timed here";
  return "";
}

}  // namespace headroom::pytorch
