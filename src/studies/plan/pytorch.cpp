#include "studies/plan/pytorch.h"

#include <algorithm>
#include <tuple>

#include "base/interrupt.h"
#include "base/text.h"
#include "report/described_table.h"
#include "store/described_json.h"
#include "studies/memory/model_pytorch.h"

namespace headroom::studies {

namespace {

using pytorch::LanguageModel;

void check_asked(const Plan& p) {
  Plan others = p;
  const Plan usual;
  others.batch = usual.batch, others.len = usual.len, others.gpus = usual.gpus, others.per_host = usual.per_host, others.link = usual.link,
  others.levers.precision = usual.levers.precision;
  others.levers.keep = usual.levers.keep, others.memory_bytes = usual.memory_bytes, others.most = usual.most, others.whose = usual.whose;
  const std::string ours = changed_options(others);
  check(ours.empty(), Code::bad_argument, "plan --as pytorch: PyTorch's training step has no such choice; leave {} out", ours);
  engine::check_pytorch_account(p.model);
  check(p.device.kind == DeviceKind::cuda, Code::bad_argument,
        "--device cpu: --as pytorch accounts for PyTorch's CUDA allocator; name a GPU, present or not, as in --device h200");
  check(p.batch % p.gpus == 0, Code::bad_argument, "plan --as pytorch: --batch {} does not divide by --gpus {}", p.batch, p.gpus);
}

std::vector<LanguageModel> steps_of(const Plan& p) {
  ModelMemory like;
  like.model = p.model;
  like.levers.attention = {"flash"};
  LanguageModel m = language_model_of(like);
  m.len = p.len, m.gpus = p.gpus, m.adam = pytorch::Adam::fused;
  std::vector<LanguageModel> all;
  const std::int64_t each = p.batch / p.gpus;
  for (const Precision precision : p.levers.precision.empty() ? std::vector<Precision>{{DType::bf16}, {DType::f32}} : p.levers.precision)
    for (const engine::Keeping& keep : p.levers.keep) {
      const bool known =
          keep.found() && keep.host == 0 && (keep.first() == engine::Keep::everything || keep.first() == engine::Keep::input);
      if (!known || (keep.group != 1 && p.gpus > 1)) continue;
      for (std::int64_t micro = each; micro >= 1; --micro) {
        if (each % micro != 0) continue;
        for (const auto compile : {pytorch::Compile::model, pytorch::Compile::blocks, pytorch::Compile::none}) {
          if (keep.group != 1 && compile != pytorch::Compile::none) continue;
          if (compile == pytorch::Compile::model && (p.gpus > 1 || keep.first() != engine::Keep::everything)) continue;
          for (const auto shard : {engine::Sharding::none, engine::Sharding::gradients, engine::Sharding::everything}) {
            if (p.gpus == 1 && shard != engine::Sharding::none) continue;
            LanguageModel one = m;
            one.precision = precision, one.keep = keep, one.batch = micro, one.accumulate = each / micro;
            one.compile = compile, one.shard = shard;
            all.push_back(one);
          }
        }
      }
    }
  // Least work first: 16 bits, nothing computed again, whole batches, compiled, little sent. No time of PyTorch's is forecast.
  const auto work = [](const LanguageModel& s) {
    return std::tuple(size_of(s.precision.dtype), s.keep.first() != engine::Keep::everything, s.accumulate, -int(s.compile), s.shard);
  };
  std::stable_sort(all.begin(), all.end(), [&](const LanguageModel& a, const LanguageModel& b) { return work(a) < work(b); });
  return all;
}

}  // namespace

Outcome plan_as_pytorch(const Plan& p) {
  check_asked(p);
  const auto all = steps_of(p);
  check(!all.empty(), Code::bad_argument,
        "plan --as pytorch: nothing to choose from; --keep takes everything, input, and groups on one GPU");
  const Room room = room_of(p.device, p.memory_bytes, p.gpus, RunBy::pytorch);
  const std::uint64_t workspace = pytorch::workspace_bytes(p.device.sm);
  std::vector<PyTorchPlanRow> fitting;
  PyTorchPlanRow nearest;
  for (const LanguageModel& m : all) {
    check(!p.stop(), Code::interrupted, "{} before every setting was forecast; what fits is not known", stopped_by());
    const auto a = account(m, workspace);
    const PyTorchPlanRow row{.needed_bytes = room.needed_bytes(a.train_peak_bytes),
                             .keep = m.keep,
                             .compile = m.compile,
                             .precision = m.precision,
                             .micro_batch = m.batch,
                             .micro_batches = m.accumulate,
                             .shard = m.shard,
                             .peak_bytes = a.train_peak_bytes,
                             .reserved_bytes = a.reserved_bytes,
                             .gpus = p.gpus};
    if (room.holds(a.train_peak_bytes)) fitting.push_back(row);
    if (nearest.peak_bytes == 0 || row.peak_bytes < nearest.peak_bytes) nearest = row;
  }
  const bool fits = !fitting.empty();
  Record r{"",
           fmt::format("{} batch {} len {} in {} on {}{}, as PyTorch", p.model.name, p.batch, p.len,
                       bytes_in_words(double(room.memory_bytes)), p.gpus > 1 ? fmt::format("each of {} × ", p.gpus) : "", p.device.name),
           {}};
  r.add("fits", fits).add("memory_bytes", std::int64_t(room.memory_bytes), Unit::bytes);
  r.add("settings", std::int64_t(all.size())).add("settings_that_fit", std::int64_t(fitting.size()));
  if (!room.words.empty()) r.add(Part{Note{room.words}});
  if (!fits) {
    r.add(Part{Note{fmt::format("Nothing fits. The nearest needs {}, {} too many.", bytes_in_words(double(nearest.needed_bytes)),
                                bytes_in_words(double(nearest.needed_bytes - room.memory_bytes)))}});
    fitting = {nearest};
  }
  if (std::int64_t(fitting.size()) > p.most) fitting.resize(std::size_t(p.most));
  r.add(Part{table_of("rows", fits ? "What fits, least work first" : "The nearest", fitting)});
  r.add(Part{
      Note{"Least work first: 16 bits, nothing computed again, whole batches, compiled, little sent. No time of PyTorch's is "
           "forecast. AdamW is fused, attention F.scaled_dot_product_attention; keep input is torch.utils.checkpoint of each block; shard "
           "none is DDP, everything is FSDP2 with every block resharded after forward (torchtitan's default), gradients without. "
           "headroom memory model --as pytorch accounts for one of them by tensor. Where reserved_bytes are above the limit, the allocator "
           "returns unused segments first; close to the limit fragments can be in its way."}});
  return yes_or_no(std::move(r), fits);
}

}  // namespace headroom::studies
