// headroom precision <topic> — what small number formats do to sums, to the ops of a model, to norms, and what they can say.
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "studies/precision_accumulate.h"
#include "studies/precision_autocast.h"
#include "studies/precision_formats.h"
#include "studies/precision_norm.h"

namespace headroom::cli {
namespace {

constexpr double fp32_largest = std::numeric_limits<float>::max();

std::vector<double> numbers(const std::vector<std::string>& words, const char* who, double low, double high) {
  std::vector<double> values;
  for (const auto& w : words) values.push_back(parse_number(w, who, low, high));
  return values;
}

// The card whose bits are shown beside the CPU's, where one is chosen.
std::optional<Place> card_of(const Common& common) {
  const Device d = chosen_device(common);
  if (d.kind == DeviceKind::cpu) return std::nullopt;
  return std::optional<Place>(std::in_place, d, 1);
}
const Place* pointer(const std::optional<Place>& p) { return p ? &*p : nullptr; }

Run accumulate(CLI::App& app, Common& common) {
  struct Asked {
    std::vector<std::string> values;
    std::vector<std::int64_t> counts;
    precision::AccumulateSettings settings;
  };
  auto asked = std::make_shared<Asked>();
  auto& s = asked->settings;
  add_words(app, "--value", asked->values, "What is added [0.01]");
  add_integers(app, "--count", asked->counts, {1, 100'000'000}, "How often [1000]");
  add_choices(app, "--dtype", s.dtypes, precision::accumulate_dtypes(), "Formats of the sum and of what is added");
  add_choices(app, "--method", s.methods, precision::accumulate_methods(), "How numbers are added");
  add_integer(app, "--block", s.block, {1, 1'000'000}, "Numbers in a block of the blocked sum");
  app.footer(
      "Without --value and --count: 0.01 1000 times and 0.001 10000 times.\n\nExamples:\n  headroom precision accumulate\n  headroom "
      "precision accumulate --value 0.01 --count 1000 --method sequential\n"
      "  headroom precision accumulate --value 1 --count 100,1000 --dtype bf16 --format csv");
  return [asked, &common] {
    const auto card = card_of(common);
    auto settings = asked->settings;
    settings.seed = common.seed;
    if (!asked->values.empty() || !asked->counts.empty()) {
      const auto values =
          asked->values.empty() ? std::vector<double>{0.01} : numbers(asked->values, "--value", -fp32_largest, fp32_largest);
      const auto counts = asked->counts.empty() ? std::vector<std::int64_t>{1000} : asked->counts;
      settings.sums.clear();
      for (double value : values)
        for (auto count : counts) settings.sums.push_back({value, count});
    }
    return deliver(precision::accumulate_record(settings, pointer(card)), common);
  };
}

Run autocast(CLI::App& app, Common& common) {
  auto s = std::make_shared<precision::AutocastSettings>();
  app.add_option("--model", s->model,
                 "toy, a preset of the language model (small …), or a JSON file: a list of ops or a model's configuration")
      ->type_name("NAME|FILE")
      ->default_str(s->model);
  add_choices(app, "--dtype", s->dtypes, {"fp16", "bf16"}, "The 16-bit type that is asked for");
  app.add_option("--policy", s->policy, "The table of rules: headroom, pytorch, or a JSON file whose rows override headroom's")
      ->type_name("NAME|FILE")
      ->default_str(s->policy);
  add_flag(app, "--explain", s->explain, "Say for every row why its rule is so, and print the table of rules");
  app.footer(
      "Examples:\n  headroom precision autocast --model toy --dtype fp16\n  headroom precision autocast --model small --dtype bf16 "
      "--explain\n"
      "  headroom precision autocast --model small --policy pytorch\n"
      "  headroom precision autocast --policy mine.json     with {\"ops\": {\"layer_norm\": {\"inputs\": \"low\", \"output\": \"low\"}}}");
  return [s, &common] { return chosen_cpu(common, "precision autocast"), deliver(precision::autocast_record(*s), common); };
}

Run norm(CLI::App& app, Common& common) {
  struct Asked {
    std::vector<std::string> magnitudes{"0.001", "1", "100", "10000"}, eps{"1e-5"};
    precision::NormSettings settings;
  };
  auto asked = std::make_shared<Asked>();
  auto& s = asked->settings;
  add_choices(app, "--norm", s.norms, {"layernorm", "rmsnorm"}, "Which normalisation");
  add_choices(app, "--dtype", s.dtypes, {"fp32", "bf16", "fp16"},
              "Format of inputs and outputs; each with statistics in fp32 and in itself");
  add_integers(app, "--width", s.widths, {1, 1'000'000}, "Numbers that are normalised together");
  add_words(app, "--magnitude", asked->magnitudes, "Standard deviations of the inputs");
  add_words(app, "--eps", asked->eps, "What is added to the mean square");
  add_integer(app, "--rows", s.rows, {1, 1000}, "Vectors that each error is measured on");
  app.footer(
      "Examples:\n  headroom precision norm\n  headroom precision norm --dtype fp16 --width 768,4096 --magnitude 1,10,100 --eps 1e-5,1e-8");
  return [asked, &common] {
    const auto card = card_of(common);
    auto settings = asked->settings;
    settings.seed = common.seed;
    settings.magnitudes = numbers(asked->magnitudes, "--magnitude", 1e-40, fp32_largest);
    settings.eps = numbers(asked->eps, "--eps", 0, fp32_largest);
    return deliver(precision::norm_record(settings, pointer(card)), common);
  };
}

Run formats(CLI::App& app, Common& common) {
  auto s = std::make_shared<precision::FormatsSettings>();
  add_integer(app, "--values", s->values, {1, 100'000'000}, "Normal numbers that the error is measured on");
  app.footer("Examples:\n  headroom precision formats\n  headroom precision formats --format md");
  return [s, &common] {
    const auto card = card_of(common);
    s->seed = common.seed;
    return deliver(precision::formats_record(*s, pointer(card)), common);
  };
}

constexpr Command precision_topics[] = {
    {"accumulate", "Sums of equal numbers in every format: the error, where they stall, and why", accumulate},
    {"autocast", "The dtype of every op's inputs and output under mixed precision, and the rule behind it", autocast},
    {"norm", "What LayerNorm and RMSNorm lose, where squares overflow and where epsilon vanishes", norm},
    {"formats", "Range, precision and bytes of fp32, tf32, bf16, fp16, fp8, fp4 and of blocks with scales", formats},
};

}  // namespace

Run precision(CLI::App& app, Common& common) { return with_topics(app, common, precision_topics); }

}  // namespace headroom::cli
