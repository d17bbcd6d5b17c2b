// What a training goes on from: a checkpoint, its settings and its kept rows, or the weights of another run or of Hugging Face.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "engine/files/save.h"
#include "studies/life.h"
#include "studies/train/train_run.h"

namespace headroom::studies {

// The model whose weights --init names.
engine::Decoder model_of_init(const std::string& folder);

// What the newest checkpoint in a folder was trained in: a run that goes on from it and names no precision does so in that one.
std::optional<Precision> precision_of_checkpoint(const std::string& folder);

// A run that goes on from the newest checkpoint in its folder has that run's settings and model, where the command names no others. Steps that are named
// extend it, with a warm-up of their own. True: there is such a checkpoint, and the model is its own unless `names_model`.
bool go_on_as_checkpoint(TrainRun&, const std::function<bool(const std::string& option)>& named, bool names_model);

inline constexpr const char* extended_at = "extended_at";  // in a checkpoint's settings: the steps at which a run got more of them

// Everything that must be the same for a resumed run to give the same bits, as a checkpoint carries it.
std::string settings_of(const TrainRun&, const engine::Data&);

// What a run must share with the checkpoint that it goes on from. More steps than that was made for extend it: from there on the
// learning rate is that of the longer schedule, and the steps at which that happened are part of the settings from then on.
std::string settings_going_on(const TrainRun&, const std::string& asked, const std::string& theirs, std::int64_t step,
                              const std::string& path);
std::string words_of_extension(const TrainRun&, const std::string& settings);  // empty where it was not extended

// What --resume found: the same command begins a run and continues it, so a wrong folder would look like a first start.
std::string words_of_beginning(const TrainRun&, const std::optional<std::string>& newest, std::int64_t step, bool new_folder);

// Each rank reads the checkpoint itself. Hosts that share no folder would begin at different steps.
void check_that_ranks_see(const std::optional<std::string>& newest, const std::string& folder, dist::Group&);

// The newest checkpoint may be damaged, and one before it whole.
std::int64_t with_remedy(const std::function<std::int64_t()>& read_newest);

void begin_with(engine::Training&, const std::string& folder);  // the weights of a run's newest checkpoint, or of Hugging Face

// The run in the store. settings_before: those of the checkpoint that it goes on from; empty for a fresh run. Rows after it are made again, to the same
// bits: they replace those that are kept. Rows before it are those of the run that made it.
Life life_of(const TrainRun&, const engine::Position& at, const std::string& settings_before, const Device&, const Host&);

}  // namespace headroom::studies
