// What other programs call the values of an enum, beside the enum's own names: an option takes such a word, or says why it cannot.
#pragma once
#include <array>
#include <optional>
#include <string_view>

namespace headroom {

template <class E>
struct OtherWord {
  std::string_view theirs;
  std::optional<E> ours;
  std::string_view why = "";  // there is no such value here
};
template <class E>
inline constexpr std::array<OtherWord<E>, 0> other_words_of{};

}  // namespace headroom
