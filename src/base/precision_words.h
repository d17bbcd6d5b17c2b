// A precision as a word of an option, of a row and of JSON.
#pragma once
#include "base/described.h"
#include "base/dtype.h"

namespace headroom {

template <>
struct WordsOf<Precision> {
  static std::string to(Precision p) { return std::string(name_of(p)); }
  static std::optional<Precision> named(std::string_view word) { return precision_named(word); }
  static std::vector<std::string> all() {
    std::vector<std::string> words;
    for (const Precision p : precisions) words.push_back(to(p));
    return words;
  }
};

}  // namespace headroom
