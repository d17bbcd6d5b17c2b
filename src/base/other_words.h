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

// Case, hyphens and underscores make no other word: ZeRO-2 is zero2.
constexpr bool is_same_word(std::string_view a, std::string_view b) {
  const auto skip = [](std::string_view& s) {
    while (!s.empty() && (s.front() == '-' || s.front() == '_')) s.remove_prefix(1);
  };
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; };
  for (skip(a), skip(b); !a.empty() && !b.empty(); skip(a), skip(b)) {
    if (lower(a.front()) != lower(b.front())) return false;
    a.remove_prefix(1), b.remove_prefix(1);
  }
  return a.empty() && b.empty();
}

}  // namespace headroom
