#include "studies/memory/model_pytorch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/interrupt.h"
#include "base/text.h"
#include "engine/model/decoder.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "gpu/architecture.h"
#include "memory/largest_within.h"
#include "pytorch/step_time.h"
#include "report/described_table.h"
#include "studies/memory/account_table.h"
#include "studies/memory/answer.h"
#include "studies/memory/edge_table.h"
#include "studies/memory/live_bytes.h"
#include "studies/memory/model_pytorch_mitigations.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

namespace {

using pytorch::LanguageModel;

Table edges(const std::vector<LanguageModel>& models, std::uint64_t workspace, const Room& room) {
  std::vector<LargestRow> rows;
  for (const LanguageModel& m : models) {
    const auto most = [&](std::int64_t LanguageModel::*which) {
      const bool positions = which == &LanguageModel::len && m.positions > 0;
      const auto peak_at = [&](std::int64_t n) {
        LanguageModel tried = m;
        tried.*which = n;
        return step_peak(tried, workspace);
      };
      return largest_within(positions ? m.positions : (1ll << 31) - 1, room.for_peak(), peak_at, m.*which);
    };
    rows.push_back({.precision = m.precision,
                    .batch = m.batch,
                    .len = m.len,
                    .largest_len = most(&LanguageModel::len),
                    .largest_batch = most(&LanguageModel::batch)});
  }
  return edge_table(rows, room);
}

void check_account(const ModelMemory& asked) {
  check(!asked.measure, Code::bad_argument, "--measure runs this library's step; leave --as pytorch out");
  check(asked.use != ModelUse::inference, Code::bad_argument, "--phase inference: --as pytorch accounts for training, and parts of a step");
  const engine::LeverLists usual;
  engine::LeverLists others = asked.levers;
  others.precision = usual.precision, others.keep = usual.keep, others.attention = usual.attention;
  const std::string ours = asked.ranks.split_tokens ? "--split-tokens" : changed_options(others);
  check(ours.empty(), Code::bad_argument, "--as pytorch: PyTorch's step has no such levers; leave {} out", ours);
  check(asked.levers.attention.size() <= 1, Code::bad_argument, "--as pytorch takes one --attention; {} were given",
        asked.levers.attention.size());
  engine::check_pytorch_account(asked.model);
  check_has_cuda_allocator(asked.device);
}

// What the bytes beside the tensors are for.
Table beside_of(const pytorch::LanguageModelAccount& a, const Room& room, const Device& device, std::int64_t gpus,
                std::string_view the_step) {
  std::vector<PyTorchBesideRow> rows;
  const Overhead over = overhead_of(device, int(gpus), RunBy::pytorch);
  std::uint64_t exact = 0, workspaces = 0, taken = 0;
  for (const Component& c : a.account.components) {
    if (!c.at_peak) continue;
    taken += c.taken;
    (c.phase == name_of(Phase::workspace) ? workspaces : exact) += c.bytes;
  }
  rows.push_back({"tensors at the peak", exact});
  rows.push_back({"cuBLAS workspaces", workspaces});
  rows.push_back({"rounding: 512 bytes, and rests of reused blocks", taken - exact - workspaces});
  rows.push_back({"reserved in segments of 2 and 20 MiB, and not in use at the peak", reserved_bytes(a, room) - a.train_peak_bytes});
  rows.push_back({"CUDA context", over.beside.context_bytes});
  rows.push_back({"libraries: kernels' code, cuBLAS", over.beside.libraries_bytes});
  if (gpus > 1) rows.push_back({"NCCL's buffers", over.communication_bytes});
  return table_of("beside", fmt::format("All bytes on the card in {}", the_step), rows);
}

std::string in_words(const LanguageModel& m) {
  std::string words = m.family == pytorch::Family::llama ? "" : " (transformers' model)";
  words += m.sharded()                           ? " FSDP2"
           : m.shares_update()                   ? " DDP with ZeroRedundancyOptimizer"
           : m.gpus > 1                          ? " DDP"
           : m.compile == pytorch::Compile::none ? " eager"
                                                 : "";
  if (m.compile != pytorch::Compile::none)
    words += fmt::format(", torch.compile of {}", m.compile == pytorch::Compile::model ? "the model" : "each block");
  if (m.gpus > 1) words += fmt::format(", {} of {} GPUs", m.shares_update() ? "the fullest" : "one", m.gpus);
  if (m.lora > 0) words += fmt::format(", {} of rank {}", m.base == pytorch::Base::four_bit ? "QLoRA" : "LoRA", m.lora);
  if (m.in_backward) words += ", optimizer in backward";
  if (m.loss != pytorch::Loss::whole) words += fmt::format(", {} loss", names_of<pytorch::Loss>.of(m.loss));
  if (m.selective != pytorch::Selective::none)
    words += fmt::format(", selective checkpoints ({})", names_of<pytorch::Selective>.of(m.selective));
  if (m.accumulate > 1) words += fmt::format(", {} micro-batches", m.accumulate);
  return words;
}

std::vector<std::string> left_out(const engine::Decoder& d, const LanguageModel& m) {
  std::vector<std::string> all = d.not_counted;
  if (m.compile == pytorch::Compile::none) return all;
  if (m.qkv_bias) all.emplace_back("gradients of the biases of q, k and v, while backward runs");
  if (m.qk_norm) all.emplace_back("what the norms of q and k keep for backward");
  return all;
}

// FSDP2 gathers parameters of one type, so adapters have to be in the precision, too.
bool gathers_adapters(const LanguageModel& m) { return m.lora > 0 && m.parameters == pytorch::Parameters::whole; }

// Where the nearest does not fit either: more GPUs, a shorter length, or a larger card.
std::string what_else_fits(const Combination<LanguageModel>& nearest, const Room& room, const ModelMemory& asked, std::uint64_t workspace) {
  const std::string with = nearest.words.empty() ? "" : nearest.words.size() == 1 ? " with this way" : " with these ways";
  if (const auto n = gpus_that_hold(nearest.setting, asked.device, asked.memory_bytes))
    return fmt::format(" {} such GPUs hold it{} (--gpus {} --shard everything{}).", *n, with, *n,
                       gathers_adapters(nearest.setting) ? " --parameters half" : "");
  if (const auto len = length_that_fits(nearest.setting, room, workspace))
    return fmt::format(" A length of {} fits{} (--len {}).", *len, with, *len);
  return larger_card_in_words(nearest.setting, asked.device, asked.memory_bytes);
}

std::string answer_of(const std::vector<PyTorchModelRow>& rows, const Room& room, const ModelMemory& asked, const LanguageModel& last,
                      const Combination<LanguageModel>& together, std::uint64_t workspace) {
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  std::string answer = rows_fit_in_words(room, asked.device, rows);
  if (rows.back().fits) return answer + ".";
  if (rows.size() > 1) answer += fmt::format("; the last needs {}", words(rows.back().needed_bytes));
  const std::string ways = together.words.empty() ? "as it is" : joined(together.words, " + "),
                    needs = words(room.needed_bytes(together.peak));
  answer += together.fits ? fmt::format(". Least that would fit: {}: {}.", ways, needs)
                          : fmt::format(". No way known here makes it fit; the nearest, {}, needs {}.", ways, needs);
  const auto gpus = gpus_that_hold(last, asked.device, asked.memory_bytes);
  if (gpus) return answer + as_it_is_in_words(gpus, gathers_adapters(last) ? " --parameters half" : "");
  return together.fits ? answer : answer + what_else_fits(together, room, asked, workspace);
}

// The rows that were asked for, with what is said of the last one.
struct Accounts {
  std::vector<PyTorchModelRow> rows{};
  std::vector<std::vector<Table>> within{};  // each row's components
  std::vector<LanguageModel> models{};
  std::set<std::string> why_more{};  // why a program's peak may be more than a row's
  std::optional<Table> beside{};
  std::optional<Chart> live{};
  pytorch::StepTime time{};
};

PyTorchModelRow row_of(const ModelMemory& asked, const LanguageModel& m, const pytorch::LanguageModelAccount& a, const Room& room) {
  PyTorchModelRow row{.model = asked.model.name,
                      .batch = m.batch,
                      .len = m.len,
                      .precision = m.precision,
                      .phase = asked.use,
                      .keep = m.keep,
                      .parameters = m.parameters,
                      .adam = m.adam,
                      .in_backward = m.in_backward,
                      .loss = m.loss,
                      .selective = m.selective,
                      .offload_inputs = m.offload_inputs,
                      .compile = m.compile,
                      .base = m.base,
                      .lora = m.lora,
                      .accumulate = m.accumulate,
                      .gpus = m.gpus,
                      .shard = m.shard,
                      .params = a.params,
                      .before_backward_bytes = a.before_backward_bytes,
                      .forward_peak_bytes = a.forward_peak_bytes,
                      .needed_bytes = room.needed_bytes(a.train_peak_bytes, a.pinned_bytes),
                      .held_bytes = a.held_bytes,
                      .reserved_bytes = reserved_bytes(a, room),
                      .host_bytes = a.host_bytes,
                      .fits = room.holds(a.train_peak_bytes, a.pinned_bytes)};
  if (asked.use != ModelUse::forward) row.forward_backward_peak_bytes = a.forward_backward_peak_bytes;
  if (asked.use == ModelUse::train) row.train_peak_bytes = a.train_peak_bytes;
  return row;
}

void add_account(Accounts& all, const ModelMemory& asked, const LanguageModel& m, const Room& room, std::uint64_t workspace,
                 std::string_view the_step) {
  pytorch::LanguageModelAccount a = account(m, workspace, pytorch::Detail::components);
  remember_peak(m, workspace, a.train_peak_bytes);
  all.time = step_time(m, asked.device);
  const PyTorchInterval open = interval_of(m, a.train_peak_bytes, workspace);
  all.why_more.insert(open.why);
  PyTorchModelRow row = row_of(asked, m, a, room);
  row.at_most_bytes = open.at_most;
  row.ms = all.time.ms, row.ms_low = all.time.ms_low, row.ms_high = all.time.ms_high, row.ms_by = all.time.ms_by;
  all.rows.push_back(std::move(row));
  all.models.push_back(m);
  all.live = live_bytes_chart(
      a.account, [&](std::size_t i) { return a.account.timeline[i].what; }, room.for_peak());
  auto& components = a.account.components;
  std::stable_sort(components.begin(), components.end(),
                   [](const Component& x, const Component& y) { return std::pair(x.at_peak, x.taken) > std::pair(y.at_peak, y.taken); });
  all.within.push_back({component_table(components, "components", "")});
  if (asked.use == ModelUse::train) all.beside = beside_of(a, room, asked.device, m.gpus, the_step);
}

Accounts accounts_of(const ModelMemory& asked, const LanguageModel& model, const Room& room, std::uint64_t workspace, std::size_t row_count,
                     std::string_view the_step) {
  Accounts all;
  for (const auto batch : asked.batches)
    for (const Precision precision : asked.levers.precision)
      for (const engine::Keeping& keep : asked.levers.keep)
        for (const auto len : asked.lens) {
          LanguageModel m = model;
          m.keep = keep;
          m.batch = batch;
          m.len = len;
          m.precision = precision;
          stop_if_interrupted();
          asked.progress(0.5 * double(all.rows.size()) / double(row_count), fmt::format("row {} of {}", all.rows.size() + 1, row_count));
          add_account(all, asked, m, room, workspace, the_step);
        }
  return all;
}

Table largest_tensors(Table components, std::string_view the_step) {
  components.name = "largest";
  components.title = fmt::format("Tensors of {}: those at the peak first, then by size; equal tensors of all blocks share a row", the_step);
  components.rows.resize(std::min<std::size_t>(components.rows.size(), 24));
  return components;
}

// Which parameters, gradients and moments have which dtype, and what is gathered.
std::string dtypes_in_words(const LanguageModel& m) {
  const bool half = m.parameters == pytorch::Parameters::half;
  if (m.sharded() && m.base == pytorch::Base::four_bit)
    return "FSDP2 shards adapters, norms and the packed weights, which are stored as numbers of the precision (bnb_4bit_quant_storage); "
           "scales are whole on every GPU";
  if (m.sharded() && m.lora > 0) return "FSDP2 shards frozen weights and adapters, both in the precision";
  if (m.sharded())
    return "FSDP2 shards FP32 parameters, gathers them in the precision and scatters gradients in FP32, the root's weights kept after "
           "forward";
  if (m.lora > 0 && half) return "frozen weights and adapters in the precision, without torch.autocast";
  if (m.lora > 0) return "frozen weights in the precision, adapters in FP32, torch.autocast for bf16 and fp16";
  if (half) return "parameters, gradients and moments in the precision, without torch.autocast";
  return "FP32 parameters and gradients, torch.autocast for bf16 and fp16";
}

void add_remarks(Record& r, const Accounts& all, const ModelMemory& asked, const LanguageModel& model, const Room& room,
                 std::uint64_t workspace) {
  const auto note = [&](const std::string& words) {
    if (!words.empty()) r.add({Note{words}});
  };
  const LanguageModel& last = all.models.back();
  note(
      fmt::format("As PyTorch on {}, by torch.cuda.memory_allocated's count: the caching allocator's blocks replayed, 1 MB is 2^20 bytes, "
                  "two cuBLAS workspaces of {}; {}; {}. The peak is without the CUDA context and libraries; needed is with them. {}",
                  asked.device.name, bytes_in_words(double(workspace)), in_words(model.adam), dtypes_in_words(model), about_reserved));
  if (asked.use == ModelUse::train) r.add({Note{in_words(last, all.time, all.rows.back().fits)}});
  if (last.precision.dtype == DType::bf16 && !computes_bf16(asked.device))
    note(
        fmt::format("{} has no bf16 arithmetic: PyTorch emulates it there, and its fused attention takes fp16 and FP32 alone. "
                    "Programs for this card train in fp16, with a GradScaler: --precision fp16.",
                    asked.device.name));
  note(room.words);
  for (const std::string& why : all.why_more)
    r.add({Note{fmt::format(
        "A description does not say all of a program. Its peak is that of the program in bench/peers or up to at_most_bytes: {}.", why)}});
  const auto unsure = std::count_if(all.rows.begin(), all.rows.end(),
                                    [&](const PyTorchModelRow& row) { return row.fits && !room.holds(row.at_most_bytes); });
  if (unsure > 0 && all.rows.size() > 1) note(fmt::format("{} of the rows that fit would not with at_most_bytes.", unsure));
  for (const std::string& what : left_out(asked.model, model)) note(fmt::format("Not in the account: {}.", what));
  note(engine::past_its_positions(asked.model, std::ranges::max(asked.lens)));
}

}  // namespace

