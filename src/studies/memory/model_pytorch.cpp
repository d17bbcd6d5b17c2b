#include "studies/memory/model_pytorch.h"

#include <algorithm>

#include "base/text.h"
#include "engine/forecast.h"
#include "studies/memory/account_table.h"

namespace headroom {

namespace {

using pytorch::LanguageModel;

std::uint64_t step_peak(const LanguageModel& m, std::uint64_t workspace) { return account(m, workspace).train_peak_bytes; }

Table edges(const std::vector<LanguageModel>& models, std::uint64_t workspace, const Room& room) {
  Table t{"edge",
          fmt::format("Where {} end", bytes_in_words(double(room.memory_bytes))),
          {{"precision"}, {"batch"}, {"len"}, {"largest_len"}, {"largest_batch"}},
          {}};
  for (const LanguageModel& m : models) {
    const auto most = [&](std::int64_t LanguageModel::*which) {
      return largest((1ll << 31) - 1, [&](std::int64_t n) {
        LanguageModel tried = m;
        tried.*which = n;
        return room.holds(step_peak(tried, workspace));
      });
    };
    t.add({std::string(name_of(m.precision)), m.batch, m.len, most(&LanguageModel::len), most(&LanguageModel::batch)});
  }
  return t;
}

engine::Recipe ours(const LanguageModel& m) {
  engine::ModelConfig c;
  c.name = "as PyTorch's";
  c.vocab = m.vocab;
  c.width = m.width;
  c.layers = m.layers;
  c.heads = m.heads;
  c.ffn = m.ffn;
  c.tied = m.tied;
  c.kv_heads = m.kv_heads ? m.kv_heads : m.heads;
  c.head_dim = m.head_dim ? m.head_dim : m.width / m.heads;
  return {c, m.batch, m.len, m.precision};
}

Table mitigations(const LanguageModel& m, const PyTorchModelMemory& asked, std::uint64_t workspace) {
  Table t{"mitigations",
          "Ways to save bytes in the last row's step, and their costs",
          {{"instead"}, {"train_peak_bytes", Unit::bytes}, {"saves_bytes", Unit::bytes}, {"costs"}},
          {}};
  const auto now = std::int64_t(step_peak(m, workspace));
  t.add({std::string("as it is"), now, std::int64_t(0), std::string()});
  const auto add = [&](const char* what, std::uint64_t peak, const std::string& cost) {
    t.add({std::string(what), std::int64_t(peak), now - std::int64_t(peak), cost});
  };
  const auto consider = [&](const char* what, auto change, const std::string& cost) {
    LanguageModel other = m;
    change(other);
    add(what, step_peak(other, workspace), cost);
  };
  if (!m.fused_attention)
    consider(
        "F.scaled_dot_product_attention", [](LanguageModel& o) { o.fused_attention = true; }, "scores once more in backward");
  if (m.precision.dtype == DType::f32)
    consider(
        "torch.autocast in bf16", [](LanguageModel& o) { o.precision = {DType::bf16}; },
        "8 bits of mantissa in matmuls; copies of the weights");
  if (m.adam == pytorch::Adam::foreach)
    consider(
        "AdamW(fused=True)", [](LanguageModel& o) { o.adam = pytorch::Adam::fused; }, "nothing");
  if (m.batch > 1)
    consider(
        "half the batch, gradients accumulated", [](LanguageModel& o) { o.batch = (o.batch + 1) / 2; }, "twice as many, smaller launches");
  engine::Recipe here = ours(m);
  for (const auto keep : {engine::Keep::everything, engine::Keep::input}) {
    here.keep = {keep};
    add(keep == engine::Keep::everything ? "this library's step" : "this library's step, --keep input",
        engine::forecast_peak(here, asked.device, 1),
        keep == engine::Keep::everything ? "nothing: no N² matrices, no temporaries of the optimiser" : "every block's forward once more");
  }
  return t;
}

}  // namespace

Answer memory_model_as_pytorch(const PyTorchModelMemory& asked) {
  const Room room = room_of(asked.device, asked.memory_bytes);
  bool fits = false;
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
              {"needed_bytes", Unit::bytes},
              {"held_bytes", Unit::bytes, Show::detail},
              {"fits"}},
             {}};
  std::vector<LanguageModel> models;
  for (const auto batch : asked.batches)
    for (const Precision precision : asked.precisions)
      for (const auto len : asked.lens) {
        pytorch::LanguageModel m = asked.model;
        m.batch = batch;
        m.len = len;
        m.precision = precision;
        models.push_back(m);
        pytorch::LanguageModelAccount a = account(m, workspace, pytorch::Detail::components);
        rows.add({asked.name, batch, len, std::string(name_of(precision)), std::string("everything"), signed_bytes(a.params),
                  signed_bytes(a.before_backward_bytes), signed_bytes(a.forward_peak_bytes), signed_bytes(a.forward_backward_peak_bytes),
                  signed_bytes(a.train_peak_bytes), signed_bytes(room.needed_bytes(a.train_peak_bytes)), signed_bytes(a.held_bytes),
                  room.holds(a.train_peak_bytes)});
        fits = fits || room.holds(a.train_peak_bytes);
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
    at_peak.name = "largest";
    at_peak.title = "The last row's tensors, largest first, equal ones of all blocks together";
    at_peak.rows.resize(std::min<std::size_t>(at_peak.rows.size(), 24));
  }
  r.add({rows});
  if (!at_peak.rows.empty()) r.add({at_peak});
  if (!models.empty()) r.add({edges(models, workspace, room)}).add({mitigations(models.back(), asked, workspace)});
  r.add({Note{fmt::format(
      "As PyTorch eager on {}, by torch.cuda.memory_allocated's count: the caching allocator's blocks replayed, 1 MB is 2^20 bytes, two "
      "cuBLAS "
      "workspaces of {}; AdamW {}; FP32 parameters and gradients, torch.autocast for bf16 and fp16. The peak is without the CUDA context "
      "and libraries; needed is with them.",
      asked.device.name, bytes_in_words(double(workspace)),
      asked.model.adam == pytorch::Adam::foreach ? "as PyTorch defaults (foreach, one temporary as large as all parameters)" : "fused")}});
  if (!room.words.empty()) r.add({Note{room.words}});
  return {std::move(r), fits};
}

}  // namespace headroom
