// headroom precision <topic> — what small number formats do to sums, to the ops of a model, to norms, and what they can say.
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/described_options.h"
#include "cli/options.h"
#include "studies/precision/accumulate.h"
#include "studies/precision/autocast.h"
#include "studies/precision/formats.h"
#include "studies/precision/fp8.h"
#include "studies/precision/norm.h"

namespace headroom::cli {
namespace {

// The card whose bits are shown beside the CPU's, where one is chosen.
std::optional<Place> card_of(const Common& common) {
  const Device d = chosen_device(common);
  if (d.kind == DeviceKind::cpu) return std::nullopt;
  return std::optional<Place>(std::in_place, d, 1);
}
const Place* pointer(const std::optional<Place>& p) { return p ? &*p : nullptr; }

RunCommand accumulate(CLI::App& app, Common& common) {
  struct Asked {
    std::vector<double> values;
    std::vector<std::int64_t> counts;
    studies::precision::AccumulateSettings settings;
  };
  auto asked = std::make_shared<Asked>();
  constexpr double fp32_largest = std::numeric_limits<float>::max();
  add_value(app, asked->values, {.name = "value", .about = "What is added [0.01]", .real = {-fp32_largest, fp32_largest}});
  add_value(app, asked->counts, {.name = "count", .about = "How often [1000]", .allowed = {1, 100'000'000}});
  add_described(app, asked->settings);
  app.footer(
      "Without --value and --count: 0.01 1000 times and 0.001 10000 times.\n\nExamples:\n  headroom precision accumulate\n  headroom "
      "precision accumulate --value 0.01 --count 1000 --method sequential\n"
      "  headroom precision accumulate --value 1 --count 100,1000 --dtype bf16 --format csv");
  return [asked, &common] {
    const auto card = card_of(common);
    auto settings = asked->settings;
    settings.seed = common.seed;
    if (!asked->values.empty() || !asked->counts.empty()) {
      const auto values = asked->values.empty() ? std::vector<double>{0.01} : asked->values;
      const auto counts = asked->counts.empty() ? std::vector<std::int64_t>{1000} : asked->counts;
      settings.sums.clear();
      for (double value : values)
        for (auto count : counts) settings.sums.push_back({value, count});
    }
    return deliver(studies::precision::accumulate_record(settings, pointer(card)), common);
  };
}

RunCommand autocast(CLI::App& app, Common& common) {
  auto s = std::make_shared<studies::precision::AutocastSettings>();
  add_described(app, *s);
  for (const char* named : {"--model", "--policy"}) app.get_option(named)->type_name("NAME|FILE");
  app.footer(
      "Examples:\n  headroom precision autocast --model toy --dtype fp16\n  headroom precision autocast --model small --dtype bf16 "
      "--explain\n"
      "  headroom precision autocast --model small --policy pytorch\n"
      "  headroom precision autocast --policy mine.json  # with {\"ops\": {\"layer_norm\": {\"inputs\": \"low\", \"output\": \"low\"}}}");
  return [s, &common] {
    chosen_cpu(common, "precision autocast");
    return deliver(studies::precision::autocast_record(*s), common);
  };
}

RunCommand norm(CLI::App& app, Common& common) {
  auto s = std::make_shared<studies::precision::NormSettings>();
  add_described(app, *s);
  app.footer(
      "Examples:\n  headroom precision norm\n  headroom precision norm --dtype fp16 --width 768,4096 --magnitude 1,10,100 --eps 1e-5,1e-8");
  return [s, &common] {
    const auto card = card_of(common);
    s->seed = common.seed;
    return deliver(studies::precision::norm_record(*s, pointer(card)), common);
  };
}

RunCommand formats(CLI::App& app, Common& common) {
  auto s = std::make_shared<studies::precision::FormatsSettings>();
  add_described(app, *s);
  app.footer("Examples:\n  headroom precision formats\n  headroom precision formats --format md");
  return [s, &common] {
    const auto card = card_of(common);
    s->seed = common.seed;
    return deliver(studies::precision::formats_record(*s, pointer(card)), common);
  };
}

RunCommand fp8(CLI::App& app, Common& common) {
  auto s = std::make_shared<studies::precision::Fp8Settings>();
  add_described(app, *s);
  app.add_option("--text", s->text, "A file of text to train on before the step that is measured [random tokens]")->type_name("FILE");
  app.footer("Examples:\n  headroom precision fp8\n  headroom precision fp8 --text examples/lighthouse.txt --steps 200 --scales block");
  return [s, &common] {
    chosen_cpu(common, "precision fp8");
    s->seed = common.seed;
    return deliver(studies::precision::fp8_record(*s), common);
  };
}

constexpr Command precision_topics[] = {
    {"accumulate", "Sums of equal numbers in every format: the error, where they stall, and why", accumulate},
    {"autocast", "The dtype of every op's inputs and output under mixed precision, and the rule behind it", autocast},
    {"norm", "Errors of LayerNorm and RMSNorm; where squares overflow, and where epsilon is lost", norm},
    {"fp8", "Every product of a step in fp8 against FP64, by tensor and layer, and on data that hurts", fp8},
    {"formats", "Range, precision and bytes of fp32, tf32, bf16, fp16, fp8, fp4 and of blocks with scales", formats},
};

}  // namespace

RunCommand precision(CLI::App& app, Common& common) { return with_topics(app, common, precision_topics); }

}  // namespace headroom::cli