std::uint64_t reserved_bytes(const pytorch::LanguageModelAccount& a, const Room& room) {
  return std::min(a.reserved_bytes, std::max(a.train_peak_bytes, room.for_peak()));
}

Outcome memory_model_as_pytorch(const ModelMemory& asked) {
  check_account(asked);
  const LanguageModel model = language_model_of(asked);
  const Room room = room_of(asked.device, asked.memory_bytes, asked.ranks.count, RunBy::pytorch);
  const std::uint64_t workspace = asked.as_pytorch.workspace_bytes.value_or(pytorch::workspace_bytes(asked.device.sm));
  const std::size_t row_count = asked.batches.size() * asked.levers.precision.size() * asked.levers.keep.size() * asked.lens.size();
  const std::string_view the_step = row_count == 1 ? "the step" : "the last row's step";
  Accounts all = accounts_of(asked, model, room, workspace, row_count, the_step);
  const bool fits = std::any_of(all.rows.begin(), all.rows.end(), [](const PyTorchModelRow& row) { return row.fits; });
  Table rows = table_of("rows", "", all.rows);
  rows.within = std::move(all.within);
  if (model.gpus > 1) rows.show("gpus", Show::always), rows.show("shard", Show::always);
  const LanguageModel& last = all.models.back();
  asked.progress(0.5, "searching the least that fits");
  const Combination<LanguageModel> together = least_that_fits(
      last, levers_of_pytorch(last), [&](const LanguageModel& one) { return peak_or_none(one, workspace); },
      [&](std::uint64_t peak) { return room.holds(peak); });

  Record r{"", answer_of(all.rows, room, asked, last, together, workspace), {}};
  r.add({Note{fmt::format("Memory of {} as PyTorch{}: {}, attention {}",
                          asked.use == ModelUse::train ? "a training step" : names_of<ModelUse>.of(asked.use), in_words(model),
                          asked.model.name, model.fused_attention ? "fused" : "naive")}});
  if (const std::string preset = engine::preset_in_words(asked.model); !preset.empty()) r.add({Note{preset}});
  const Table at_peak = largest_tensors(rows.within.back().front(), the_step);
  r.add({std::move(rows)});
  if (all.live) r.add({*std::move(all.live)});
  if (!at_peak.rows.empty()) r.add({at_peak});
  if (all.beside) r.add({*std::move(all.beside)});
  if (!all.rows.back().fits && !together.words.empty())
    r.add({Note{fmt::format("{}, one by one: {}", together.fits ? "The bytes of the least that would fit" : "The bytes of the nearest",
                            command_of(together.setting, asked.model_and_device, asked.memory_bytes))}});
  r.add({edges(all.models, workspace, room)}).add({mitigations_of(last, asked, workspace, together, the_step)});
  add_remarks(r, all, asked, model, room, workspace);
  return yes_or_no(std::move(r), fits);
}

}  // namespace headroom::studies
