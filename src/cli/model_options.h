// Options that every command about a language model shares, and the machine it is forecast for.
#pragma once
#include <memory>
#include <optional>

#include "cli/options.h"
#include "engine/training.h"

namespace headroom::cli {

struct ModelOptions {
  std::string name = "small";
  std::int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;  // 0: as the model says
  engine::ModelConfig config() const;
};
void add_model(CLI::App&, ModelOptions&);

std::vector<Precision> precisions_of(const std::vector<std::string>& names);
std::vector<Precision> precisions_of(const std::vector<std::string>& names, const Device& where);  // tf32 is refused on a CPU
std::vector<engine::Keep> keeps_of(const std::vector<std::string>& names);
std::vector<std::string> keep_words();

// --device: the machine here, or any that devices.json or a file describes.
Device described_device(const Common&);

// What `headroom device` measured last of the machine that is here, if it ever did; else what is known of it; else measured now, in seconds.
std::optional<Ceilings> kept_ceilings(const Device&, const Common&);
Ceilings ceilings_here(const Device&, const Common&);

}  // namespace headroom::cli
