#include "studies/memory/lent_bytes.h"

#include <unistd.h>

#include <cstring>
#include <fstream>

#include "gpu/device.h"

namespace headroom::studies {

std::int64_t lent_bytes(const Device& device) {
  if (device.kind == DeviceKind::cuda) return std::int64_t(device.total_bytes) - std::int64_t(free_memory_bytes(device));
  std::ifstream in("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string measured_in_words() {
  return "Measured: each row that fits was run once. difference is the ledger's measured peak less the forecast; unexplained is what the "
         "system allocated beyond that peak (libraries' buffers, threads, the driver); the first row includes what is loaded once.";
}

MeasuredMemory measure_memory(const Device& device, int threads, std::size_t bytes,
                              const std::function<void(Context&, const Place&)>& run) {
  Place place(device, threads);
  const std::int64_t before = lent_bytes(device);
  const PlaceMemory memory = place.take(bytes);
  if (!place.on_gpu()) std::memset(memory.data(), 0, bytes);  // the system lends a page when it is touched
  Arena arena(memory.data(), memory.bytes());
  Context ctx{.arena = arena, .device = device, .threads = &place.threads(), .stream = place.stream()};
  run(ctx, place);
  place.wait();
  return {arena.peak(), lent_bytes(device) - before};
}

}  // namespace headroom::studies
