#include "cli/model_options.h"

#include "base/error.h"
#include "cli/help.h"
#include "engine/model/models.h"
#include "engine/model/plain_model.h"
#include "gpu/device.h"
#include "studies/comm/comm_time.h"
#include "studies/device/ceilings.h"
#include "studies/device/study.h"

namespace headroom::cli {

void add_model(CLI::App& app, ModelOptions& m) {
  add_described(app, m);
  std::string names;
  for (const engine::Decoder& one : engine::presets()) names += one.name + "|";
  app.get_option("--model")->type_name(names + "NAME|FILE");
}

void group_by_subject(CLI::App& app) {
  std::vector<std::string> precision_and_memory{"--memory"};
  engine::Levers all;
  describe(all, [&](auto&, const Description& d) { precision_and_memory.push_back(first_option_of(d)); });
  group(app,
        {{"Model", {"--model", "--layers", "--width", "--heads", "--kv-heads", "--ffn", "--vocab"}},
         {"The step", {"--as", "--phase", "--only", "--batch", "--len", "--documents", "--steps", "--seconds", "--warmup", "--resume"}},
         {"Precision and memory", precision_and_memory},
         {"As PyTorch",
          {"--adam", "--optimizer-in-backward", "--parameters", "--lora", "--base", "--loss", "--selective", "--offload-activations",
           "--compile", "--accumulate", "--softmax", "--silu", "--workspace-mib"}},
         {"Inference", {"--weights", "--cache", "--page", "--chunk"}},
         {"GPUs and processes",
          {"--gpus", "--per-host", "--link", "--ranks", "--rank", "--rendezvous", "--shard", "--split-tokens", "--threads"}}});
}

void say_usual_precision(CLI::App& app) {
  CLI::Option* option = app.get_option("--precision");
  option->default_str("")->description(option->get_description() + " [bf16 on a GPU, fp32 on a CPU]");
}

bool names_precision(const CLI::App& app) { return app.count("--precision") > 0; }

std::string ModelOptions::as_typed() const {
  std::string words;
  describe(*this, [&](const auto& member, const Description& d) {
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::string>)
      words = first_option_of(d) + " " + as_typed_in_a_shell(member);
    else if (member != 0)
      words += fmt::format(" {} {}", first_option_of(d), member);
  });
  return words;
}

std::string model_and_device(const ModelOptions& m, const Common& common, const Device& device) {
  return m.as_typed() + " --device " +
         (common.device.empty() ? device.key.empty() ? "cuda" : device.key : as_typed_in_a_shell(common.device));
}

std::vector<engine::Decoder> ModelOptions::models() const {
  std::vector<engine::Decoder> all;
  for (const std::string& one : parse_list(name, "--model")) {
    ModelOptions named = *this;
    named.name = one;
    all.push_back(named.model());
  }
  return all;
}

engine::Decoder ModelOptions::model() const {
  const engine::Decoder described = engine::model_described(name);
  if (!(layers || width || heads || kv_heads || ffn || vocab)) return described;
  const auto sizes = engine::plain_of(described);
  check(sizes.has_value(), Code::bad_argument,
        "--layers, --width, --heads, --kv-heads, --ffn, --vocab: {} is taken as its file says; leave these out, or change the file",
        described.name);
  engine::PlainModel m = *sizes;
  const bool other_width = width && width != m.width, other_heads = heads && heads != m.heads;  // the model's own numbers change nothing
  if (layers) m.layers = layers;
  if (other_width) {
    m.width = width;
    m.ffn = 4 * width;
  }
  if (ffn) m.ffn = ffn;
  if (vocab) m.vocab = vocab;
  if (other_heads) m.heads = m.kv_heads = heads;
  if (other_width && !heads && m.width % m.heads != 0 && m.width % m.head_dim == 0) m.heads = m.kv_heads = m.width / m.head_dim;
  if (kv_heads) m.kv_heads = kv_heads;
  if (other_width || other_heads) {
    check(m.width % m.heads == 0 || !heads, Code::bad_argument, "--heads {}: they do not divide the width, which is {}", heads, m.width);
    check(m.width % m.heads == 0, Code::bad_argument, "--width {} is not a multiple of {} heads; give --heads too", m.width, m.heads);
    m.head_dim = m.width / m.heads;
  }
  const auto changed = [&](const char* what, std::int64_t asked) {
    if (asked) m.name += fmt::format(" {} {}", what, asked);
  };
  changed("layers", layers);
  changed("width", width);
  changed("heads", heads);
  changed("kv-heads", kv_heads);
  changed("ffn", ffn);
  changed("vocab", vocab);
  engine::check(m);
  return engine::with_sizes(described, m);
}

bool is_here(const Common& common) {
  const std::string& name = common.device;
  return name.empty() || name == "cpu" || name.starts_with("cuda");
}

Device described_device(const Common& common) { return is_here(common) ? chosen_device(common) : device_described(common.device); }

Device account_device(const Common& common, std::optional<std::uint64_t> memory) {
  if (!common.device.empty() || cuda_by_default()) return described_device(common);
  Device d = device_described("h200");
  if (!memory) return d;
  d.name = fmt::format("a GPU of {} (else as an {})", bytes_in_words(double(*memory)), d.name);
  d.memory_bytes = d.total_bytes = *memory + overhead_of(d).beside.driver_keeps_bytes;  // its driver lends of that what was asked for
  return d;
}

namespace {

// What other runs measured, from the store. A store that is busy costs no answer: it is said once, and what is kept there is not used.
template <class Read>
auto from_store(const Common& common, Read read) {
  static bool busy = false;
  try {
    return busy ? decltype(read())() : read();
  } catch (const StoreBusy& e) {
    busy = true;
    if (!common.silent) say(fmt::format("{}. Ceilings that are kept there are not used", e.what()));
    return decltype(read())();
  }
}

}  // namespace

std::optional<Ceilings> kept_ceilings(const Device& d, const Common& common) {
  return from_store(common, [&] { return studies::kept_ceilings(d, common.db); });
}

void take_kept_links(Device& d, const Common& common) {
  if (const auto link = from_store(common, [&] { return studies::kept_link(d, common.db); })) d.ceilings.link_bytes_per_s = *link;
  if (const auto host = from_store(common, [&] { return studies::kept_host_link(d, common.db); })) d.ceilings.host_bytes_per_s = *host;
}

bool take_kept(Device& d, const Common& common) {
  const auto kept = kept_ceilings(d, common);
  if (kept) d.ceilings = *kept;
  take_kept_links(d, common);
  if (auto efficiencies = from_store(common, [&] { return studies::kept_efficiencies(d, common.db); }))
    d.efficiencies = std::move(efficiencies);
  return kept.has_value();
}

Device with_ceilings(Device d, const Common& common) {
  if (take_kept(d, common) || !d.ceilings.source.empty()) return d;
  say(fmt::format("measuring the ceilings of {}, a few seconds; `headroom device` measures longer and keeps them", d.name));
  Ceilings c = studies::measure_ceilings(d, {.warmup = 1, .steps = 10, .seconds = 0.3}, interrupted).ceilings;
  const bool fp16_too = c.fp16_flops > 0;
  if (!fp16_too) c.fp16_flops = c.bf16_flops;
  c.link_bytes_per_s = d.ceilings.link_bytes_per_s, c.host_bytes_per_s = d.ceilings.host_bytes_per_s;
  c.source = fmt::format("measured just now, briefly{}. headroom device measures longer and keeps the result",
                         fp16_too ? "" : "; fp16 taken as bf16");
  d.ceilings = c;
  return d;
}

}  // namespace headroom::cli
