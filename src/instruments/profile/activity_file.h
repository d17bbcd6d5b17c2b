// ActivityLog — what libheadroom_inject.so wrote while a program ran, read back. A file that ends in the middle of a line, because its
// program died, is read up to there; a line that makes no sense is counted, not believed.
#pragma once
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "instruments/profile/timeline.h"

namespace headroom::profile {

struct Range {  // of NVTX
  std::string name;
  std::uint32_t thread = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  int parent = -1;  // the range around it on the same thread
};

struct ActivityLog {
  std::int64_t loaded_ns = 0, ended_ns = 0;  // ended: 0 when the program did not come to its end
  std::vector<Slice> slices;                 // in order of their start; mark: the range in which it was asked for, or −1
  std::vector<Range> ranges;
  std::vector<Moment> memory;  // device memory taken and given back
  double overhead_ns = 0;      // CUPTI's own
  std::string refusal;         // why nothing was recorded
  std::size_t strange_lines = 0;
};

ActivityLog read_activity(std::istream&);

// A kernel's name as people write it: demangled, without its return type and arguments.
std::string readable(const std::string& mangled);

// The same for a narrow table: without namespaces, arguments within and lambdas. "vectorized_kernel<4, GeluBackwardKernel, array<char*, 3ul>>"
std::string short_name(const std::string& readable);

}  // namespace headroom::profile
