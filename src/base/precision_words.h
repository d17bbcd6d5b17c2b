// Every precision that can be asked for, in the order in which help names them.
#pragma once
#include "base/described.h"
#include "base/dtype.h"

namespace headroom {

inline constexpr Precision precisions[] = {
    {DType::f32, Math::exact}, {DType::f32, Math::tf32}, {DType::bf16, Math::exact}, {DType::f16, Math::exact}, {DType::e4m3, Math::exact}};

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
