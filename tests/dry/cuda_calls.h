// CUDA by its public names, as other people's programs have it: what every part of dry_program calls.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

using Address = unsigned long long;
constexpr std::size_t mib = 1 << 20;

// A CUDA function by its name, with whatever parameters.
template <class... Parameters>
int call(const char* name, Parameters... parameters) {
  auto* const function = reinterpret_cast<int (*)(Parameters...)>(dlsym(RTLD_DEFAULT, name));
  if (!function) {
    std::fprintf(stderr, "there is no %s\n", name);
    std::exit(70);
  }
  return function(parameters...);
}

inline void print(long long value) { std::printf("%lld\n", value); }

inline char* allocate(std::size_t bytes) {
  void* p = nullptr;
  return call("cudaMalloc", &p, bytes) == 0 ? static_cast<char*>(p) : nullptr;
}

inline long long free_mib() {
  std::size_t free = 0, total = 0;
  call("cudaMemGetInfo", &free, &total);
  return (long long)(free / mib);
}

inline void copy(void* to, const void* from, std::size_t bytes) {
  call("cudaMemcpyAsync", to, from, bytes, 4, static_cast<void*>(nullptr));
}

inline long long read(const void* p) {
  long long value = -1;
  copy(&value, p, sizeof value);
  return value;
}

// Of cuBLAS, cuDNN and cuSOLVER (program_libraries.cpp); each a word of the program.
void libraries();
void solver();
void convolutions();
void recurrent();
