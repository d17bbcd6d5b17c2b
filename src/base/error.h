// One error type for the whole library: thrown at the public door, turned into a code at the two edges (command line, C ABI).
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace headroom {

enum class Code { bad_argument = 1, unsupported, out_of_memory, cuda, nccl, io, interrupted };

struct At {  // a Code with the source location of its use; made by implicit conversion from Code
  Code code;
  const char* file;
  int line;
  At(Code c, const char* f = __builtin_FILE(), int l = __builtin_LINE()) : code(c), file(f), line(l) {}
};

struct Error : std::runtime_error {
  At at;
  Error(At where, std::string_view text);  // kept as printable() makes it: what() is a C string, which a zero byte would end
};

template <class... Parts>
void check(bool ok, At at, fmt::format_string<Parts...> text, Parts&&... parts) {  // the text is formatted only on failure
  if (!ok) [[unlikely]]
    throw Error(at, fmt::format(text, std::forward<Parts>(parts)...));
}

}  // namespace headroom
