// The language model that a command asks for, its options in words, and what its description leaves open.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "studies/memory/model_pytorch.h"

namespace headroom::studies {

using pytorch::LanguageModel;

PyTorchInterval interval_of(const LanguageModel& m, std::uint64_t peak, std::uint64_t workspace) {
  PyTorchInterval i{peak, "such programs were measured within 3 % (docs/memory-as-pytorch.md)"};
  double share = 1.03;
  const bool of_transformers = m.family != pytorch::Family::llama;
  LanguageModel of_bench = m;
  of_bench.family = pytorch::Family::llama;
  if (of_transformers && m.loss == pytorch::Loss::in_fp32) of_bench.loss = pytorch::Loss::whole;  // its own
  if (!measured_choices(of_bench) || (of_transformers && ((m.sharded() && !m.routed()) || (m.capped_scores && m.fused_attention)))) {
    i.at_most = std::uint64_t(double(peak) * 1.15);
    i.why =
        "one of its choices was not checked on a card: what it does was read in its source, and published peaks are within 15 % "
        "(docs/memory-as-pytorch.md)";
    return i;
  }
  const bool checkpoints = !(m.keep == engine::Keeping{});
  if (checkpoints && m.sharded()) {
    share = 1.41;
    i.why = "FSDP2 with checkpoints: one program, transformers' Qwen3-0.6B on two GPUs, needed 41 % more";
  } else if (checkpoints) {
    share = 1.07;
    i.why = "what a checkpoint keeps differs between programs: transformers' Llama needed 6 % more";
  }
  const bool grouped = m.kv_heads > 0 && m.kv_heads < m.heads;
  if (grouped && m.fused_attention && m.precision.dtype == DType::f32 && m.compile == pytorch::Compile::none) {
    LanguageModel math = m;
    math.math_attention = true;
    i.at_most = std::max(i.at_most, account(math, workspace).train_peak_bytes);
    i.why +=
        ". In FP32 scaled_dot_product_attention(enable_gqa=True), which transformers calls, has no fused kernel and keeps whole matrices; "
        "the account repeats keys and values for it";
  }
  if (m.routed()) {
    i.why =
        "the program is transformers' (5.24) with PyTorch 2.15, whose experts are grouped products: routing changes no size, dry runs of "
        "it "
        "are within 1 %, and no card measured it. A program that loops over experts holds up to two gradients of a layer's experts more";
    const DType type = m.parameters == pytorch::Parameters::half || m.lora > 0 ? m.precision.dtype : DType::f32;
    if (m.lora == 0) i.at_most += 2 * std::uint64_t(m.experts * 2 * m.ffn * m.width) * size_of(type);
  } else if (of_transformers)
    i.why = "the program is transformers' (5.17) with PyTorch 2.11: dry runs of it are within 1 %, and no card measured it";
  if (m.parameters == pytorch::Parameters::half || of_transformers) {
    LanguageModel upcast = m;
    upcast.loss = pytorch::Loss::in_fp32;
    i.at_most += std::max(account(upcast, workspace).train_peak_bytes, peak) - peak;
    i.why += ". transformers' loss copies the logits to FP32 (--loss fp32), other programs do not";
  }
  i.at_most = std::uint64_t(double(i.at_most) * share);
  return i;
}

std::string options_of(const LanguageModel& m) {
  return fmt::format("--batch {} --len {} --precision {}{} {}", m.batch, m.len, name_of(m.precision),
                     m.fused_attention ? " --attention flash" : " --attention plain", levers_of(m));
}

std::string command_of(const LanguageModel& m, const std::string& model_and_device, std::optional<std::uint64_t> memory) {
  return fmt::format("headroom memory model --as pytorch {}{} {}", model_and_device, memory ? fmt::format(" --memory {}B", *memory) : "",
                     options_of(m));
}

std::string levers_of(const LanguageModel& m) {
  using namespace pytorch;
  std::vector<std::string> words;
  const auto add = [&](bool differs, const std::string& option) {
    if (differs) words.push_back(option);
  };
  add(m.parameters != Parameters::whole, fmt::format("--parameters {}", names_of<Parameters>.of(m.parameters)));
  add(m.lora > 0, fmt::format("--lora {}", m.lora));
  add(m.base != Base::precision, fmt::format("--base {}", names_of<Base>.of(m.base)));
  add(m.adam != Adam::foreach, fmt::format("--adam {}", names_of<Adam>.of(m.adam)));
  add(m.in_backward, "--optimizer-in-backward");
  add(m.loss != Loss::whole, fmt::format("--loss {}", names_of<Loss>.of(m.loss)));
  add(m.selective != Selective::none, fmt::format("--selective {}", names_of<Selective>.of(m.selective)));
  add(!(m.keep == engine::Keeping{}), fmt::format("--keep {}", WordsOf<engine::Keeping>::to(m.keep)));
  add(m.offload_inputs, "--offload-activations");
  add(m.compile != Compile::none, fmt::format("--compile {}", names_of<Compile>.of(m.compile)));
  add(m.accumulate > 1, fmt::format("--accumulate {}", m.accumulate));
  add(m.gpus > 1, fmt::format("--gpus {}", m.gpus));
  add(m.shard != engine::Sharding::none, fmt::format("--shard {}", name_of(m.shard)));
  return joined(words, " ");
}

namespace {

// What a model of transformers has beside a Llama.
void add_family(LanguageModel& m, const engine::Decoder& d) {
  m.family = d.family == "gpt2"              ? pytorch::Family::gpt2
             : d.family.starts_with("gemma") ? pytorch::Family::gemma
             : d.family == "gpt_oss"         ? pytorch::Family::gpt_oss
             : d.has_experts()               ? pytorch::Family::experts
                                             : pytorch::Family::llama;
  if (m.family == pytorch::Family::llama) return;
  m.positions = d.positions;
  m.written_out_gelu = m.family == pytorch::Family::gpt2 && d.first().ffn.function == activation::Function::gelu_tanh;
  m.norms_after = d.norms_after, m.capped_logits = d.logit_softcap > 0;
  m.experts = d.first().ffn.experts, m.experts_of_token = d.first().ffn.experts_of_token;
  m.routing_in_fp32 = d.family == "mixtral";
  for (const engine::DecoderLayer& l : d.layers) {
    m.capped_scores = m.capped_scores || l.attention.softcap > 0;
    m.windows.push_back(l.attention.window);
  }
}

}  // namespace

pytorch::LanguageModel language_model_of(const ModelMemory& asked) {
  const engine::PlainModel c = sizes_of(asked.model);  // check_pytorch_account has found nothing beside them
  LanguageModel m;
  m.vocab = c.vocab;
  m.width = c.width;
  m.ffn = c.ffn;
  m.layers = c.layers;
  m.heads = c.heads;
  m.kv_heads = c.kv_heads;
  m.head_dim = c.head_dim;
  m.tied = c.tied;
  m.fused_attention = asked.attention_family() == "flash";
  m.softmax = asked.as_pytorch.softmax;
  m.silu = asked.as_pytorch.silu;
  m.parameters = asked.as_pytorch.parameters;
  m.qkv_bias = c.qkv_bias;
  m.qk_norm = c.qk_norm;
  m.adam = asked.as_pytorch.adam;
  m.in_backward = asked.as_pytorch.in_backward;
  m.loss = asked.as_pytorch.loss;
  m.selective = asked.as_pytorch.selective;
  m.base = asked.as_pytorch.base;
  m.offload_inputs = asked.as_pytorch.offload_inputs;
  m.compile = asked.as_pytorch.compile;
  m.lora = asked.as_pytorch.lora;
  m.accumulate = asked.as_pytorch.accumulate;
  m.gpus = asked.ranks.count;
  m.shard = asked.ranks.sharding;
  add_family(m, asked.model);
  if (m.family == pytorch::Family::gpt_oss && asked.levers.attention.empty()) m.fused_attention = false;
  if (asked.as_pytorch.no_dropout) m.dropout = false;
  m.until = asked.use == ModelUse::forward     ? pytorch::Until::forward
            : asked.use == ModelUse::gradients ? pytorch::Until::backward
                                               : pytorch::Until::update;
  return m;
}

}  // namespace headroom::studies
