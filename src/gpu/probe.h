// What a piece of work turns into on the card: recorded once, its nodes counted, launched once, and waited for.
#pragma once
#include <functional>

namespace headroom {

struct Nodes {
  int kernels = 0, copies = 0, others = 0;
};
Nodes run_and_count(void* stream, const std::function<void()>& work);  // a cudaStream_t that is not being recorded

bool being_recorded(void* stream);  // a cudaStream_t: into a graph, now

void use_cuda_device(int index);  // makes it current for this thread

}  // namespace headroom
