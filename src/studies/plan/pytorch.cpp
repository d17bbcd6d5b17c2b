#include "studies/plan/pytorch.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/interrupt.h"
#include "base/text.h"
#include "base/threads.h"
#include "engine/model/models.h"
#include "pytorch/step_time.h"
#include "report/described_table.h"
#include "store/described_json.h"
#include "studies/memory/answer.h"
#include "studies/memory/model_pytorch.h"

namespace headroom::studies {

namespace {

using pytorch::LanguageModel;

void check_asked(const Plan& p) {
  Plan others = p;
  const Plan usual;
  others.batch = usual.batch, others.len = usual.len, others.gpus = usual.gpus, others.per_host = usual.per_host, others.link = usual.link,
  others.levers.precision = usual.levers.precision;
  others.levers.keep = usual.levers.keep, others.levers.attention = usual.levers.attention, others.memory_bytes = usual.memory_bytes,
  others.most = usual.most, others.whose = usual.whose;
  const std::string ours = changed_options(others);
  check(ours.empty(), Code::bad_argument, "plan --as pytorch: PyTorch's training step has no such choice; leave {} out", ours);
  engine::check_pytorch_account(p.model);
  check_has_cuda_allocator(p.device);
  check(p.batch % p.gpus == 0, Code::bad_argument,
        "plan --as pytorch: --batch {} is of all GPUs together and does not divide by --gpus {}; make it a multiple, as --batch {}",
        p.batch, p.gpus, (p.batch / p.gpus + 1) * p.gpus);
}

// The 16-bit type that the ways train in.
DType half_of(const Device& d) { return engine::usual_precision(d).dtype; }

std::vector<LanguageModel> steps_of(const Plan& p) {
  ModelMemory like;
  like.model = p.model;
  if (p.levers.attention.size() == 1)
    like.levers.attention = p.levers.attention;
  else if (p.model.family != "gpt_oss")
    like.levers.attention = {"flash"};  // its sinks have no fused kernel
  LanguageModel m = language_model_of(like);
  m.len = p.len, m.gpus = p.gpus, m.adam = pytorch::Adam::fused;
  std::vector<LanguageModel> all;
  const std::int64_t each = p.batch / p.gpus;
  for (const Precision precision :
       p.levers.precision.empty() ? std::vector<Precision>{{half_of(p.device)}, {DType::f32}} : p.levers.precision)
    for (const engine::Keeping& keep : p.levers.keep) {
      const bool known =
          keep.found() && keep.host == 0 && (keep.first() == engine::Keep::everything || keep.first() == engine::Keep::input);
      if (!known || (keep.group != 1 && p.gpus > 1)) continue;
      for (std::int64_t micro = each; micro >= 1; --micro) {
        if (each % micro != 0) continue;
        for (const auto compile : {pytorch::Compile::model, pytorch::Compile::blocks, pytorch::Compile::none}) {
          const bool compiles = keep.group == 1 && m.family == pytorch::Family::llama && m.fused_attention;
          if (!compiles && compile != pytorch::Compile::none) continue;
          if (compile == pytorch::Compile::model && (p.gpus > 1 || keep.first() != engine::Keep::everything)) continue;
          for (const auto shard :
               {engine::Sharding::none, engine::Sharding::optimizer, engine::Sharding::gradients, engine::Sharding::everything}) {
            if (p.gpus == 1 && shard != engine::Sharding::none) continue;
            LanguageModel one = m;
            one.precision = precision, one.keep = keep, one.batch = micro, one.accumulate = each / micro;
            one.compile = compile, one.shard = shard;
            all.push_back(one);
          }
        }
      }
    }
  // Least work first: 16 bits, nothing recomputed, whole batches, compiled, little sent.
  const auto work = [](const LanguageModel& s) {
    return std::tuple(size_of(s.precision.dtype), s.keep.first() != engine::Keep::everything, s.accumulate, -int(s.compile), s.shard);
  };
  std::stable_sort(all.begin(), all.end(), [&](const LanguageModel& a, const LanguageModel& b) { return work(a) < work(b); });
  return all;
}

// The ways in which people train a model with PyTorch, those that change least of the training first.
struct TrainingWay {
  const char* name;
  pytorch::Parameters parameters;
  pytorch::Adam adam;
  bool in_backward;
  std::int64_t lora;
  pytorch::Base base;
};
constexpr TrainingWay training_ways[] = {
    {"all parameters, FP32, AdamW", pytorch::Parameters::whole, pytorch::Adam::fused, false, 0, pytorch::Base::precision},
    {"all parameters, bf16, AdamW", pytorch::Parameters::half, pytorch::Adam::fused, false, 0, pytorch::Base::precision},
    {"all parameters, bf16, 8-bit AdamW", pytorch::Parameters::half, pytorch::Adam::eight_bit, false, 0, pytorch::Base::precision},
    {"all parameters, bf16, paged 8-bit AdamW in backward", pytorch::Parameters::half, pytorch::Adam::paged, true, 0,
     pytorch::Base::precision},
    {"LoRA of rank 16", pytorch::Parameters::whole, pytorch::Adam::fused, false, 16, pytorch::Base::precision},
    {"QLoRA of rank 16", pytorch::Parameters::whole, pytorch::Adam::fused, false, 16, pytorch::Base::four_bit},
};

struct BestOfWay {
  const TrainingWay* way;
  LanguageModel step;
  pytorch::LanguageModelAccount account;
  bool fits = false;
  pytorch::StepTime time{};
  LanguageModel smallest{};  // with the options that need least
  std::uint64_t smallest_peak = 0;
  PyTorchInterval open{};
};

// With parameters, adapters and frozen weights as the way has them. FSDP2 gathers parameters of one type.
LanguageModel step_of(const TrainingWay& way, const Plan& p, LanguageModel like, engine::Sharding shard) {
  like.compile = pytorch::Compile::none, like.shard = shard;
  like.precision = {half_of(p.device)}, like.adam = way.adam, like.in_backward = way.in_backward;
  like.lora = way.lora, like.base = way.base;
  like.parameters = like.sharded() && way.lora > 0 ? pytorch::Parameters::half : way.parameters;
  return like;
}

// QLoRA sends least where each GPU holds all weights, in 4 bits.
std::vector<engine::Sharding> shards_of(const TrainingWay& way, const Plan& p) {
  using enum engine::Sharding;
  if (p.gpus == 1) return {none};
  if (way.base == pytorch::Base::four_bit) return {none, everything};
  return {everything};
}

// The least work with which a way fits: nothing made again before checkpoints, whole batches before parts. Where none fits, the smallest.
// The smallest is among the checkpoints with a fused loss, whole or one sequence at a time: beyond the first that fits those alone are tried.
std::optional<BestOfWay> best_of(const TrainingWay& way, const Plan& p, const LanguageModel& like, const Room& room,
                                 std::uint64_t workspace) {
  std::optional<BestOfWay> least, fitting;
  if (way.parameters == pytorch::Parameters::half && !computes_bf16(p.device)) return least;  // no GradScaler takes fp16 gradients
  const std::int64_t each = p.batch / p.gpus;
  for (const auto loss : {pytorch::Loss::whole, pytorch::Loss::fused})
    for (const auto keep : {engine::Keep::everything, engine::Keep::input})
      for (std::int64_t micro = each; micro >= 1; --micro)
        for (const auto shard : shards_of(way, p)) {
          const bool small = loss == pytorch::Loss::fused && keep == engine::Keep::input && (micro == each || micro == 1);
          if (each % micro != 0 || (loss == pytorch::Loss::whole && keep == engine::Keep::input) || (fitting && !small)) continue;
          LanguageModel m = step_of(way, p, like, shard);
          m.loss = loss, m.keep = {keep}, m.batch = micro, m.accumulate = each / micro;
          try {
            check(m);
          } catch (const Error&) { continue; }
          if (p.stop()) return {};
          BestOfWay tried{&way, m, account(m, workspace)};
          tried.fits = room.holds(tried.account.train_peak_bytes, tried.account.pinned_bytes);
          if (tried.fits && !fitting) fitting = tried;
          if (!least || tried.account.train_peak_bytes < least->account.train_peak_bytes) least = std::move(tried);
        }
  if (!least) return {};
  const LanguageModel smallest = least->step;
  const std::uint64_t smallest_peak = least->account.train_peak_bytes;
  BestOfWay best = fitting ? *std::move(fitting) : *std::move(least);
  best.smallest = smallest, best.smallest_peak = smallest_peak;
  best.open = interval_of(best.step, best.account.train_peak_bytes, workspace);
  return best;
}

// What was forecast, in the order that it was asked: the ways, and every setting of FP32 parameters and AdamW.
struct SearchOfPyTorch {
  std::vector<BestOfWay> ways;
  std::vector<PyTorchPlanRow> settings;
  std::size_t done = 0, asked = 0;
  bool whole() const { return done == asked; }  // else it was stopped
  std::string how_far() const { return fmt::format("{} of {} forecasts", done, asked); }
};

PyTorchPlanRow row_of(const LanguageModel& m, const Room& room, std::uint64_t workspace) {
  const auto a = account(m, workspace);
  return {.needed_bytes = room.needed_bytes(a.train_peak_bytes, a.pinned_bytes),
          .keep = m.keep,
          .compile = m.compile,
          .precision = m.precision,
          .micro_batch = m.batch,
          .micro_batches = m.accumulate,
          .shard = m.shard,
          .peak_bytes = a.train_peak_bytes,
          .reserved_bytes = reserved_bytes(a, room),
          .gpus = m.gpus,
          .at_most_bytes = interval_of(m, a.train_peak_bytes, workspace).at_most};
}

// Shared out to every core, the ways first: each of them takes longest.
SearchOfPyTorch searched(const Plan& p, const std::vector<LanguageModel>& steps, const Room& room, std::uint64_t workspace) {
  const auto half = [&](Precision one) { return one.dtype == half_of(p.device); };
  const auto& asked = p.levers.precision;
  const std::size_t way_count = asked.empty() || std::any_of(asked.begin(), asked.end(), half) ? std::size(training_ways) : 0;
  SearchOfPyTorch s{{}, {}, 0, way_count + steps.size()};
  std::vector<std::optional<BestOfWay>> ways(way_count);
  std::vector<std::optional<PyTorchPlanRow>> settings(steps.size());
  Threads threads;
  std::mutex saying;
  threads.share(std::int64_t(s.asked), [&](std::int64_t i, int) {
    const auto at = std::size_t(i);
    if (p.stop()) return;
    if (at < way_count) {
      ways[at] = best_of(training_ways[at], p, steps.front(), room, workspace);
      if (ways[at]) ways[at]->time = step_time(ways[at]->step, p.device);
    } else
      settings[at - way_count] = row_of(steps[at - way_count], room, workspace);
    if (p.stop()) return;
    const std::lock_guard lock(saying);
    ++s.done;
    p.progress(double(s.done) / double(s.asked), s.how_far());
  });
  for (auto& one : ways)
    if (one) s.ways.push_back(std::move(*one));
  for (auto& one : settings)
    if (one) s.settings.push_back(*one);
  return s;
}

std::string answer_of(const Plan& p, const Room& room, const SearchOfPyTorch& search, std::uint64_t workspace) {
  const auto& ways = search.ways;
  const auto fits = std::find_if(ways.begin(), ways.end(), [](const BestOfWay& w) { return w.fits; });
  if (fits != ways.end())
    return fmt::format("{}, with {} ({}){}.",
                       fits_in_words(room, p.device, fits->account.train_peak_bytes,
                                     {fits->open.at_most, fits->account.host_bytes, fits->account.pinned_bytes}),
                       fits->way->name, levers_of(fits->step),
                       fits->time.ms ? fmt::format("; about {} tokens/s", pytorch::tokens_per_s_in_words(fits->step, fits->time)) : "") +
           (search.whole() ? "" : fmt::format(" Stopped after {}: a way that changes less may fit.", search.how_far()));
  if (!search.whole())
    return fmt::format("What fits is not known: stopped after {}; of the ways that were forecast none fits on {}.", search.how_far(),
                       p.device.name);
  const BestOfWay& least = *std::min_element(ways.begin(), ways.end(), [](const BestOfWay& a, const BestOfWay& b) {
    return a.account.train_peak_bytes < b.account.train_peak_bytes;
  });
  const auto gpus_of = [&](const BestOfWay& way) {
    LanguageModel whole = way.step;
    whole.batch = 1, whole.accumulate = 1;
    return gpus_that_hold(whole, p.device, p.memory_bytes);
  };
  const auto of_least = gpus_of(least);
  std::string answer = fmt::format(
      "{}, with {}, the least of the ways below{}.", fits_in_words(room, p.device, least.account.train_peak_bytes), least.way->name,
      of_least ? fmt::format("; {} such GPUs hold it with a sequence each (--gpus {} --batch {})", *of_least, *of_least, *of_least) : "");
  for (const BestOfWay& way : ways) {  // the first that more of them hold
    if (&way == &least) break;
    const auto n = gpus_of(way);
    if (!n) continue;
    std::string what = way.way->name;
    what[0] = char(std::toupper(static_cast<unsigned char>(what[0])));
    return answer + fmt::format(" {}, takes {} such GPUs with a sequence each: --gpus {} --batch {}.", what, *n, *n, *n);
  }
  if (of_least) return answer;
  if (const auto len = length_that_fits(least.smallest, room, workspace))
    return answer + fmt::format(" No number of such GPUs holds this length; a length of {} fits (--len {}).", *len, *len);
  return answer + larger_card_in_words(least.smallest, p.device, p.memory_bytes);
}

Table table_of_ways(const std::vector<BestOfWay>& ways, const Room& room, const Device& device) {
  std::vector<PyTorchWayRow> rows;
  for (const BestOfWay& w : ways)
    rows.push_back({.way = w.way->name,
                    .needed_bytes = room.needed_bytes(w.account.train_peak_bytes, w.account.pinned_bytes),
                    .smallest_bytes = room.needed_bytes(w.smallest_peak),
                    .fits = w.fits,
                    .ms = w.time.ms,
                    .with = fmt::format("--batch {} {}", w.step.batch, levers_of(w.step)),
                    .host_bytes = w.account.host_bytes,
                    .checked = measured_choices(w.step),
                    .ms_low = w.time.ms_low,
                    .ms_high = w.time.ms_high,
                    .ms_by = w.time.ms_by,
                    .at_most_bytes = w.open.at_most});
  const bool fused = ways.front().step.fused_attention;
  const char* how = !fused                  ? "16 bits with plain attention"
                    : computes_bf16(device) ? "bf16 with flash attention"
                                            : "fp16 with fused attention";
  return table_of(
      "ways",
      fmt::format(
          "Ways to train it in {}, those that change training least first: each with the least work that fits, and its smallest setting",
          how),
      rows);
}

// The names of those ways that `told` tells something of (a reason and the way's words), together for each reason.
using NamesOfReason = std::vector<std::pair<std::string, std::vector<std::string>>>;
NamesOfReason by_reason(const std::vector<BestOfWay>& ways, auto&& told) {
  NamesOfReason all;
  for (const BestOfWay& w : ways) {
    const std::optional<std::pair<std::string, std::string>> one = told(w);
    if (!one) continue;
    auto at = std::ranges::find(all, one->first, &NamesOfReason::value_type::first);
    if (at == all.end()) at = all.insert(at, {one->first, {}});
    at->second.push_back(one->second);
  }
  return all;
}

// Which ways fit as the programs of bench/peers do them, where others of the same description would not, and why.
std::vector<std::string> which_may_not_fit(const std::vector<BestOfWay>& ways, const Room& room) {
  std::vector<std::string> said;
  const auto told = [&](const BestOfWay& w) -> std::optional<std::pair<std::string, std::string>> {
    if (!w.fits || room.holds(w.open.at_most)) return {};
    return {{w.open.why, fmt::format("{} (up to {})", w.way->name, bytes_in_words(double(room.needed_bytes(w.open.at_most))))}};
  };
  for (const auto& [why, names] : by_reason(ways, told))
    said.push_back(fmt::format("Some programs would not fit with {}: {}.", joined(names), why));
  return said;
}

// Which ways have no time, and why.
std::vector<std::string> why_no_times(const std::vector<BestOfWay>& ways) {
  std::vector<std::string> said;
  const auto told = [](const BestOfWay& w) -> std::optional<std::pair<std::string, std::string>> {
    if (w.time.ms) return {};
    return {{w.time.ms_by, w.way->name}};
  };
  for (const auto& [why, names] : by_reason(ways, told))
    said.push_back(fmt::format("No ms{}: {}.", names.size() == ways.size() ? "" : " for " + joined(names, "; "), why));
  return said;
}

// Each way's bytes at its peak by kind, beside the limit.
Chart picture_of_ways(const std::vector<BestOfWay>& ways, const Room& room, std::uint64_t workspace) {
  constexpr std::pair<const char*, Phase> kinds[] = {
      {"weights", Phase::parameter}, {"gradients", Phase::gradient}, {"optimizer", Phase::optimizer}};
  Chart c{"Bytes at the peak of each way to train, in its smallest setting", "", "", Unit::bytes, false, {}, Chart::Kind::bars};
  for (const auto& [kind, phase] : kinds) c.series.push_back({kind, {}});
  c.series.push_back({"activations, temporaries", {}});
  c.series.push_back({"context, libraries", {}});
  for (const BestOfWay& w : ways) {
    LanguageModel step = w.smallest;
    step.accumulate = std::min<std::int64_t>(step.accumulate, 3);  // more micro-batches take nothing else
    const auto detailed = account(step, workspace, pytorch::Detail::components);
    const double bar = double(c.ticks.size());
    double taken = 0;
    for (std::size_t k = 0; k < std::size(kinds); ++k) {
      double bytes = 0;
      for (const Component& one : detailed.account.components)
        if (one.at_peak && one.phase == name_of(kinds[k].second)) bytes += double(one.taken);
      c.series[k].points.emplace_back(bar, bytes);
      taken += bytes;
    }
    c.series[std::size(kinds)].points.emplace_back(bar, std::max(0.0, double(w.smallest_peak) - taken));
    c.series.back().points.emplace_back(bar, double(room.overhead_bytes));
    c.ticks.emplace_back(w.way->name);
  }
  c.marks.push_back({fmt::format("memory {}", bytes_in_words(double(room.memory_bytes))), double(room.memory_bytes)});
  return c;
}

// The ways to train the model, what each takes, and what is to be known of them.
void add_ways(Record& r, const Plan& p, const std::vector<BestOfWay>& ways, const Room& room, std::uint64_t workspace) {
  if (!computes_bf16(p.device))
    r.add(Part{Note{
        fmt::format("{} has no bf16 arithmetic (PyTorch emulates it there), so the ways are in fp16, with a GradScaler.", p.device.name)}});
  r.add(Part{table_of_ways(ways, room, p.device)}).add(Part{picture_of_ways(ways, room, workspace)});
  for (const std::string& why : which_may_not_fit(ways, room)) r.add(Part{Note{why}});
  if (p.gpus > 1)
    r.add(Part{
        Note{"LoRA is planned with FSDP2 and its adapters in 16 bits; QLoRA with DDP where each GPU has room for all weights, else with "
             "FSDP2. An optimizer in backward is planned on one GPU."}});
  for (const std::string& why : why_no_times(ways)) r.add(Part{Note{why}});
  if (const auto first = std::ranges::find_if(ways, &BestOfWay::fits); first != ways.end())
    r.add(Part{Note{fmt::format("Its bytes, one by one: {}", command_of(first->step, p.model_and_device, p.memory_bytes))}});
  if (!std::ranges::all_of(ways, [](const BestOfWay& w) { return measured_choices(w.step); }))
    r.add(
        Part{Note{"checked (in csv and json) says whether steps with all choices of a way were measured on a card. The others follow the "
                  "source code of each choice; docs/memory-as-pytorch-checks.md has published peaks beside them."}});
}

std::string how_settings_are_listed(const LanguageModel& one) {
  return fmt::format(
      "Least work first: 16 bits, nothing recomputed, whole batches, compiled, little communication. AdamW is fused, attention "
      "{}; keep input is torch.utils.checkpoint of each block; shard "
      "none is DDP, optimizer is DDP with ZeroRedundancyOptimizer (ZeRO-1), everything is FSDP2 with every block "
      "resharded after forward (torchtitan's default), gradients is FSDP2 without that. "
      "headroom memory model --as pytorch accounts for one of them by tensor. {}",
      one.fused_attention ? "F.scaled_dot_product_attention" : "plain, with whole matrices of scores", about_reserved);
}

std::vector<PyTorchPlanRow> those_that_fit(const std::vector<PyTorchPlanRow>& settings, const Room& room) {
  std::vector<PyTorchPlanRow> fitting;
  for (const PyTorchPlanRow& row : settings)
    if (room.holds(row.peak_bytes)) fitting.push_back(row);
  return fitting;
}

// The settings of FP32 parameters and AdamW that fit; where none does, the smallest.
void add_settings(Record& r, const std::vector<PyTorchPlanRow>& settings, std::vector<PyTorchPlanRow> fitting, const Room& room,
                  std::int64_t most) {
  const auto that_fit = std::int64_t(fitting.size());
  r.add("fp32_settings", std::int64_t(settings.size())).add("fp32_settings_that_fit", that_fit);
  if (that_fit > 0) {
    r.add(Part{Note{fmt::format("With FP32 parameters and AdamW, {} of {} settings fit.", that_fit, settings.size())}});
  } else if (!settings.empty()) {
    const PyTorchPlanRow& smallest = *std::ranges::min_element(settings, {}, &PyTorchPlanRow::peak_bytes);
    r.add(Part{Note{fmt::format("With FP32 parameters and AdamW, none of {} settings fits. The smallest needs {}, {} too much.",
                                settings.size(), bytes_in_words(double(smallest.needed_bytes)),
                                bytes_in_words(double(smallest.needed_bytes - room.memory_bytes)))}});
    fitting = {smallest};
  }
  if (std::int64_t(fitting.size()) > most) fitting.resize(std::size_t(most));
  r.add(Part{table_of("rows",
                      that_fit > 0 ? "FP32 parameters and AdamW: the settings that fit, least work first"
                                   : "FP32 parameters and AdamW: the smallest setting",
                      fitting)});
}

std::string planned_as_pytorch(const Plan& p, const Room& room) {
  return fmt::format("{} batch {} len {} in {} on {}{}, as PyTorch", p.model.name, p.batch, p.len,
                     bytes_in_words(double(room.memory_bytes)), p.gpus > 1 ? fmt::format("each of {} × ", p.gpus) : "", p.device.name);
}

}  // namespace

Outcome plan_as_pytorch(const Plan& p) {
  check_asked(p);
  const auto all = steps_of(p);
  check(!all.empty(), Code::bad_argument,
        "plan --as pytorch: nothing to choose from; --keep takes everything, input, and groups on one GPU");
  const Room room = room_of(p.device, p.memory_bytes, p.gpus, RunBy::pytorch);
  const std::uint64_t workspace = pytorch::workspace_bytes(p.device.sm);
  const SearchOfPyTorch search = searched(p, all, room, workspace);
  const auto& ways = search.ways;
  check(!ways.empty() || !search.settings.empty(), Code::interrupted, "{} before a setting was forecast; what fits is not known",
        stopped_by());
  std::vector<PyTorchPlanRow> fitting = those_that_fit(search.settings, room);
  const bool fits = !fitting.empty() || std::ranges::any_of(ways, &BestOfWay::fits);
  const std::string planned = planned_as_pytorch(p, room);
  Record r{"", ways.empty() && search.whole() ? planned : answer_of(p, room, search, workspace), {}};
  if (!ways.empty()) r.add(Part{Note{planned}});
  if (const std::string preset = engine::preset_in_words(p.model); !preset.empty()) r.add(Part{Note{preset}});
  r.add("fits", fits || search.whole() ? Value(fits) : Value()).add("memory_bytes", std::int64_t(room.memory_bytes), Unit::bytes);
  if (!room.words.empty()) r.add(Part{Note{room.words}});
  if (const std::string past = engine::past_its_positions(p.model, p.len); !past.empty()) r.add(Part{Note{past}});
  if (!ways.empty()) add_ways(r, p, ways, room, workspace);
  add_settings(r, search.settings, std::move(fitting), room, p.most);
  r.add(Part{Note{how_settings_are_listed(all.front())}});
  if (search.whole()) return yes_or_no(std::move(r), fits);
  return {std::move(r), Answer::failed, {}, fmt::format("headroom plan: {} after {}", stopped_by(), search.how_far()), true};
}

}  // namespace headroom::studies
