// A mask as a word of an option, of a row and of JSON.
#pragma once
#include "base/described.h"
#include "ops/attention/mask_name.h"

namespace headroom {

template <>
struct WordsOf<attention::Mask> {
  static constexpr const char* shape = "MASK";
  static std::string to(const attention::Mask& m) { return attention::name_of(m); }
  static std::optional<attention::Mask> named(std::string_view word) { return attention::mask_named(word); }
  static std::vector<std::string> all() { return {std::begin(attention::mask_shapes), std::end(attention::mask_shapes)}; }
};

}  // namespace headroom
