// The results of studies/precision/arithmetic.h on a card, to compare with the CPU's bits.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "gpu/place.h"

namespace headroom::studies::precision {

struct SumAsked {
  std::string method, dtype;
  float addend = 0;
  std::int64_t count = 0, block = 0;
  Random random;
};
float sum_on(const Place&, const SumAsked&);

// One vector normalised, statistics in one format and the output rounded to another.
struct NormAsked {
  std::string dtype, statistics;
  bool centred = false;
  double eps = 0;
};
std::vector<float> normalised_on(const Place&, const NormAsked&, const std::vector<float>& x);

std::vector<float> round_trip_on(const Place&, const std::string& format, const std::vector<float>& x);

bool equal_bits(const std::vector<float>&, const std::vector<float>&);  // any NaN is any other: no format defines its sign and payload

}  // namespace headroom::studies::precision
