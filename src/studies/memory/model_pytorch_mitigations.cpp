#include "studies/memory/model_pytorch_mitigations.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/forecast/forecast.h"
#include "report/described_table.h"
#include "studies/memory/pytorch_peak.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

using pytorch::LanguageModel;

std::vector<Lever<LanguageModel>> levers_of_pytorch(const LanguageModel& now) {
  using engine::Keep;
  const auto micro_batches = [](LanguageModel& m) {
    if (m.batch == 1 || m.in_backward) return false;
    m.accumulate *= m.batch, m.batch = 1;
    return true;
  };
  const auto adapt = [](LanguageModel& m, pytorch::Parameters adapters) {
    m.lora = 16, m.parameters = adapters, m.in_backward = false;
    if (m.adam > pytorch::Adam::eight_bit) m.adam = pytorch::Adam::fused;
  };
  const auto trains = [](const LanguageModel& m) { return m.until == pytorch::Until::update; };
  return {
      {"scaled_dot_product_attention (--attention flash)", [](LanguageModel& m) { return !std::exchange(m.fused_attention, true); }},
      {"AdamW(fused=True) (--adam fused)",
       [=](LanguageModel& m) { return trains(m) && std::exchange(m.adam, pytorch::Adam::fused) == pytorch::Adam::foreach; }},
      {"Liger's fused loss (--loss fused)",
       [](LanguageModel& m) {
         return m.compile != pytorch::Compile::model && std::exchange(m.loss, pytorch::Loss::fused) == pytorch::Loss::whole;
       }},
      {"FSDP2 (--shard everything)",
       [](LanguageModel& m) {
         if (m.gpus == 1 || m.shard == engine::Sharding::everything || (m.lora > 0 && m.parameters == pytorch::Parameters::whole))
           return false;
         m.shard = engine::Sharding::everything;
         return true;
       }},
      {"FSDP2 with adapters in 16 bits (--shard everything --parameters half)",  // it gathers parameters of one type
       [](LanguageModel& m) {
         if (m.gpus == 1 || m.sharded() || m.lora == 0 || m.parameters == pytorch::Parameters::half) return false;
         m.shard = engine::Sharding::everything, m.parameters = pytorch::Parameters::half;
         return true;
       }},
      {"torch.autocast in bf16 (--precision bf16)",
       [](LanguageModel& m) {
         if (m.precision.dtype != DType::f32) return false;
         m.precision = {DType::bf16};
         return true;
       }},
      {"checkpointed blocks (--keep input)",
       [](LanguageModel& m) {
         if (!(m.keep == engine::Keeping{}) || m.until == pytorch::Until::forward || m.compile == pytorch::Compile::model) return false;
         m.keep = {Keep::input}, m.selective = pytorch::Selective::none;
         return true;
       }},
      {"parameters in bf16 (--parameters half)",
       [](LanguageModel& m) {
         return m.lora == 0 && size_of(m.precision.dtype) == 2 &&
                std::exchange(m.parameters, pytorch::Parameters::half) == pytorch::Parameters::whole;
       }},
      {"8-bit AdamW (--adam 8bit)",
       [=](LanguageModel& m) { return trains(m) && std::exchange(m.adam, pytorch::Adam::eight_bit) < pytorch::Adam::eight_bit; }},
      {"paged 8-bit AdamW in backward (--adam paged-8bit --optimizer-in-backward)",
       [=](LanguageModel& m) {
         if (!trains(m) || m.gpus > 1 || m.accumulate > 1 || m.in_backward || m.lora > 0) return false;
         m.adam = pytorch::Adam::paged, m.in_backward = true;
         return true;
       }},
      {"LoRA of rank 16 (--lora 16)",
       [=](LanguageModel& m) {
         if (!trains(m) || m.lora > 0 || m.sharded() || m.compile != pytorch::Compile::none) return false;
         adapt(m, pytorch::Parameters::whole);
         return true;
       }},
      {"LoRA of rank 16 in 16 bits (--lora 16 --parameters half)",
       [=](LanguageModel& m) {
         if (!trains(m) || m.lora > 0 || !m.sharded() || m.compile != pytorch::Compile::none) return false;
         adapt(m, pytorch::Parameters::half);
         return true;
       }},
      {fmt::format("micro-batches of 1 (--batch 1 --accumulate {})", now.batch * now.accumulate), micro_batches},
      {"frozen weights in 4 bits, QLoRA (--base 4bit)",
       [](LanguageModel& m) {
         return m.lora > 0 && size_of(m.precision.dtype) == 2 && std::exchange(m.base, pytorch::Base::four_bit) == pytorch::Base::precision;
       }},
  };
}

