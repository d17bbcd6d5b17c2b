// A mask as a word of an option, of a row and of JSON.
#pragma once
#include "base/described.h"
#include "ops/attention/mask.h"

namespace headroom {

inline constexpr const char* mask_help = "full, causal, window:W, window:W+A (A positions ahead too); causal:top-left, window:W:top-left";

template <>
struct WordsOf<attention::Mask> {
  static constexpr const char* shape = "MASK";
  static std::string to(const attention::Mask& m) { return attention::name_of(m); }
  static std::optional<attention::Mask> named(std::string_view word) { return attention::mask_named(word); }
  static std::vector<std::string> all() {
    return {
        "full", "causal", "window:W with W at least 1", "causal:top-left", "window:W:top-left", "window:W+A with A positions ahead too"};
  }
};

}  // namespace headroom
