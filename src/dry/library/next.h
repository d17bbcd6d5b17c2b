// The definition behind one of ours, where this library defines a function of PyTorch's.
#pragma once
#include <dlfcn.h>

#include <initializer_list>

namespace headroom::dry {

// Python loads PyTorch's libraries for itself alone: they are asked for by name, or as the one that calls.
template <class F>
F* next(const char* name, const char* library, const void* caller) {
  void* found = dlsym(RTLD_NEXT, name);
  Dl_info from{};
  for (const char* file : {library, dladdr(caller, &from) ? from.dli_fname : nullptr})
    if (void* const there = found || !file ? nullptr : dlopen(file, RTLD_LAZY | RTLD_NOLOAD)) found = dlsym(there, name);
  return reinterpret_cast<F*>(found);
}

}  // namespace headroom::dry
