// ActivityLog — reads what libheadroom_inject.so wrote while a program ran. A file may end in the middle of a line, because its
// program died; it is read up to there. Unreadable lines are counted and ignored.
#pragma once
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "instruments/profile/timeline.h"

namespace headroom::profile {

struct Range {  // an NVTX range
  std::string name;
  std::uint32_t thread = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  int parent = -1;  // the range around it on the same thread
};

struct ActivityLog {
  std::int64_t loaded_ns = 0, ended_ns = 0;  // ended: 0 if the program did not end normally
  std::vector<Slice> slices;                 // in order of their start; mark: the range in which it was launched, or −1
  std::vector<Range> ranges;
  std::vector<Moment> memory;  // device memory allocated and freed
  double overhead_ns = 0;      // CUPTI's own
  std::string refusal;         // why nothing was recorded
  std::size_t strange_lines = 0;
};

ActivityLog read_activity(std::istream&);

// A kernel's readable name: demangled, without return type and arguments.
std::string readable(const std::string& mangled);

// The same for a narrow table: without namespaces, arguments within and lambdas. "vectorized_kernel<4, GeluBackwardKernel, array<char*, 3ul>>"
std::string short_name(const std::string& readable);

}  // namespace headroom::profile
