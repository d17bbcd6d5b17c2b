// Functions that a program finds by name. Linked calls reach this library because it is loaded first; `dlsym` of one library (ctypes, cupy, PyTorch's
// own loaders) would go past it, to a CUDA library that finds no driver here. So names that are defined here are answered here, whatever the handle.
#include <dlfcn.h>

#include <string_view>

#include "dry/library/caller.h"

namespace {

using Find = void*(void*, const char*);

Find* real_dlsym() {
  static Find* const found = [] {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"})
      if (void* const function = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Find*>(function);
    return static_cast<Find*>(nullptr);
  }();
  return found;
}

Dl_info this_library() {
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&real_dlsym), &own);
  return own;
}

// NVIDIA's libraries find each other's functions, and mean those: cuDNN asks the parts of itself. So does this library, which asks cuDNN.
bool asks_for_its_own(const void* caller) {
  Dl_info from{};
  return (dladdr(caller, &from) && from.dli_fbase == this_library().dli_fbase) || headroom::dry::is_nvidias(caller);
}

// The function of this name here; null: this library has none.
void* defined_here(Find* find, const char* name) {
  const Dl_info own = this_library();
  Dl_info of{};
  if (!own.dli_fname) return nullptr;
  static void* const library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library ? find(library, name) : nullptr;
  return found && dladdr(found, &of) && of.dli_fbase == own.dli_fbase ? found : nullptr;
}

// Keeps dlerror() as it was where there is nothing to say: only names that begin as CUDA's do are looked up twice.
__attribute__((noinline)) void* answered_here(void* library, const char* name, const void* caller) {
  const std::string_view text = name ? name : "";
  const bool of_cuda = text.starts_with("cu") || text.starts_with("nccl") || text.starts_with("nvml") || text.starts_with("__cuda");
  if (!of_cuda || library == RTLD_NEXT || library == RTLD_DEFAULT || asks_for_its_own(caller)) return nullptr;
  void* const there = real_dlsym()(library, name);
  return there ? defined_here(real_dlsym(), name) : nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* library, const char* name) {
  if (void* const found = answered_here(library, name, __builtin_return_address(0))) return found;
  return real_dlsym()(library, name);  // a jump: dlsym looks at its caller
}