Table mitigations_of(const LanguageModel& m, const ModelMemory& asked, std::uint64_t workspace, const Combination<LanguageModel>& together,
                     std::string_view the_step) {
  std::vector<PyTorchSavingRow> rows;
  const auto now = std::int64_t(step_peak(m, workspace));
  rows.push_back({.instead = "as it is", .peak_bytes = now, .saves_bytes = 0});
  const auto add = [&](const std::string& what, std::uint64_t peak, const std::string& cost) {
    if (is_noise(std::uint64_t(now), peak)) return;
    rows.push_back({.instead = what, .peak_bytes = std::int64_t(peak), .saves_bytes = now - std::int64_t(peak), .costs = cost});
  };
  const auto consider = [&](const char* what, auto change, const std::string& cost) {
    LanguageModel other = m;
    change(other);
    if (const auto peak = peak_or_none(other, workspace)) add(what, *peak, cost);
  };
  if (!m.fused_attention)
    consider(
        "F.scaled_dot_product_attention", [](LanguageModel& o) { o.fused_attention = true; }, "scores once more in backward");
  if (m.precision.dtype == DType::f32)
    consider(
        "torch.autocast in bf16", [](LanguageModel& o) { o.precision = {DType::bf16}; },
        "8 bits of mantissa in matmuls; copies of the weights");
  if (m.adam == pytorch::Adam::foreach && m.until == pytorch::Until::update)
    consider(
        "AdamW(fused=True)", [](LanguageModel& o) { o.adam = pytorch::Adam::fused; }, "nothing");
  if (m.batch > 1)
    consider(
        "half the batch, gradients accumulated", [](LanguageModel& o) { o.batch = (o.batch + 1) / 2, o.accumulate *= 2; },
        "twice as many, smaller launches");
  if (m.keep == engine::Keeping{} && m.until != pytorch::Until::forward)
    consider(
        "each block checkpointed (--keep input)", [](LanguageModel& o) { o.keep = {engine::Keep::input}; },
        "every block's forward once more");
  if (m.adam != pytorch::Adam::eight_bit && m.until == pytorch::Until::update)
    consider(
        "bitsandbytes' 8-bit AdamW (--adam 8bit)", [](LanguageModel& o) { o.adam = pytorch::Adam::eight_bit; },
        "moments rounded to 8 bits");
  if (m.gpus > 1 && m.shard == engine::Sharding::none)
    consider(
        "ZeroRedundancyOptimizer (--shard optimizer)", [](LanguageModel& o) { o.shard = engine::Sharding::optimizer; },
        "each parameter sent once more, after its update");
  if (m.shard != engine::Sharding::everything && m.lora == 0 && m.keep.group == 1) {
    const std::int64_t gpus = std::max<std::int64_t>(m.gpus, m.gpus > 1 ? 1 : 8);
    consider(
        m.gpus > 1 ? "FSDP2, every block resharded (--shard everything)"
                   : "8 GPUs with this batch each, FSDP2 (--gpus 8 --shard everything)",
        [&](LanguageModel& o) { o.gpus = gpus, o.shard = engine::Sharding::everything; },
        "weights gathered twice, gradients scattered once");
  }
  if (together.words.size() > 1)
    add("together: " + joined(together.words, " + "), together.peak, together.fits ? "the least that fits" : "does not fit either");
  if (m.lora > 0 || !why_no_kernels(asked.device).empty())
    return table_of("mitigations", fmt::format("Ways to save bytes in {}, and their costs", the_step), rows);
  engine::Recipe here{asked.model, m.batch, m.len, m.precision};
  here.purpose = purpose_of(asked.use);
  here.ranks = asked.ranks;
  for (const auto keep : {engine::Keep::everything, engine::Keep::input}) {
    here.keep = {keep};
    add(keep == engine::Keep::everything ? "this library's step" : "this library's step, --keep input",
        engine::forecast_peak(here, asked.device, 1),
        keep == engine::Keep::everything ? "nothing: no N² matrices, no temporaries of the optimiser" : "every block's forward once more");
  }
  return table_of("mitigations", fmt::format("Ways to save bytes in {}, and their costs", the_step), rows);
}

}  // namespace headroom::studies
