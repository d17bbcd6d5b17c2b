#include "studies/memory/model_mitigations.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/text.h"
#include "report/described_table.h"
#include "studies/memory/rows.h"

namespace headroom::studies {

using engine::Forecast;
using engine::Keep;
using engine::Keeping;
using engine::Recipe;

namespace {

struct Way {
  Recipe recipe;  // the step's, with it
  std::function<std::string(const Forecast&)> words;
  bool may_be_refused = false;  // by the card, or by these widths; then it is no way here
};

class Ways {
 public:
  Ways(const Recipe& r, const Device& d) : now_(r), device_(d) {}

  std::vector<Way> all() && {
    remember_less();
    smaller_numbers();
    hold_less();
    more_gpus();
    if (now_.logits == engine::Logits::whole && size_of(now_.precision.dtype) == 2)
      add("logits rounded to the precision (--logits half)", [](Recipe& r) { r.logits = engine::Logits::half; });
    return std::move(ways_);
  }

 private:
  template <class Change>
  Way& add(std::string words, Change change) {
    return add([words = std::move(words)](const Forecast&) { return words; }, change);
  }
  template <class Words, class Change>
  requires std::invocable<Words, const Forecast&> Way& add(Words words, Change change) {
    Way& way = ways_.emplace_back(Way{now_, std::move(words)});
    change(way.recipe);
    return way;
  }

  void remember_less() {
    if (now_.attention == "plain") add("attention without N² memory (--attention flash)", [](Recipe& r) { r.attention = "flash"; });
    if (now_.group() > 1) return;
    for (int k = int(now_.keep.first()) + 1; k < engine::exact_levels; ++k)
      add(fmt::format("keep less for backward (--keep {})", name_of(Keep(k))), [&](Recipe& r) {
        r.keep = {Keep(k), 1, Keep(k) == Keep::input ? 0 : r.keep.host};
      });
    const bool has_host = device_.kind == DeviceKind::cuda;  // a CPU's own memory is the host's
    if (has_host && now_.model.depth() > 2 && now_.host() == 0 && now_.keep.first() != Keep::input && now_.model.trained())
      add(
          [level = now_.keep.first()](const Forecast& f) {
            return fmt::format("what blocks keep waits in host memory, {} of it (--keep {}); each way {} cross the link",
                               bytes_in_words(double(f.host_bytes)), WordsOf<Keeping>::to(Keeping::on_host(Keeping::every_block, level)),
                               bytes_in_words(f.host_moved_bytes / 2));
          },
          [](Recipe& r) { r.keep.host = int(r.model.depth()); });
    if (now_.model.depth() == 1) return;
    Recipe grouped = now_;
    grouped.keep = {Keep::input, 0};
    add(fmt::format("keep one input of {} blocks (--keep {})", grouped.group(), WordsOf<Keeping>::to(grouped.kept_as())),
        [&](Recipe& r) { r = grouped; });
  }

  DType stored() const { return now_.formats().stored.dtype; }

  void smaller_numbers() {
    if (size_of(stored()) == 4) add("activations and matmuls in bf16 (--precision bf16)", [](Recipe& r) { r.precision = {DType::bf16}; });
    if (stored() == DType::bf16)
      add("FP32 weights that share the copies' bytes (--masters halves)", [](Recipe& r) { r.holding.masters = engine::Masters::halves; });
    if (size_of(stored()) == 2)
      add("the blocks' gradients rounded to the precision (--gradients half)",
          [](Recipe& r) { r.holding.gradients = engine::Gradients::half; });
    if (now_.purpose == engine::Purpose::training && now_.holding.moments != engine::Moments::eight)
      add("AdamW's moments in 8 bits (--moments 8bit)", [](Recipe& r) { r.holding.moments = engine::Moments::eight; }).may_be_refused =
          true;
  }

  void hold_less() {
    const engine::Holding& held = now_.holding;
    if (held.copies == engine::WeightCopies::kept)
      add("8-bit copies of weights made before each use (--copies made)", [](Recipe& r) { r.holding.copies = engine::WeightCopies::made; });
    if (stored() == DType::bf16 && held.updating == engine::Updating::during && held.masters == engine::Masters::halves &&
        now_.ranks.count == 1)
      add("no gradients of the blocks: the product updates the weight (--gradients none)", [](Recipe& r) {
        r.holding.gradients = engine::Gradients::none;
      }).may_be_refused = true;
    if (now_.precision.dtype != DType::f16 && !now_.model.tied)
      add("AdamW block by block inside backward, nothing clipped (--update during)",
          [](Recipe& r) { r.holding.updating = engine::Updating::during; });
    if (now_.batch > 1 && held.updating == engine::Updating::after && held.gradients == engine::Gradients::whole) {
      const std::int64_t half = engine::served_from(now_, device_, now_.len, (now_.batch + 1) / 2);
      add(fmt::format("micro-batches of {}, gradients accumulated (costs are of one of them)", half), [&](Recipe& r) { r.batch = half; });
    }
  }

