// A claim says that this process measures a run. The system lets go of it when the process ends, however it ends. It holds between
// the processes of one machine; another machine sees nothing of it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"

namespace headroom {

class Claim {
 public:
  // Nothing where another process has it. `file`: the store that the run is in, which exists.
  static std::optional<Claim> of(const std::string& file, std::int64_t run);
  static std::string owner(const std::string& file, std::int64_t run);  // "process 4711", "another process"

 private:
  explicit Claim(Descriptor d) : held_(std::move(d)) {}
  Descriptor held_;
};

}  // namespace headroom
