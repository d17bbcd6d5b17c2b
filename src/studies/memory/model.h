// memory_model — where every byte of a model goes, as it is trained or as it answers: a dry run, its tensors grouped by name over the
// blocks, with formulas, timeline, growth with len, the largest sizes, and ways to save bytes. Ours, or PyTorch eager's.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/precision_words.h"
#include "engine/forecast/forecast.h"
#include "pytorch/language_model.h"
#include "studies/life.h"
#include "studies/memory/asked.h"
#include "studies/memory/room.h"
#include "studies/memory/serving.h"
#include "studies/step/words.h"

namespace headroom::studies {

struct ModelMemory {
  engine::Decoder model;
  std::vector<std::int64_t> batches{4}, lens{1024};
  engine::LeverLists levers{.precision = {}, .attention = {}};  // a row for each combination; none: the device's usual precision, flash
  engine::Ranks ranks{};                                        // bytes are of one of them
  ModelUse use = ModelUse::train;
  Whose whose = Whose::headroom;
  pytorch::StepChoices as_pytorch{};
  ServingChoices serving{};
  std::optional<std::uint64_t> memory_bytes;  // empty: all that a program can have of the device
  bool measure = false;                       // also run a step of each; the device is then one that is present
  Device device;
  std::string model_and_device{};  // the options that named them, for commands that a reader can copy
  int workers = 1;                 // threads that the CPU's scratch is counted for
  std::function<void(double share, const std::string& doing)> progress = [](double, const std::string&) {};

  std::string attention_family() const {  // for accounts with one
    return levers.attention.empty() ? "flash" : levers.attention.front();
  }
};
// What every account of a model is asked about: ours, PyTorch's, in training or inference.
void describe_cases(Of<ModelMemory> auto& m, auto&& f) {
  f(m.batches, {.name = "batch",
                .about = "Sequences; of each GPU where there are several, of all with --split-tokens and in inference",
                .allowed = {1, 1 << 30}});
  f(m.lens, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 1 << 30}});
  f(m.memory_bytes, memory_limit);
}
void describe_levers(Of<ModelMemory> auto& m, auto&& f) {
  describe(m.levers, [&](auto& member, Description d) {
    if (std::string_view(d.name) == "precision") d.about = "Dtype of activations and matmuls [bf16 on a GPU, fp32 on a CPU]";
    if (std::string_view(d.name) == "attention") d.about = "plain keeps N×N matrices, flash does not [flash]";
    f(member, d);
  });
  describe(m.ranks, [&](auto& member, Description d) {
    if (std::string_view(d.name) == "ranks") d.about = "Ranks that take the step together; bytes are of one", d.option = "--ranks,--gpus";
    f(member, d);
  });
}
void describe(Of<ModelMemory> auto& m, auto&& f) {
  describe_cases(m, f);
  describe_levers(m, f);
  f(m.whose, {.name = "as", .about = "Whose step: this library's, or PyTorch's"});
  f(m.use, {.name = "phase", .about = about_phase});
  f(m.measure, {.name = "measure", .about = "Also run a step of each row: bytes by the ledger and, on a GPU, by the driver"});
  describe(m.as_pytorch, f);
  describe(m.serving, f);
}

constexpr engine::Purpose purpose_of(ModelUse u) {  // for what is no inference
  return u == ModelUse::forward     ? engine::Purpose::forward
         : u == ModelUse::gradients ? engine::Purpose::gradients
                                    : engine::Purpose::training;
}

// yes: any of the rows fits.
Outcome memory_model(const ModelMemory&);

}  // namespace headroom::studies
