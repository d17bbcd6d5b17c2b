// Stands in for what the studies run on a card, where the library is built without CUDA.
#include "base/error.h"
#include "studies/precision/gpu.h"

namespace headroom::studies::precision {

namespace {
[[noreturn]] void refuse() { throw Error(Code::unsupported, "precision: this build has no CUDA"); }
}  // namespace

float sum_on(const Place&, const SumAsked&) { refuse(); }
std::vector<float> normalised_on(const Place&, const NormAsked&, const std::vector<float>&) { refuse(); }
std::vector<float> round_trip_on(const Place&, const std::string&, const std::vector<float>&) { refuse(); }

}  // namespace headroom::studies::precision
