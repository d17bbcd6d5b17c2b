// Checkpoints: weights, moments, optimiser state and data position, in one safetensors file that is complete or absent.
// A folder holds step-00000100.safetensors, …; the newest is the one to resume, and the two newest are kept. Other files in it are
// the user's: only a checkpoint that was written here, under exactly such a name, is ever deleted.
#pragma once
#include <optional>
#include <string>

#include "base/file.h"
#include "engine/files/safetensors.h"
#include "engine/pass/training.h"

namespace headroom::engine {

struct Position {         // what else a run needs to continue as if it had never stopped
  std::int64_t step = 0;  // steps done; the data of step s is drawn from (seed, s) alone
  std::uint64_t seed = 0;
  std::string settings;  // everything that must be the same for the bits to be the same, as JSON
};

void make_folder(const std::string& folder);  // throws an Error that says why it cannot, before any training
// The same, held against other trainings until the descriptor goes, however its process ends: two would replace each other's files.
[[nodiscard]] Descriptor claim_folder(const std::string& folder);
void save(Training&, const Position&, const std::string& folder);

// Ignores complete files that this program did not write under that name: copies, another program's.
std::optional<std::string> newest_checkpoint(const std::string& folder);
// Throws an Error if such a file has the name of a checkpoint of a step after `from`, up to `to`.
void check_free(const std::string& folder, std::int64_t from, std::int64_t to);

// Throws an Error where the folder's disk cannot hold those that a run still writes, beside those that are there: two are kept, and a third is
// there while it is written.
void check_room_for(Training&, std::int64_t still_written, const std::string& folder);

// The position and model of a checkpoint, without its tensors: what is needed to make the Training that loads it.
struct Described {
  Position position;
  Decoder model;
};
Described describe_checkpoint(const std::string& path);
void load(Training&, const std::string& path);          // into a Training of the same model
void load_weights(Training&, const std::string& path);  // these alone: a run that begins where another ended

}  // namespace headroom::engine
