#include "gpu/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace headroom::blas {

namespace {

constexpr int built_with = CUDART_VERSION / 1000;
constexpr std::array<int, 2> cublaslt_versions = {built_with, built_with == 13 ? 12 : 13};

std::string soname(int version) { return fmt::format("libcublasLt.so.{}", version); }

std::filesystem::path folder_of_this_library() {
  Dl_info here{};
  static const int anything = 0;
  return dladdr(&anything, &here) && here.dli_fname ? std::filesystem::path(here.dli_fname).parent_path() : std::filesystem::path();
}

std::vector<std::string> places() {
  std::vector<std::string> all;
  const auto site_packages = folder_of_this_library() / ".." / "..";  // this library is site-packages/headroom/lib/libheadroom.so
  for (const int v : cublaslt_versions) {
    all.push_back((site_packages / "nvidia" / fmt::format("cu{}", v) / "lib" / soname(v)).string());
    if (v == 12) all.push_back((site_packages / "nvidia" / "cublas" / "lib" / soname(v)).string());
  }
  for (const int v : cublaslt_versions) {
    all.push_back(soname(v));
    all.push_back(fmt::format("/usr/local/cuda/lib64/{}", soname(v)));
    all.push_back(fmt::format("/usr/local/cuda-{}/lib64/{}", v, soname(v)));
  }
  return all;
}

void* open_cublaslt() {
  std::string refusals;
  const auto open = [&](const std::string& name, int how) {
    void* const found = dlopen(name.c_str(), how | RTLD_NOW | RTLD_LOCAL);
    const char* const why = found ? nullptr : dlerror();  // also forgets it
    if (why && !(how & RTLD_NOLOAD)) refusals += fmt::format("{}{}", refusals.empty() ? "" : "; ", why);
    return found;
  };
  if (const char* asked = std::getenv("HEADROOM_CUBLASLT"); asked && *asked) {
    if (void* found = open(asked, 0)) return found;
    throw Error(Code::unsupported, fmt::format("cuBLASLt cannot be loaded from HEADROOM_CUBLASLT: {}", refusals));
  }
  for (const int v : cublaslt_versions)
    if (void* found = open(soname(v), RTLD_NOLOAD)) return found;
  for (const std::string& place : places())
    if (void* found = open(place, 0)) return found;
  throw Error(
      Code::unsupported,
      fmt::format("cuBLASLt cannot be loaded: install CUDA's libraries or pip install nvidia-cublas, or set HEADROOM_CUBLASLT to its "
                  "file ({})",
                  refusals));
}

CublasLt cublaslt_calls() {
  void* const library = open_cublaslt();
  CublasLt calls;
  const auto entry = [&]<class Call>(Call& call, const char* name) {
    call = reinterpret_cast<Call>(dlsym(library, name));
    check(call != nullptr, Code::unsupported, "the cuBLASLt that was loaded has no {}", name);
  };
#define HEADROOM_FIND(name) entry(calls.name, #name);
  HEADROOM_CUBLASLT_CALLS(HEADROOM_FIND)
#undef HEADROOM_FIND
  return calls;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt calls = cublaslt_calls();  // again at the next call where it failed
  return calls;
}

}  // namespace headroom::blas
