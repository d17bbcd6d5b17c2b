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

// As a runtime begins that is linked into one of NVIDIA's libraries: it asks for private tables, and for all that a driver may have.
void cudaOfTheDriver() {
  const void* table = nullptr;
  void* found = nullptr;
  int missing = 0;
  reinterpret_cast<int (*)(const void**, const void*)>(dlsym(RTLD_DEFAULT, "cuGetExportTable"))(&table, "an identifier of 16 bytes");
  auto* const find =
      reinterpret_cast<int (*)(const char*, void**, int, unsigned long long, int*)>(dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
  find("cuNobodyHasThat", &found, 13000, 0, &missing);
}
}
