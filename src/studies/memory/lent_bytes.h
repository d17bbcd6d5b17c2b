// Memory that the system gives a run: the difference to the ledger's peak is used by libraries and the driver beside the tensors;
// the first run of a process includes what they load once.
#pragma once
#include <functional>
#include <string>

#include "gpu/place.h"
#include "ops/op.h"

namespace headroom::studies {

struct MeasuredMemory {
  std::uint64_t peak_bytes = 0;   // the arena's
  std::int64_t system_bytes = 0;  // resident bytes of this process, or used bytes of the GPU, more than before
  std::int64_t unexplained_bytes() const { return system_bytes - std::int64_t(peak_bytes); }
};

// What the system has lent: resident bytes of this process, or used bytes of the GPU.
std::int64_t lent_bytes(const Device&);

std::string measured_in_words();  // what the columns of measured bytes mean

// Runs it once in an arena of `bytes` on a device that is present.
MeasuredMemory measure_memory(const Device&, int threads, std::size_t bytes, const std::function<void(Context&, const Place&)>& run);

}  // namespace headroom::studies
