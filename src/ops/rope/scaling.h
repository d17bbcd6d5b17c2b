// The frequencies that rotary positions turn with: plain, or scaled for sequences longer than a model was first trained with, as the
// files of models describe it and transformers computes it.
#pragma once
#include <cstdint>
#include <vector>

#include "base/described.h"

namespace headroom::rope {

enum class Scaling : std::uint8_t {
  none,
  linear,    // every frequency over the factor
  dynamic,   // a larger theta, where a sequence is longer than the model's positions
  llama3,    // slow frequencies over the factor, fast ones as they are, a ramp between
  yarn,      // the same by the number of turns, and larger values
  longrope,  // a factor for each frequency, others for long sequences
  unknown    // a type that no file of today names: counted, not computed
};

struct Positions {
  double theta = 10000;
  std::int64_t dim = 0;  // elements of a head that turn; 0: all
  Scaling scaling = Scaling::none;
  double factor = 1;
  double original = 0;                                        // positions that the model was first trained with
  double low = 1, high = 4;                                   // llama3: turns over those positions, below and above which nothing is mixed
  double fast = 32, slow = 1;                                 // yarn: the same
  bool whole_ends = true;                                     // yarn: the ramp's ends are rounded to whole frequencies
  double magnitude = 0;                                       // factor of the turned values; 0: the scaling's own
  std::vector<double> short_factors = {}, long_factors = {};  // longrope: of each frequency

  friend bool operator==(const Positions&, const Positions&) = default;
};

struct Frequencies {
  std::vector<double> of_pair;  // radians a position
  double magnitude = 1;         // factor of the turned values
};

// The frequencies for heads in which `dim` elements turn, over sequences of `len` positions.
Frequencies frequencies(const Positions&, std::int64_t dim, std::int64_t len);

}  // namespace headroom::rope

template <>
inline constexpr auto headroom::names_of<headroom::rope::Scaling> = headroom::names<headroom::rope::Scaling>("none", "linear", "dynamic",
                                                                                                             "llama3", "yarn", "longrope",
                                                                                                             "unknown");
