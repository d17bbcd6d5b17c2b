// A precision as a word of an option, of a row and of JSON.
#pragma once
#include <utility>

#include "base/described.h"
#include "base/dtype.h"

namespace headroom {

template <>
struct WordsOf<Precision> {
  static std::string to(Precision p) { return std::string(name_of(p)); }
  static std::optional<Precision> named(std::string_view word) {  // also PyTorch's words
    constexpr std::pair<std::string_view, std::string_view> theirs[] = {
        {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}, {"float32", "fp32"}, {"float8", "fp8"}};
    for (const auto& [long_word, ours] : theirs)
      if (word == long_word) word = ours;
    return precision_named(word);
  }
  static std::vector<std::string> all() {
    std::vector<std::string> words;
    for (const Precision p : precisions) words.push_back(to(p));
    return words;
  }
};

}  // namespace headroom
