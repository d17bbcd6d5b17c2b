#include "studies/plan/plan.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/efficiency.h"
#include "engine/model/models.h"
#include "report/render.h"
#include "studies/memory/attention.h"
#include "studies/memory/model.h"
#include "studies/plan/search.h"
#include "tests/engine/workshop.h"

namespace headroom::studies {
namespace plan_tests {  // a name: what is used here stays here, where a folder is one source

using namespace engine;

// What identifies a setting, in the words of a row.
std::string words_of(const Recipe& r) {
  return fmt::format("{} {} {} {} {} {} {}x{} {}", name_of(r.precision), r.attention, WordsOf<engine::Keeping>::to(r.kept_as()),
                     name_of(r.holding.masters), name_of(r.holding.gradients), name_of(r.holding.updating), r.batch, r.micro_batches,
                     name_of(r.ranks.sharding));
}

// Every combination of every lever, written out here: the ones that the engine runs dry, and their peaks.
std::map<std::string, std::size_t> dry_runs(const Plan& p) {
  std::map<std::string, std::size_t> peaks;
  const std::int64_t each = p.batch / p.gpus;
  for (const char* precision : {"fp32", "bf16", "fp16"})
    for (const char* attention : {"flash", "plain"})
      for (const Keeping& keep : {Keeping{Keep::everything}, Keeping{Keep::no_product}, Keeping{Keep::no_cheap},
                                  Keeping{Keep::no_attention_inputs}, Keeping{Keep::input}, Keeping{Keep::input, 0}})
        for (int masters = 0; masters <= int(Masters::halves); ++masters)
          for (int gradients = 0; gradients <= int(Gradients::none); ++gradients)
            for (int updating = 0; updating <= int(Updating::during); ++updating)
              for (std::int64_t micro_batches = 1; micro_batches <= each; ++micro_batches)
                for (int sharding = 0; sharding <= (p.gpus > 1 ? int(Sharding::everything) : 0); ++sharding) {
                  if (each % micro_batches != 0) continue;
                  Recipe r{p.model, each / micro_batches, p.len, *precision_named(precision), {}, attention};
                  r.keep = keep;
                  r.micro_batches = int(micro_batches), r.ranks = {p.gpus, Sharding(sharding)};
                  r.holding = {.masters = Masters(masters), .updating = Updating(updating), .gradients = Gradients(gradients)};
                  try {
                    peaks[words_of(r)] = forecast_peak(r, p.device, p.workers);
                  } catch (const Error&) { continue; }  // the engine does not take these together
                }
  return peaks;
}

nlohmann::json json_of(const Outcome& a) { return nlohmann::json::parse(render_json(a.record)); }
nlohmann::json rows_of(const Outcome& a) { return json_of(a)["rows"]; }
std::string words_of(const nlohmann::json& row) {
  const auto word = [&](const char* key) { return row.at(key).get<std::string>(); };
  return fmt::format("{} {} {} {} {} {} {}x{} {}", word("precision"), word("attention"), word("keep"), word("masters"), word("gradients"),
                     word("update"), row["micro_batch"].get<int>(), row["micro_batches"].get<int>(), word("sharding"));
}

Plan plan_of(Decoder model) {
  Plan p;
  p.model = std::move(model), p.batch = 4, p.len = 24, p.most = 100000;
  for (const char* name : {"fp32", "bf16", "fp16"}) p.levers.precision.push_back(*precision_named(name));
  return p;
}

TEST(Plan, ListsASettingAsFittingExactlyWhenItsDryRunFits) {
  Decoder narrow = tiny(), tied = tiny(), biased = tiny();
  tied.tied = true;
  change_sizes(biased, [](engine::PlainModel& m) { m.qkv_bias = m.qk_norm = true; });
  change_sizes(narrow, [](engine::PlainModel& m) { m.layers = 1; });
  for (const Decoder& model : {tiny(), narrow, tied, biased}) {
    Plan p = plan_of(model);
    const auto peaks = dry_runs(p);
    ASSERT_GT(peaks.size(), 100u);
    std::set<std::size_t> edges{0};
    for (const auto& [words, peak] : peaks) edges.insert(peak), edges.insert(peak - 1);
    int tried = 0;
    for (const std::size_t edge : edges) {
      if (++tried % 37 != 0 && edge != *edges.rbegin() && edge != *std::next(edges.begin())) continue;  // a few of them are enough
      p.memory_bytes = edge;
      const Outcome answer = plan(p);
      std::set<std::string> listed, fitting;
      for (const auto& row : rows_of(answer)) listed.insert(words_of(row));
      for (const auto& [words, peak] : peaks)
        if (peak <= edge) fitting.insert(words);
      EXPECT_EQ(answer.answer, fitting.empty() ? Answer::no : Answer::yes);
      if (answer.answer == Answer::yes)
        EXPECT_EQ(listed, fitting) << "at " << edge << " bytes";
      else
        EXPECT_EQ(listed.size(), 1u) << "the nearest";
    }
  }
}

TEST(Plan, OfSeveralGpusAsksForTheirBuffersToo) {
  Plan p = plan_of(tiny());
  p.gpus = 2, p.device.kind = DeviceKind::cuda, p.device.sm = 90, p.device.name = "described";
  p.device.memory_bytes = p.device.total_bytes = 1ull << 40;
  const auto peaks = dry_runs(p);
  const auto all = settings_of(p).all;
  EXPECT_EQ(all.size(), peaks.size());
  for (const Setting& s : all) EXPECT_EQ(s.peak_bytes, peaks.at(words_of(s.recipe)));
  const Overhead beside = overhead_of(p.device, 2);
  EXPECT_GE(beside.communication_bytes, 544000000u) << "what two A100 were seen to take";
  const Device h100 = device_described("h100");
  EXPECT_EQ(among_hosts(h100, 8, 8, {}).ceilings.link_bytes_per_s, h100.ceilings.link_bytes_per_s) << "one host";
  EXPECT_EQ(among_hosts(h100, 64, 8, {}).ceilings.link_bytes_per_s, 50e9) << "400 Gb/s a GPU";
  for (const char* rate : {"200Gb/s", "200 Gbit/s", "200gbps", "25 GB/s", "25", "25000MB/s"})
    EXPECT_EQ(among_hosts(h100, 64, 8, WordsOf<LinkRate>::named(rate)).ceilings.link_bytes_per_s, 25e9) << rate;
  for (const char* unclear : {"200 gb/s", "-25GB/s", "25GB", "GB/s", ""}) EXPECT_FALSE(WordsOf<LinkRate>::named(unclear)) << unclear;
  const auto slow = WordsOf<LinkRate>::named("25GB/s");
  EXPECT_EQ(hosts_in_words(h100, 8, 8, slow), "--link is not used: the 8 GPUs are in one host (--per-host 8).");
  EXPECT_EQ(hosts_in_words(h100, 1, 8, slow), "--link is not used: the GPU is in one host (--per-host 8).");
  EXPECT_EQ(hosts_in_words(h100, 8, 8, {}), "");
  EXPECT_EQ(hosts_in_words(h100, 9, 8, slow).find("9 GPUs are 2 hosts of 8: "), 0u);
  EXPECT_EQ(among_hosts(h100, 64, 72, {}).ceilings.link_bytes_per_s, h100.ceilings.link_bytes_per_s);
  for (const char* wrong : {"", "fast", "0", "-3GB/s", "50GB", "nan"}) EXPECT_FALSE(WordsOf<LinkRate>::named(wrong)) << wrong;
  constexpr double gib = 1 << 30;
  const Device h200 = device_described("h200");
  EXPECT_GE(double(overhead_of(h200, 2).communication_bytes), 2.17 * gib) << "the most that was measured between two H200";
  EXPECT_LT(double(overhead_of(device_described("h100"), 8).communication_bytes), 8 * gib);
  EXPECT_NEAR(double(overhead_of(h200, 2, RunBy::pytorch).bytes()), 1.57 * gib, 0.01 * gib)
      << "context, code and NCCL of a PyTorch process";
  const Device rtx4090 = device_described("rtx4090");
  const Overhead of_4090 = overhead_of(rtx4090);
  EXPECT_NEAR(double(rtx4090.memory_bytes - of_4090.beside.driver_keeps_bytes) / gib, 23.65, 0.01) << "what CUDA has of its memory";
  EXPECT_NEAR(double(rtx4090.memory_bytes - of_4090.beside.driver_keeps_bytes - of_4090.bytes()) / gib, 23.15, 0.1);
  EXPECT_FALSE(beside.measured);
  const std::size_t first = all.front().peak_bytes + beside.bytes();
  p.memory_bytes = first;
  bool listed = false;
  for (const auto& row : rows_of(plan(p))) listed = listed || words_of(row) == words_of(all.front().recipe);
  EXPECT_TRUE(listed);
  p.memory_bytes = first - 1;
  for (const auto& row : rows_of(plan(p))) EXPECT_NE(words_of(row), words_of(all.front().recipe));
}

// A setting that the plan lists is run in exactly what its row says.
// Ctrl-C: what was forecast until then is shown, and nothing is said of the rest.
TEST(Plan, ASearchThatIsStoppedSaysHowFarItCame) {
  for (const Whose whose : {Whose::headroom, Whose::pytorch})
    for (const int after : {9, 30}) {
      Plan p;
      p.model = model_described("small"), p.batch = 8, p.len = 64, p.device = device_described("h100"), p.gpus = 2, p.whose = whose;
      std::atomic<int> asked = 0;
      p.stop = [&] { return ++asked > after; };
      const Outcome o = plan(p);
      EXPECT_EQ(o.answer, Answer::failed);
      EXPECT_TRUE(o.stopped) << "its answer is not red";
      EXPECT_NE(o.record.title.find("topped after "), std::string::npos) << o.record.title;
      EXPECT_EQ(o.record.title.find("Does not fit"), std::string::npos) << o.record.title;
      EXPECT_NE(o.said.find(" of "), std::string::npos) << o.said;
      const auto j = json_of(o);
      EXPECT_GT(j["rows"].size() + (j.contains("ways") ? j["ways"].size() : 0), 0u);
    }
}

TEST(Plan, WhatItListsRunsInThatMemory) {
  Plan p = plan_of(tiny());
  p.memory_bytes = 1ull << 40, p.device = cpu_device(), p.workers = 1;
  const auto all = settings_of(p).all;
  ASSERT_GT(all.size(), 100u);
  for (std::size_t i = 0; i < all.size(); i += 5) {
    SCOPED_TRACE(words_of(all[i].recipe));
    const headroom::Block memory(all[i].peak_bytes);
    Arena arena(memory.data(), memory.bytes());
    Threads one(1);
    Context ctx{arena, p.device, &one};
    Training t(all[i].recipe, ctx);
    t.initialise(1);
    const std::vector<std::int32_t> zeros(std::size_t(t.tokens().count()), 0);
    for (int k = 0; k < all[i].recipe.micro_batches; ++k) t.feed(k, zeros, zeros);
    t.step({.clip = all[i].recipe.holding.updating == Updating::during ? 0.0 : 1.0});
    EXPECT_EQ(arena.peak(), all[i].peak_bytes);
  }
}

TEST(Plan, TheFrontierIsWhatNothingBeats) {
  Plan p = plan_of(tiny());
  p.memory_bytes = 1ull << 40;
  p.device.ceilings = {1e10, 1e11, 1e11, 1e11, 1e11, 1e11, 0, 0, "described"};
  const auto rows = rows_of(plan(p));
  int beaten = 0;
  for (const auto& row : rows) {
    bool found = false;
    for (const auto& other : rows)
      found = found || (other["ms_at_least"] <= row["ms_at_least"] && other["needed_bytes"] < row["needed_bytes"]);
    EXPECT_FALSE(found && row["frontier"].get<bool>()) << row;
    beaten += found;
    EXPECT_TRUE(row["ms"].is_null()) << "nothing was measured";
  }
  EXPECT_GT(beaten, 10);
  EXPECT_TRUE(rows[0]["frontier"].get<bool>());
}

// By ms, where a setting has one: 2.7B's bound with gradients in pieces is the least, and not its time.
TEST(Plan, IsOrderedByWhatAStepIsExpectedToTake) {
  Plan p = plan_of(model_described("2.7B"));
  p.device = device_described("h200"), p.len = 1024, p.levers.precision = {{DType::bf16}}, p.levers.keep = {Keeping{Keep::everything}};
  const Outcome outcome = plan(p);
  const auto j = json_of(outcome);
  const auto& rows = j["rows"];
  ASSERT_GT(rows.size(), 5u);
  bool bounds_are_not_in_order = false;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NEAR(rows[i]["slower"].get<double>(), rows[i]["ms"].get<double>() / rows[0]["ms"].get<double>() - 1, 1e-9);
    EXPECT_EQ(rows[i]["frontier"], rows[i]["needed_bytes"] < least) << rows[i];
    least = std::min(least, rows[i]["needed_bytes"].get<std::uint64_t>());
    if (i == 0) continue;
    EXPECT_GE(rows[i]["ms"], rows[i - 1]["ms"]);
    bounds_are_not_in_order = bounds_are_not_in_order || rows[i]["ms_at_least"] < rows[i - 1]["ms_at_least"];
  }
  EXPECT_TRUE(bounds_are_not_in_order);
  EXPECT_NE(j["notes"].dump().find("The order, slower and the picture go by ms;"), std::string::npos) << j["notes"];
  EXPECT_NE(render_text(outcome.record).find("(ms "), std::string::npos) << "the picture's axis";
}

// 2.7B that keeps blocks on the host waits for their copies: its card has power to spare, and products go faster than the ceiling that was measured.
TEST(Plan, NoTimeIsBelowItsBound) {
  Plan p = plan_of(model_described("2.7B"));
  p.len = 1024, p.levers.precision = {{DType::bf16}};
  for (const char* card : {"h200", "h100", "a100"}) {
    p.device = device_described(card), p.memory_bytes = 1ull << 43;
    const auto rows = rows_of(plan(p));
    EXPECT_GT(rows.size(), 200u);
    for (const auto& row : rows) {
      EXPECT_GE(row["ms_low"], row["ms_at_least"]) << card << " " << words_of(row);
      EXPECT_GE(row["ms"], row["ms_low"]) << card << " " << words_of(row);
    }
  }
}

// A machine that measured its steps in FP32 alone.
TEST(Plan, SettingsWithoutATimeComeLast) {
  Plan p = plan_of(tiny());
  p.memory_bytes = 1ull << 40, p.device = cpu_device(), p.workers = 1;
  p.device.ceilings = {1e10, 1e11, 1e11, 1e11, 1e11, 1e11, 0, 0, "described"};
  p.device.efficiencies = std::make_shared<const Efficiencies>(Efficiencies{{Efficiency{.product = 40}}, p.device.ceilings, ""});
  const auto rows = rows_of(plan(p));
  bool none = false;
  for (const auto& row : rows) {
    none = none || row["ms"].is_null();
    EXPECT_EQ(row["ms"].is_null(), none) << row;
    EXPECT_EQ(row["ms"].is_null(), row["precision"] != "fp32") << row;
    EXPECT_EQ(row["slower"].is_null(), none) << "a bound is not compared with a time: " << row;
  }
  EXPECT_TRUE(none);
  EXPECT_FALSE(rows[0]["ms"].is_null());
}

TEST(Room, EveryKnownCardHoldsBackWhatAProgramCannotHave) {
  for (const Device& d : known_devices()) {
    SCOPED_TRACE(d.name);
    const Room room = room_of(d, {});
    EXPECT_GT(room.overhead_bytes, 500u << 20);
    EXPECT_LT(room.memory_bytes, d.memory_bytes);
    EXPECT_TRUE(room.holds(room.for_peak()));
    EXPECT_FALSE(room.holds(room.for_peak() + 1));
    const Room asked = room_of(d, 40ull << 30);
    EXPECT_EQ(asked.memory_bytes, std::min<std::uint64_t>(40ull << 30, room.memory_bytes)) << "as it was asked, where the card has as much";
    EXPECT_EQ(room_of(d, d.memory_bytes).memory_bytes, room.memory_bytes) << "its driver lends less than the number on its box";
    EXPECT_EQ(asked.overhead_bytes, room.overhead_bytes);
    EXPECT_GT(room_of(d, {}, 8).overhead_bytes, room_of(d, {}, 2).overhead_bytes);
    EXPECT_EQ(overhead_of(d).measured, d.name == "NVIDIA H200");
  }
  // A step of 8B that filled an H200, 2026-11-30: what the driver said less its tensors and the pages that map the host's memory.
  const Room h200 = room_of(device_described("h200"), {});
  const std::uint64_t beside = 147761987584 - 147169460992 - bytes_of_pinned_pages(11157897216);
  EXPECT_GE(h200.overhead_bytes, beside);
  EXPECT_NEAR(double(h200.overhead_bytes), double(beside), 8e6);
  EXPECT_EQ(h200.memory_bytes, 150109880320u) << "what torch.cuda.mem_get_info() said";
  EXPECT_EQ(h200.for_peak() + (24u << 20), 148483735552u + (1u << 30)) << "what a sweep could have, and what it left to others";
}

TEST(Room, OfACardThatIsPresentTheContextIsTakenAlready) {
  Device d = device_described("h200");
  d.key = "", d.bus = "0000:01:00.0", d.memory_bytes = 100ull << 30, d.total_bytes = 140ull << 30;
  EXPECT_EQ(room_of(d, {}).memory_bytes, d.memory_bytes);
  EXPECT_EQ(room_of(d, {}).overhead_bytes, 24u << 20);
  EXPECT_GT(room_of(d, 50ull << 30).overhead_bytes, 500u << 20) << "a memory that was named holds the context too";
  EXPECT_EQ(room_of(d, 120ull << 30).memory_bytes, 120ull << 30) << "other programs may be gone by then";
  EXPECT_EQ(room_of(d, 200ull << 30).memory_bytes, d.total_bytes);
}

// "24 × B·N·W·2 = 4096·768·2": every name must give the number that stands for it. Partial sums have as many rows as there are rows in
// all until there are too many: they were called B·N, with another number behind.
TEST(MemoryModel, FormulasGiveTheNumbersBesideThem) {
  Device card;
  for (const Device& d : known_devices())
    if (d.sm == 90) card = d;
  ASSERT_EQ(card.sm, 90);
  ModelMemory m;
  m.model = tiny(), m.batches = {64}, m.lens = {512}, m.levers.precision = {*precision_named("bf16")};
  m.device = card;
  const engine::PlainModel c = sizes_of(m.model);
  std::map<std::string, double> sizes{{"B", 64},
                                      {"N", 512},
                                      {"V", c.vocab},
                                      {"W", c.width},
                                      {"F", c.ffn},
                                      {"2F", 2 * c.ffn},
                                      {"D", c.head_dim},
                                      {"H", c.heads},
                                      {"(H+2K)", c.heads + 2 * c.kv_heads},
                                      {"(H+K)", c.heads + c.kv_heads}};
  const auto product = [&](const std::string& words) {
    double all = 1;
    std::size_t from = 0;
    for (std::size_t to = 0; to != std::string::npos; from = to + 2) {
      to = words.find("·", from);
      const std::string word = words.substr(from, to == std::string::npos ? to : to - from);
      all *= sizes.contains(word) ? sizes.at(word) : std::stod(word);
    }
    return all;
  };
  const auto of_all = [&](const std::string& words) {  // "24 × 2F·W·4"
    const auto times = words.find(" × ");
    return times == std::string::npos ? product(words) : std::stod(words) * product(words.substr(times + 4));
  };
  int named = 0;
  const auto all = json_of(memory_model(m));
  for (const auto& row : all["rows"][0]["components"]) {
    const std::string formula = row["formula"];
    const auto equals = formula.find(" = ");
    const std::string numbers = equals == std::string::npos ? formula : formula.substr(equals + 3);
    const double rounding = 256 * row["tensors"].get<double>();  // of the arena
    EXPECT_LE(of_all(numbers), row["bytes"].get<double>()) << row["name"] << " " << formula;
    EXPECT_GT(of_all(numbers) + rounding, row["bytes"].get<double>()) << row["name"] << " " << formula;
    if (equals == std::string::npos || formula.starts_with("C·")) continue;  // the rows of logits at once are the head's to choose
    EXPECT_EQ(of_all(formula.substr(0, equals)), of_all(numbers)) << row["name"] << " " << formula;
    ++named;
  }
  EXPECT_GT(named, 20);

  // One name of several shapes is a row for each of them.
  const auto numbers_are_bytes = [&](const auto& rows) {
    for (const auto& row : rows) {
      const std::string formula = row["formula"];
      const auto equals = formula.find(" = ");
      const double numbers = of_all(equals == std::string::npos ? formula : formula.substr(equals + 3)), bytes = row["bytes"];
      EXPECT_TRUE(numbers <= bytes && bytes < numbers + 256 * row["tensors"].template get<double>()) << row["name"] << " " << formula;
    }
  };
  ModelMemory other = m;
  other.model = engine::model_described("small"), other.batches = {2};
  other.levers.precision = {*precision_named("fp8")};
  const auto fp8 = json_of(memory_model(other));
  int scales = 0;
  for (const auto& row : fp8["rows"][0]["components"]) scales += row["name"] == "scales";
  EXPECT_GT(scales, 3) << "of weights and of activations, of several widths";
  numbers_are_bytes(fp8["rows"][0]["components"]);
  other.levers = m.levers;
  other.ranks.count = 2, other.ranks.sharding = engine::Sharding::everything;
  numbers_are_bytes(json_of(memory_model(other))["rows"][0]["components"]);

  m.model = engine::model_described("llama-3.1-8b");  // scaled positions change no dimension
  m.batches = {1};
  const auto llama = json_of(memory_model(m));
  const auto& first = llama["rows"][0]["components"][0];
  EXPECT_EQ(first["formula"], "64 × 2F·W·4 = 64 × 28672·4096·4") << first["name"];
  m.model = engine::model_described("gemma-2-2b");  // its layers are not alike
  const auto gemma = json_of(memory_model(m));
  EXPECT_EQ(gemma["rows"][0]["components"][0]["formula"], "52 × 18432·2304·4");
  for (const auto& note : gemma["notes"]) EXPECT_EQ(note.get<std::string>().find("W width"), std::string::npos) << note;
}

TEST(MemoryModel, ScalesAndFitsAsTheStepThatWasAsked) {
  ModelMemory m;
  m.model = tiny(), m.batches = {2}, m.lens = {16, 64}, m.levers.precision = {*precision_named("bf16")};
  const auto exponent = [&] { return json_of(memory_model(m))["scaling"][0]["exponent_of_peak"].get<double>(); };
  m.memory_bytes = 1ull << 30;
  const double plain = exponent();
  const Holding holding{.masters = Masters::halves, .updating = Updating::during, .gradients = Gradients::half};
  m.levers.holding = {.masters = {holding.masters}, .updating = {holding.updating}, .gradients = {holding.gradients}};
  std::vector<std::pair<double, double>> points;
  for (const auto len : m.lens) {
    Recipe r{m.model, 2, len, m.levers.precision[0]};
    r.holding = holding;
    points.emplace_back(double(len), double(forecast_peak(r, m.device, m.workers)));
  }
  EXPECT_NE(exponent(), plain);
  EXPECT_DOUBLE_EQ(exponent(), growth_exponent(points));
  EXPECT_EQ(memory_model(m).answer, Answer::yes);
  m.memory_bytes = 1000;
  const Outcome none = memory_model(m);
  EXPECT_EQ(none.answer, Answer::no);
  for (const auto& row : rows_of(none)) EXPECT_EQ(row["fits"], false);
}

TEST(MemoryAttention, SaysWhatDoesNotFit) {
  AttentionMemory a;
  a.dims = {16}, a.lens = {64, 4096}, a.memory_bytes = 1 << 24, a.variants = {"plain"}, a.batch = 1;
  const Outcome some = memory_attention(a);
  EXPECT_EQ(some.answer, Answer::yes);
  const auto rows = rows_of(some);
  EXPECT_EQ(rows[0]["status"], "ok");
  EXPECT_EQ(rows[1]["status"], "oom");
  EXPECT_GT(rows[1]["peak_bytes"], 1 << 24) << "how much it would take is said all the same";
  EXPECT_NE(rows[1]["why"].get<std::string>().find("16.0 MiB allowed"), std::string::npos) << rows[1]["why"];
  a.memory_bytes = 100;
  EXPECT_EQ(memory_attention(a).answer, Answer::no);
}

TEST(MemoryAttention, HasNoNumbersForCardsThatOurKernelsDoNotRunOn) {
  AttentionMemory a;
  for (const auto& [card, words] : {std::pair{"t4", "sm_75: this library's kernels need sm_80"}, std::pair{"mi300x", "runs no CUDA"}}) {
    a.device = device_described(card);
    a.dims = {64}, a.lens = {1024}, a.variants = {"plain", "flash"}, a.batch = 1;
    const Outcome o = memory_attention(a);
    EXPECT_EQ(o.answer, Answer::no);
    for (const auto& row : rows_of(o)) {
      EXPECT_EQ(row["status"], "refused");
      EXPECT_NE(row["why"].get<std::string>().find(words), std::string::npos) << row["why"];
    }
    ModelMemory m;
    m.device = a.device;
    EXPECT_THROW(memory_model(m), Error);
  }
}

TEST(Architecture, DescribesEveryKnownCard) {
  for (const Device& d : known_devices()) {
    const Architecture& a = architecture_of(d.sm);
    if (d.sm < 80) {
      EXPECT_EQ(a.sm, 0) << d.name << ": no kernel of ours runs before Ampere";
      continue;
    }
    if (!a.runs_cuda) continue;
    EXPECT_EQ(a.sm / 10, d.sm / 10) << d.name << " has a row of its generation";
    EXPECT_GE(a.shared_bytes, 99 * 1024) << "what kernels from sm_80 on rely on";
  }
  int before = -1;
  for (const Architecture& a : architectures()) {
    EXPECT_GT(a.sm, before) << "oldest first";
    before = a.sm;
    EXPECT_EQ(&architecture_of(a.sm), &a);
  }
  EXPECT_EQ(architecture_of(103).name, "Blackwell");
  EXPECT_EQ(architecture_of(75).shared_bytes, 48 * 1024);
  EXPECT_EQ(flops_per_cycle(architecture_of(90), {DType::bf16}), 4096);
  EXPECT_EQ(flops_per_cycle(architecture_of(80), {DType::f32, Math::tf32}), 1024);
}

}  // namespace plan_tests
}  // namespace headroom::studies
