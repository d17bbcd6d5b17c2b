// Which library a call comes from.
#pragma once
#include <dlfcn.h>

#include <string_view>

namespace headroom::dry {

inline std::string_view file_of(const void* caller) {  // "" where it is in none
  Dl_info from{};
  return dladdr(caller, &from) && from.dli_fname ? from.dli_fname : "";
}

inline std::string_view name_of_file(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// PyTorch's caching allocator, the only one in its library that asks for events.
inline bool is_allocators(const void* caller) { return name_of_file(file_of(caller)).starts_with("libc10_cuda"); }

inline bool is_nvidias(const void* caller) {
  const std::string_view name = name_of_file(file_of(caller));
  return name.starts_with("libcu") || name.starts_with("libnv") || name.starts_with("libnccl");
}

}  // namespace headroom::dry
