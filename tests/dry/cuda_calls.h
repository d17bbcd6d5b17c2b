// CUDA by its public names, as other people's programs have it: what every part of dry_program calls.
#pragma once
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

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

struct Dim {
  unsigned x, y, z;
};
inline char kernel_stub;
inline void register_kernel() {
  static const void* container[2] = {nullptr, nullptr};
  call("__cudaRegisterFunction", const_cast<void**>(container), static_cast<const char*>(&kernel_stub), static_cast<char*>(nullptr),
       "a_kernel_of_ours", 0, static_cast<void*>(nullptr), static_cast<void*>(nullptr), static_cast<void*>(nullptr),
       static_cast<void*>(nullptr), static_cast<int*>(nullptr));
}
inline void launch(void* stream) {
  call("cudaLaunchKernel", static_cast<const void*>(&kernel_stub), Dim{1024, 1, 1}, Dim{256, 1, 1}, static_cast<void**>(nullptr),
       std::size_t(0), stream);
}

// What the program does for each word that it is started with: a table in each of its files, program_<what>.cpp.
using Words = std::map<std::string, void (*)()>;
extern const Words device_words, library_words, memory_words, process_words, rank_words, stream_words;
