#include "cli/model_options.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "store/results.h"
#include "studies/ceilings.h"

namespace headroom::cli {

void add_model(CLI::App& app, ModelOptions& m) {
  app.add_option("--model", m.name, "small, medium, large, xl, 2.7B, 8B, or a JSON file: ours or a Hugging Face config.json")
      ->default_str(m.name);
  const auto override_with = [&](const char* name, std::int64_t& value, const char* about) {
    add_integer(app, name, value, {0, 1 << 24}, about);
  };
  override_with("--layers", m.layers, "Blocks; 0: the model's");
  override_with("--width", m.width, "Width; 0: the model's. As many heads where they divide it, else heads of the same size");
  override_with("--heads", m.heads, "Query heads; 0: the model's");
  override_with("--kv-heads", m.kv_heads, "Key heads; 0: the model's, or as many as --heads");
  override_with("--ffn", m.ffn, "Width of the feed-forward layer; 0: the model's, or 4 x --width");
  override_with("--vocab", m.vocab, "Vocabulary; 0: the model's");
}

engine::ModelConfig ModelOptions::config() const {
  engine::ModelConfig c = engine::model_described(name);
  if (layers) c.layers = layers;
  if (width) c.width = width, c.ffn = 4 * width;
  if (ffn) c.ffn = ffn;
  if (vocab) c.vocab = vocab;
  if (heads) c.heads = c.kv_heads = heads;
  if (width && !heads && c.width % c.heads != 0 && c.width % c.head_dim == 0) c.heads = c.kv_heads = c.width / c.head_dim;
  if (kv_heads) c.kv_heads = kv_heads;
  if (width || heads) {
    check(c.width % c.heads == 0, Code::bad_argument, "--width {} is not a multiple of {} heads; say --heads too", c.width, c.heads);
    c.head_dim = c.width / c.heads;
  }
  const auto changed = [&](const char* what, std::int64_t asked) {
    if (asked) c.name += fmt::format(" {} {}", what, asked);
  };
  changed("layers", layers), changed("width", width), changed("heads", heads), changed("kv-heads", kv_heads), changed("ffn", ffn),
      changed("vocab", vocab);
  engine::check(c);
  return c;
}

std::vector<Precision> precisions_of(const std::vector<std::string>& names) {
  std::vector<Precision> out;
  for (const auto& n : names) out.push_back(*precision_named(n));
  return out;
}
std::vector<Precision> precisions_of(const std::vector<std::string>& names, const Device& where) {
  for (const auto& n : names)
    check(n != "tf32" || where.kind != DeviceKind::cpu, Code::bad_argument,
          "--precision tf32 is a GPU's arithmetic, its bytes are fp32's; take fp32, or name a GPU, present or not, as in --device h200");
  return precisions_of(names);
}
std::vector<engine::Keep> keeps_of(const std::vector<std::string>& names) {
  std::vector<engine::Keep> out;
  for (const auto& n : names) out.push_back(*engine::keep_named(n));
  return out;
}
std::vector<std::string> keep_words() { return {engine::keep_names.begin(), engine::keep_names.end()}; }

Device described_device(const Common& common) {
  const std::string& name = common.device;
  return name.empty() || name == "cpu" || name.starts_with("cuda") ? chosen_device(common) : device_described(name);
}

std::optional<Ceilings> kept_ceilings(const Device& d, const Common& common) {
  const std::string file = common.db.empty() ? default_results_file() : common.db;
  if (!std::filesystem::exists(file)) return {};
  const Results results(file, Results::Access::read);
  for (const auto& run : results.runs()) {
    if (run.command != "device" || run.machine != d.name || run.finished.empty()) continue;
    std::vector<studies::CeilingRow> rows;
    for (const StoredRow& stored : results.rows(run.id)) {
      const auto row = nlohmann::json::parse(stored.row);
      rows.push_back({row.at("what").get<std::string>(), row.at("dtype").get<std::string>(), 0, {}});
      rows.back().copy_bytes_per_s = row.at("copy_bytes_per_s").get<double>(), rows.back().flops = row.at("flops_per_s").get<double>();
    }
    Ceilings c = studies::best_of(rows);
    c.fp8_flops = d.ceilings.fp8_flops;
    c.source = fmt::format("measured by headroom device, run {}", run.id);
    if (c.fp16_flops == 0) c.fp16_flops = c.bf16_flops, c.source += "; fp16 taken as bf16";  // on a CPU both are widened tile by tile
    return c;
  }
  return {};
}

Ceilings ceilings_here(const Device& d, const Common& common) {
  if (auto kept = kept_ceilings(d, common)) return *kept;
  if (!d.ceilings.source.empty()) return d.ceilings;
  Ceilings c = studies::measure_ceilings(d, {.warmup = 1, .steps = 10, .seconds = 0.3}, interrupted).ceilings;
  const bool fp16_too = c.fp16_flops > 0;
  if (!fp16_too) c.fp16_flops = c.bf16_flops;
  c.source =
      fmt::format("measured just now, briefly{}. headroom device measures longer and keeps it", fp16_too ? "" : "; fp16 taken as bf16");
  return c;
}

}  // namespace headroom::cli
