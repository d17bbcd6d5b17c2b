// Options that every command about a language model shares, and the machine it is forecast for.
#pragma once
#include <memory>
#include <optional>

#include "cli/described_options.h"
#include "cli/options.h"
#include "engine/pass/training.h"

namespace headroom::cli {

struct ModelOptions {
  std::string name = "small";
  std::int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;  // 0: as the model says
  engine::Decoder model() const;
  std::vector<engine::Decoder> models() const;  // one for each name
  std::string as_typed() const;                 // "--model small --layers 4"
};
void describe(Of<ModelOptions> auto& m, auto&& f) {
  constexpr Between size{0, 1 << 24};
  f(m.name, {.name = "model",
             .about = "A preset, a published model (llama-3.1-8b, Qwen/Qwen3-4B), a JSON file (ours or a config.json), or its folder"});
  f(m.layers, {.name = "layers", .about = "Blocks; 0: the model's", .allowed = size});
  f(m.width, {.name = "width",
              .about = "Width; 0: the model's. Keeps the number of heads if it divides the width, else the size of a head",
              .allowed = size});
  f(m.heads, {.name = "heads", .about = "Query heads; 0: the model's", .allowed = size});
  f(m.kv_heads, {.name = "kv_heads", .about = "Key heads; 0: the model's, or as many as --heads", .allowed = size});
  f(m.ffn, {.name = "ffn", .about = "Width of the feed-forward layer; 0: the model's, or 4 x --width", .allowed = size});
  f(m.vocab, {.name = "vocab", .about = "Vocabulary; 0: the model's", .allowed = size});
}
void add_model(CLI::App&, ModelOptions&);
// The help of a command about a model's step in groups: model, step, precision and memory, PyTorch's, inference, GPUs.
void group_by_subject(CLI::App&);

// --precision of what runs: where it is not given, what is usual on the device.
void say_usual_precision(CLI::App&);  // writes it into the help
bool names_precision(const CLI::App&);

// --device: the machine here, or any that devices.json or a file describes.
Device described_device(const Common&);
// The device of an account, which needs no machine: without --device a GPU that is here, else an H200; the same for our step and PyTorch's.
// With --memory alone it is named a card of that memory, because no H200 was asked for.
Device account_device(const Common&, std::optional<std::uint64_t> memory = {});
// "--model small --device h200", for a command that says the same of them.
std::string model_and_device(const ModelOptions&, const Common&, const Device&);
bool is_here(const Common&);  // whether the device that --device names is here

// What `headroom device` measured last of the machine that is here, if it ever did; else what is known of it; else measured now, in seconds.
std::optional<Ceilings> kept_ceilings(const Device&, const Common&);
Device with_ceilings(Device, const Common&);
// As `headroom comm` measured the link to other cards last, and `headroom device` the link to the host, if they ever did.
void take_kept_links(Device&, const Common&);
// All that was kept of the machine that is here: ceilings, links, efficiencies. False where none of its ceilings were.
bool take_kept(Device&, const Common&);

}  // namespace headroom::cli
