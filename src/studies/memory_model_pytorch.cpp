#include "studies/memory_model_pytorch.h"

#include <algorithm>

#include "base/text.h"
#include "studies/account_table.h"

namespace headroom {

Record memory_model_as_pytorch(const PyTorchModelMemory& asked) {
  const std::uint64_t memory = asked.memory_bytes.value_or(asked.device.memory_bytes);
  const std::uint64_t workspace = asked.workspace_bytes.value_or(pytorch::workspace_bytes(asked.device.sm));
  const auto signed_bytes = [](std::uint64_t b) { return std::int64_t(b); };
  Table rows{"rows",
             "",
             {{"model"},
              {"batch"},
              {"len"},
              {"precision"},
              {"keep"},
              {"params"},
              {"before_backward_bytes", Unit::bytes, Show::detail},
              {"forward_peak_bytes", Unit::bytes},
              {"forward_backward_peak_bytes", Unit::bytes},
              {"train_peak_bytes", Unit::bytes},
              {"held_bytes", Unit::bytes, Show::detail},
              {"fits"}},
             {}};
  for (const auto batch : asked.batches)
    for (const Precision precision : asked.precisions)
      for (const auto len : asked.lens) {
        pytorch::LanguageModel m = asked.model;
        m.batch = batch, m.len = len, m.precision = precision;
        pytorch::LanguageModelAccount a = account(m, workspace, pytorch::Detail::components);
        rows.add({asked.name, batch, len, std::string(name_of(precision)), std::string("everything"), signed_bytes(a.params),
                  signed_bytes(a.before_backward_bytes), signed_bytes(a.forward_peak_bytes), signed_bytes(a.forward_backward_peak_bytes),
                  signed_bytes(a.train_peak_bytes), signed_bytes(a.held_bytes), a.train_peak_bytes <= memory});
        auto& components = a.account.components;
        std::stable_sort(components.begin(), components.end(), [](const Component& x, const Component& y) { return x.taken > y.taken; });
        rows.within.push_back({component_table(components, "components", "")});
      }
  Record r{"",
           fmt::format("Memory of a training step as PyTorch eager: {}, attention {}", asked.name,
                       asked.model.fused_attention ? "fused" : "naive"),
           {}};
  Table at_peak;
  if (!rows.within.empty()) {
    at_peak = rows.within.back().front();
    at_peak.name = "largest", at_peak.title = "The last row's tensors, largest first, equal ones of all blocks together";
    at_peak.rows.resize(std::min<std::size_t>(at_peak.rows.size(), 24));
  }
  r.add({rows});
  if (!at_peak.rows.empty()) r.add({at_peak});
  r.add({Note{fmt::format(
      "As PyTorch eager on {}, by torch.cuda.memory_allocated's count: the caching allocator's blocks replayed, 1 MB is 2^20 bytes, two "
      "cuBLAS "
      "workspaces of {}; AdamW {}; FP32 parameters and gradients, torch.autocast for bf16 and fp16. CUDA context and libraries are not "
      "counted.",
      asked.device.name, bytes_in_words(double(workspace)),
      asked.model.adam == pytorch::Adam::foreach ? "as PyTorch defaults (foreach, one temporary as large as all parameters)" : "fused")}});
  return r;
}

}  // namespace headroom
