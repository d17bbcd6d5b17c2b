// A library that has CUDA's names, as the runtime that is loaded by its name has: without a driver it answers 500.
#include <dlfcn.h>

#include <cstddef>

extern "C" {
int cudaMalloc(void**, std::size_t) { return 500; }
int cudaOnlyThere() { return 7; }

// What it finds of itself, as cuDNN finds the parts of itself.
int cudaOfItself(const char* file) {
  auto* const found = reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(dlopen(file, RTLD_NOW), "cudaMalloc"));
  return found(nullptr, 0);
}
}
