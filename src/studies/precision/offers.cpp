// What libheadroom_cuda.so offers of this study (gpu/beside.h).
#include "gpu/beside.h"
#include "studies/precision/gpu.h"

namespace headroom::studies::precision {

namespace {
const beside::Offers of_precision{beside::offer<sum_on>(), beside::offer<normalised_on>(), beside::offer<round_trip_on>()};
}  // namespace

}  // namespace headroom::studies::precision
