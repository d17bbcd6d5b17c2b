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
  static std::string why_not(std::string_view word) {
    return word.starts_with("window") ? "W and A of window:W and window:W+A are whole numbers from 1, as window:256 and window:256+128"
                                      : "";
  }
  static std::vector<std::string> all() { return {std::begin(attention::mask_shapes), std::end(attention::mask_shapes)}; }
};

}  // namespace headroom
