#include "studies/memory/model.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "engine/decoder.h"
#include "studies/memory/account.h"
#include "studies/memory/live_bytes.h"
#include "studies/memory/measured.h"

namespace headroom {

using engine::Forecast;
using engine::Keep;
using engine::Purpose;
using engine::Recipe;

namespace {

struct Case {
  Recipe recipe;
  Forecast step;
  std::size_t forward_peak, backward_peak;
};

Recipe with_purpose(Recipe r, Purpose p) {
  r.purpose = p;
  return r;
}

Recipe recipe_of(const ModelMemory& s, std::int64_t batch, std::int64_t len, Precision p, Keep keep) {
  Recipe r{s.model, batch, len, p, {keep}, s.attention};
  r.holding = s.holding;
  return r;
}
Case case_of(const ModelMemory& s, const Recipe& r) {
  return {r, engine::forecast(r, s.device, s.workers), engine::forecast_peak(with_purpose(r, Purpose::forward), s.device, s.workers),
          engine::forecast_peak(with_purpose(r, Purpose::gradients), s.device, s.workers)};
}

// The same model with sizes that are all different, so that a tensor's formula can be read off its dimensions.
Recipe probe_of(Recipe r) {
  auto& m = r.model;
  m.vocab = 1009;
  if (r.holding.gradients == engine::Gradients::none) {  // sizes that ops/product_update serves
    m.width = 512;
    m.ffn = 1792;
    m.head_dim = 64;
    m.kv_heads = 4;
    m.heads = 12;
  } else {
    m.width = 211;
    m.ffn = 463;
    m.head_dim = 22;
    m.kv_heads = 3;
    m.heads = 6;
  }
  r.batch = 13;
  r.len = 17;
  r.loss_rows = 11;
  return r;
}
std::vector<Symbol> symbols_of(const Recipe& probe, const Recipe& r, const Device& device) {
  const std::int64_t rows = r.batch * r.len;
  const std::int64_t chunk = r.loss_rows > 0
                                 ? r.loss_rows
                                 : engine::chunk_of(r.model, r.precision.dtype, engine::type_of(r.logits, r.precision.dtype), device, rows);
  std::vector<Symbol> out{{"B", probe.batch, r.batch},
                          {"N", probe.len, r.len},
                          {"B·N", probe.batch * probe.len, rows},
                          {"C", probe.loss_rows, std::min(chunk, rows)}};
  const auto of = [&](const char* name, auto size) { out.push_back({name, size(probe.model), size(r.model)}); };
  of("V", [](const auto& m) { return m.vocab; });
  of("W", [](const auto& m) { return m.width; });
  of("F", [](const auto& m) { return m.ffn; });
  of("2F", [](const auto& m) { return 2 * m.ffn; });
  of("D", [](const auto& m) { return m.head_dim; });
  of("H·D", [](const auto& m) { return m.heads * m.head_dim; });
  of("(H+2K)·D", [](const auto& m) { return (m.heads + 2 * m.kv_heads) * m.head_dim; });
  of("(H+K)·D", [](const auto& m) { return (m.heads + m.kv_heads) * m.head_dim; });
  of("H", [](const auto& m) { return m.heads; });
  return out;
}

using Key = std::pair<Phase, std::string>;
Key key_of(const Entry& e) { return {e.phase, e.name.text}; }

struct Group {  // tensors of one name over all blocks
  Entry first;
  std::int64_t count = 0;
  std::uint64_t bytes = 0, at_peak = 0;
};

// One tensor may come and go many times in a step; what counts is how many of a name stand at once, at most.
std::vector<std::pair<Key, Group>> groups_of(const Forecast& f) {
  std::vector<std::pair<Key, Group>> out;
  std::map<Key, std::size_t> index;
  std::map<Key, std::pair<std::int64_t, std::uint64_t>> live;
  for (const auto& event : f.events) {
    const Entry& e = f.entries[event.entry];
    const Key key = key_of(e);
    auto& [count, bytes] = live[key];
    if (!event.take) {
      --count;
      bytes -= e.taken;
      continue;
    }
    ++count;
    bytes += e.taken;
    if (index.try_emplace(key, out.size()).second) out.push_back({key, {e}});
    Group& g = out[index[key]].second;
    if (bytes > g.bytes) {
      g.bytes = bytes;
      g.count = count;
      g.first = e;
    }
  }
  for (const Entry& e : f.at_peak) out[index[key_of(e)]].second.at_peak += e.taken;
  return out;
}

Table components(const Case& c, const ModelMemory& s) {
  Table t{"components",
          "Who holds the bytes",
          {{"name"},
           {"shape"},
           {"dtype"},
           {"tensors"},
           {"bytes", Unit::bytes, Show::bar},
           {"formula"},
           {"phase"},
           {"at_peak_bytes", Unit::bytes},
           {"share", Unit::share}},
          {}};
  std::map<Key, Shape> probe;
  std::vector<Symbol> symbols;
  if (!c.recipe.model.counted) {  // what is only counted has sizes of its own in every layer: numbers alone
    const Recipe other = probe_of(c.recipe);
    symbols = symbols_of(other, c.recipe, s.device);
    const Forecast shapes = engine::forecast(other, s.device, s.workers);
    for (const Entry& e : shapes.entries) probe.try_emplace(key_of(e), e.shape);
  }
  auto groups = groups_of(c.step);
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  for (const auto& [key, g] : groups) {
    const std::string formula = formula_of(probe[key], g.first.shape, size_of(g.first.dtype), symbols);
    t.add({key.second, shape_text(g.first.shape), std::string(name_of(g.first.dtype)), g.count, std::int64_t(g.bytes),
           g.count > 1 ? fmt::format("{} × {}", g.count, formula) : formula, std::string(name_of(key.first)), std::int64_t(g.at_peak),
           double(g.at_peak) / double(c.step.peak_bytes)});
  }
  return t;
}

Table phases(const Case& c) {
  Table t{"phases", "The peak by phase", {{"phase"}, {"bytes", Unit::bytes, Show::bar}, {"share", Unit::share}}, {}};
  for (int p = 0; p < phase_count; ++p)
    if (const auto bytes = c.step.bytes_at_peak(Phase(p)); bytes > 0)
      t.add({std::string(name_of(Phase(p))), std::int64_t(bytes), double(bytes) / double(c.step.peak_bytes)});
  return t;
}

std::int64_t largest_that_fits(const ModelMemory& s, const Recipe& r, std::int64_t Recipe::*which, const Room& room) {
  const std::int64_t other = r.batch * r.len / (r.*which);
  return largest((std::int64_t(1) << 31) / other - 1, [&](std::int64_t n) {
    Recipe tried = r;
    tried.*which = n;
    return room.holds(engine::forecast_peak(tried, s.device, s.workers) + engine::stand_in_bytes(tried, s.device));
  });
}

Table edges(const ModelMemory& s, const std::vector<Case>& cases, const Room& room) {
  Table t{"edge",
          fmt::format("Where {} end", bytes_in_words(double(room.memory_bytes))),
          {{"precision"}, {"keep"}, {"batch"}, {"len"}, {"largest_len"}, {"largest_batch"}},
          {}};
  for (const Case& c : cases)
    t.add({std::string(name_of(c.recipe.precision)), std::string(name_of(c.recipe.keep[0])), c.recipe.batch, c.recipe.len,
           largest_that_fits(s, c.recipe, &Recipe::len, room), largest_that_fits(s, c.recipe, &Recipe::batch, room)});
  return t;
}

Table growth(const ModelMemory& s) {
  Table t{"scaling",
          "How bytes grow with len: bytes ~ len^exponent",
          {{"precision"}, {"keep"}, {"batch"}, {"exponent_of_peak", Unit::ratio}, {"exponent_of_activations", Unit::ratio}},
          {}};
  for (const Precision p : s.precisions)
    for (const Keep k : s.keeps)
      for (const auto batch : s.batches) {
        std::vector<std::pair<double, double>> peak, activations;
        for (const auto len : s.lens) {
          const Forecast f = engine::forecast(recipe_of(s, batch, len, p, k), s.device, s.workers);
          peak.emplace_back(double(len), double(f.peak_bytes)),
              activations.emplace_back(double(len), double(f.peak_bytes - f.standing_bytes));
        }
        t.add({std::string(name_of(p)), std::string(name_of(k)), batch, growth_exponent(peak), growth_exponent(activations)});
      }
  return t;
}

Table mitigations(const Case& c, const ModelMemory& s) {
  Table t{
      "mitigations",
      "Ways to save bytes, and their costs",
      {{"change"}, {"peak_bytes", Unit::bytes}, {"saves_bytes", Unit::bytes}, {"more_flops", Unit::share}, {"more_traffic", Unit::share}},
      {}};
  const auto now = [&](std::string what, const Recipe& r) {
    const Forecast f = engine::forecast(r, s.device, s.workers);
    if (f.peak_bytes >= c.step.peak_bytes) return;
    t.add({std::move(what), std::int64_t(f.peak_bytes), std::int64_t(c.step.peak_bytes - f.peak_bytes), f.flops / c.step.flops - 1,
           f.bytes / c.step.bytes - 1});
  };
  if (c.recipe.attention == "plain") {
    Recipe r = c.recipe;
    r.attention = "flash";
    now("attention without N² memory (--attention flash)", r);
  }
  for (int k = int(c.recipe.keep[0]) + 1; k < int(names_of<Keep>.name.size()); ++k) {
    Recipe r = c.recipe;
    r.keep = {Keep(k)};
    now(fmt::format("keep less for backward (--keep {})", name_of(Keep(k))), r);
  }
  if (size_of(c.recipe.precision.dtype) == 4) {
    Recipe r = c.recipe;
    r.precision = {DType::bf16};
    now("activations and matmuls in bf16 (--precision bf16)", r);
  }
  if (c.recipe.precision.dtype == DType::bf16) {
    Recipe r = c.recipe;
    r.holding.masters = engine::Masters::halves;
    now("FP32 weights that share the copies' bytes (--masters halves)", r);
  }
  if (size_of(c.recipe.precision.dtype) == 2) {
    Recipe r = c.recipe;
    r.holding.gradients = engine::Gradients::half;
    now("the blocks' gradients rounded to the precision (--gradients half)", r);
  }
  if (c.recipe.precision.dtype == DType::bf16 && c.recipe.holding.updating == engine::Updating::during &&
      c.recipe.holding.masters == engine::Masters::halves) {
    Recipe r = c.recipe;
    r.holding.gradients = engine::Gradients::none;
    try {
      now("no gradients of the blocks: the product updates the weight (--gradients none)", r);
    } catch (const Error& e) {
      if (e.at.code != Code::unsupported) throw;  // this card, or these widths, are not served
    }
  }
  if (c.recipe.precision.dtype != DType::f16 && !c.recipe.model.tied) {
    Recipe r = c.recipe;
    r.holding.updating = engine::Updating::during;
    now("AdamW block by block inside backward, nothing clipped (--update during)", r);
  }
  if (c.recipe.batch > 1 && c.recipe.holding.updating == engine::Updating::after &&
      c.recipe.holding.gradients == engine::Gradients::whole) {
    Recipe r = c.recipe;
    r.batch = (r.batch + 1) / 2;
    now(fmt::format("micro-batches of {}, gradients accumulated (costs are of one of them)", r.batch), r);
  }
  for (const auto sharding : {engine::Sharding::optimizer, engine::Sharding::gradients, engine::Sharding::everything}) {
    Recipe r = c.recipe;
    r.ranks = {8, sharding};
    r.holding = {};
    const double sent = engine::forecast(r, s.device, s.workers).link_bytes;
    now(fmt::format("8 GPUs with this batch each, sharding {}; each sends {}", name_of(sharding), bytes_in_words(sent)), r);
  }
  return t;
}

}  // namespace

Answer memory_model(const ModelMemory& s) {
  const Room room = room_of(s.device, s.memory_bytes);
  std::vector<Case> cases;
  for (const Precision p : s.precisions)
    for (const Keep k : s.keeps)
      for (const auto batch : s.batches)
        for (const auto len : s.lens) cases.push_back(case_of(s, recipe_of(s, batch, len, p, k)));

  Record r{"", fmt::format("{} ({} parameters) on {}", s.model.name, engine::param_count(s.model), s.device.name), {}};
  if (s.model.counted)
    r.add(Part{
        Note{fmt::format("Counted, not trained here: this engine has no {}. Every op keeps its inputs, by the rules of the models that "
                         "are trained.",
                         s.model.counted->untrained)}});
  for (const std::string& what : s.model.left_out) r.add(Part{Note{fmt::format("Not in the account: {}.", what)}});
  std::vector<Recipe> recipes;
  for (const Case& c : cases) recipes.push_back(c.recipe);
  if (const std::string who = engine::counted_by(recipes, s.device); !who.empty()) r.add(Part{Note{who}});
  Table rows{"rows",
             "Peak bytes",
             {{"model"},
              {"batch"},
              {"len"},
              {"precision"},
              {"keep"},
              {"attention", Unit::none, Show::detail},
              {"params", Unit::none, Show::detail},
              {"forward_peak_bytes", Unit::bytes},
              {"forward_backward_peak_bytes", Unit::bytes},
              {"train_peak_bytes", Unit::bytes},
              {"needed_bytes", Unit::bytes},
              {"standing_bytes", Unit::bytes},
              {"flops", Unit::flops, Show::detail},
              {"fits"}},
             {}};
  bool fits = false;
  for (const Case& c : cases) {
    const std::uint64_t peak = c.step.peak_bytes + engine::stand_in_bytes(c.recipe, s.device);
    fits = fits || room.holds(peak);
    rows.add({s.model.name, c.recipe.batch, c.recipe.len, std::string(name_of(c.recipe.precision)), std::string(name_of(c.recipe.keep[0])),
              s.attention, engine::param_count(s.model), std::int64_t(c.forward_peak), std::int64_t(c.backward_peak),
              std::int64_t(c.step.peak_bytes), std::int64_t(room.needed_bytes(peak)), std::int64_t(c.step.standing_bytes), c.step.flops,
              room.holds(peak)});
    rows.within.push_back({components(c, s)});
  }
  r.add(Part{rows});
  if (!room.words.empty()) r.add(Part{Note{room.words}});
  if (s.measure) {
    r.add(Part{measured_bytes(recipes, s.device, s.workers)});
    if (s.device.kind == DeviceKind::cuda)
      r.add(
          Part{Note{"driver is all memory in use by cudaMemGetInfo: the arena, the context and other programs, what the run "
                    "loaded (kernels' code and cuBLAS), and unexplained bytes."}});
    else
      r.add(Part{Note{"unexplained is the growth of this process's memory beyond the arena: libraries' buffers, threads' stacks."}});
  }
  const Case& last = cases.back();  // the account in full is of the largest case
  r.add(Part{Note{fmt::format(
      "In full: batch {}, len {}, {}, keep {}. B batch, N len, W width, F ffn, V vocabulary, H heads, K key heads, D head dimension, "
      "C rows of logits at once.",
      last.recipe.batch, last.recipe.len, name_of(last.recipe.precision), name_of(last.recipe.keep[0]))}});
  Table full = rows.within.back()[0];
  full.name = "largest";
  r.add(Part{full}).add(Part{phases(last)}).add(Part{live_bytes_chart(last.step, room.for_peak())});
  if (s.lens.size() > 1) r.add(Part{growth(s)});
  r.add(Part{edges(s, cases, room)}).add(Part{mitigations(last, s)});
  return {std::move(r), fits};
}

}  // namespace headroom