  void more_gpus() {
    const int ranks = now_.ranks.count > 1 ? now_.ranks.count : 8;
    const auto on_ranks = [&](Recipe& r) {
      r.ranks.count = ranks;
      if (now_.ranks.count == 1) r.holding = {};
    };
    for (const auto sharding : {engine::Sharding::optimizer, engine::Sharding::gradients, engine::Sharding::everything}) {
      if (now_.ranks.count > 1 && sharding <= now_.ranks.sharding) continue;
      add(
          [ranks, sharding](const Forecast& f) {
            return fmt::format("{} GPUs with this batch each, sharding {} (--shard {}); each sends {}", ranks, name_of(sharding),
                               name_of(sharding), bytes_in_words(f.link_bytes));
          },
          [&](Recipe& r) { on_ranks(r), r.ranks.sharding = sharding; });
    }
    const bool may_split = now_.model.trained() && now_.model.positions == 0;
    if (may_split && !now_.ranks.split_tokens && now_.len % (2 * std::int64_t(ranks)) == 0)
      add(
          [ranks](const Forecast& f) {
            return fmt::format("{} GPUs with a part of every sequence each (--split-tokens); each sends {}", ranks,
                               bytes_in_words(f.link_bytes));
          },
          [&](Recipe& r) { on_ranks(r), r.ranks.split_tokens = true; });
  }

  const Recipe& now_;
  const Device& device_;
  std::vector<Way> ways_;
};

std::optional<Forecast> forecast_of(const Way& way, const ModelMemory& s) {
  try {
    return engine::forecast(way.recipe, s.device, s.workers);
  } catch (const Error& e) {
    if (!way.may_be_refused || e.at.code != Code::unsupported) throw;
    return {};
  }
}

}  // namespace

Combination<Recipe> combination_of(const Recipe& now, const ModelMemory& s, const Room& room) {
  const auto stored_in_bf16 = [](const Recipe& r) { return r.formats().stored.dtype == DType::bf16; };
  const std::vector<Lever<Recipe>> levers{
      {"--attention flash", [](Recipe& r) { return std::exchange(r.attention, "flash") == "plain"; }},
      {"--logits half",
       [](Recipe& r) { return size_of(r.precision.dtype) == 2 && std::exchange(r.logits, engine::Logits::half) == engine::Logits::whole; }},
      {"--precision bf16",
       [](Recipe& r) {
         if (size_of(r.formats().stored.dtype) != 4) return false;
         r.precision = {DType::bf16};
         return true;
       }},
      {"--masters halves",
       [=](Recipe& r) { return stored_in_bf16(r) && std::exchange(r.holding.masters, engine::Masters::halves) == engine::Masters::whole; }},
      {"--gradients half",
       [](Recipe& r) {
         return size_of(r.formats().stored.dtype) == 2 &&
                std::exchange(r.holding.gradients, engine::Gradients::half) == engine::Gradients::whole;
       }},
      {"--keep input",
       [](Recipe& r) {
         if (r.keep.group != 1 || r.keep.first() == Keep::input) return false;
         r.keep = {Keep::input};
         return true;
       }},
      {"--update during",
       [](Recipe& r) {
         return r.precision.dtype != DType::f16 && !r.model.tied && r.micro_batches == 1 &&
                std::exchange(r.holding.updating, engine::Updating::during) == engine::Updating::after;
       }},
      {"--moments 8bit",
       [](Recipe& r) {
         return r.purpose == engine::Purpose::training &&
                std::exchange(r.holding.moments, engine::Moments::eight) != engine::Moments::eight;
       }},
      {"micro-batches of 1", [](Recipe& r) {
         if (r.batch == 1 || r.holding.updating != engine::Updating::after) return false;
         r.micro_batches *= int(r.batch), r.batch = 1;
         return true;
       }}};
  const auto peak_of = [&](const Recipe& r) -> std::optional<std::uint64_t> {
    try {
      engine::check(r);
      return engine::forecast_peak(r, s.device, s.workers);
    } catch (const Error&) { return {}; }
  };
  return least_that_fits(now, levers, peak_of, [&](std::uint64_t peak) { return room.holds(peak); });
}

std::optional<int> gpus_that_hold(const Recipe& one, const Device& device, std::optional<std::uint64_t> memory) {
  if (device.kind != DeviceKind::cuda || one.purpose != engine::Purpose::training) return {};
  return gpus_that_hold(
      [&](int n) {
        Recipe r = one;
        r.ranks = {n, engine::Sharding::everything, false};
        if (r.holding.gradients == engine::Gradients::none) r.holding.gradients = engine::Gradients::half;
        try {
          return room_of(device, memory, n).holds(engine::forecast_peak(r, device, 1));
        } catch (const Error&) { return false; }
      },
      one.ranks.count);
}

Table mitigations_of(const Recipe& recipe, const Forecast& now, const ModelMemory& s, const Combination<Recipe>& together) {
  std::vector<ModelSavingRow> rows;
  if (together.words.size() > 1) {
    const Forecast f = engine::forecast(together.setting, s.device, s.workers);
    rows.push_back({.change = "together: " + joined(together.words, " "),
                    .peak_bytes = f.peak_bytes,
                    .saves_bytes = now.peak_bytes - std::min<std::uint64_t>(now.peak_bytes, f.peak_bytes),
                    .more_flops = f.flops / now.flops - 1,
                    .more_traffic = f.bytes / now.bytes - 1});
  }
  for (const Way& way : Ways(recipe, s.device).all())
    if (const auto f = forecast_of(way, s); f && !is_noise(now.peak_bytes, f->peak_bytes))
      rows.push_back({.change = way.words(*f),
                      .peak_bytes = f->peak_bytes,
                      .saves_bytes = now.peak_bytes - f->peak_bytes,
                      .more_flops = f->flops / now.flops - 1,
                      .more_traffic = f->bytes / now.bytes - 1});
  return table_of("mitigations", "Ways to save bytes, and their costs", rows);
}

}  // namespace headroom::studies
