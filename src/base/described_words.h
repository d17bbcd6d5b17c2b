// The option of a described field, and its words, read and checked: shared by options and requests.
#pragma once
#include <algorithm>

#include "base/described.h"
#include "base/other_words.h"

namespace headroom {

inline std::string options_of(const Description& d) {  // len_k: --len-k; also "--keep,--recompute"
  if (*d.option) return d.option;
  std::string name = std::string("--") + d.name;
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}
inline std::string first_option_of(const Description& d) {
  const std::string all = options_of(d);
  return all.substr(0, all.find(','));
}

template <class T>
std::vector<std::string> words_allowed(const Description& d) {
  if (d.choices) return d.choices();
  if constexpr (OneWord<T>) return WordsOf<T>::all();
  return {};
}

// `who` names the option or key in the line that refuses a word: "--keep".
template <class T>
T word_read(const std::string& typed, std::string_view who, const Description& d) {
  std::string word = typed;
  if constexpr (NamedEnum<T>)
    for (const OtherWord<T>& other : other_words_of<T>) {
      if (!is_same_word(other.theirs, typed)) continue;
      check(other.ours.has_value(), Code::bad_argument, "{} {}: {}", who, typed, other.why);
      word = names_of<T>.of(*other.ours);
    }
  const auto allowed = words_allowed<T>(d);
  std::optional<T> value;
  if constexpr (OneWord<T>)
    value = WordsOf<T>::named(word);
  else
    value = word;
  const bool any = !d.choices && value;  // a type may read more words than it lists: a mask's window has a number
  std::string ours = word;               // translates other programs' words: bfloat16
  if constexpr (OneWord<T>)
    if (value) ours = WordsOf<T>::to(*value);
  if (any || (value && std::find(allowed.begin(), allowed.end(), ours) != allowed.end())) return *value;
  std::string why;  // the reason of a type that reads numbers and words inside a word
  if constexpr (requires { WordsOf<T>::why_not(word); }) why = WordsOf<T>::why_not(word);
  throw Error(Code::bad_argument,
              why.empty() ? fmt::format("{}: there is no '{}'; choose from {}{}", who, word, joined(allowed), did_you_mean(word, allowed))
                          : fmt::format("{} {}: {}", who, word, why));
}

}  // namespace headroom
