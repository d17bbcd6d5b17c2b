#include "base/shape_text.h"

#include <fmt/format.h>

namespace headroom {

std::string shape_text(const Shape& s) {
  std::string out;
  for (int i = 0; i < s.rank; ++i) out += fmt::format("{}{}", i ? "×" : "", s[i]);
  return out;
}

}  // namespace headroom
