// A struct is described once: describe(x, f) calls f(member, Description) for every field, in order. JSON, CSV, tables, the resume
// key, the store, comparison and option parsing are walks over that one description; none of them names a field, a unit, an
// enum's value or a default again. The walks: store/described_json.h (JSON and back), report/described_table.h (tables),
// cli/described_options.h (options).
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace headroom {

enum class Unit : std::uint8_t {
  none,
  bytes,
  ms,
  tflops,
  bytes_per_s,
  flops,
  ratio,
  share,
  error,
  exact,  // every digit, for people too
  per_s
};

enum class Show : std::uint8_t {
  always,
  detail,  // in CSV and JSON only: a page is not wide enough for everything
  bar,     // text shows a bar beside the number, full at the column's largest
  spread   // the spread of the column before it; text and Markdown write it there: 8.27 ± 0.07
};

enum class Role : std::uint8_t {
  asked,     // part of the question: equal questions have equal keys
  varied,    // part of the question where one run has several values; runs with one value each are paired anyway
  measured,  // part of the answer
  noted      // shown beside it or derived from it; neither pairs rows nor is compared. A spread is noted as its field's name and _std
};

struct Reals {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

struct Description {
  const char* name;
  Role role = Role::asked;
  Unit unit = Unit::none;
  Show show = Show::always;
  const char* about = "";                                     // one line of --help; a field without one is no option
  Between allowed{std::numeric_limits<std::int64_t>::min()};  // for whole numbers that are asked
  Reals real{};                                               // for other numbers
  std::vector<std::string> (*choices)() = nullptr;            // for words: the allowed ones, if the type has more or is text
  const char* option = "";                                    // if it is not "--" and the name: "--keep,--recompute"
};

// The type that is described: template <…> void describe(Of<Row> auto& r, auto&& f) serves reading and writing.
template <class Self, class T>
concept Of = std::same_as<std::remove_const_t<Self>, T>;

template <class T>
concept Described = requires(T& x) {
  describe(x, [](auto&, const Description&) {});
};

// The names of an enum, written once, beside the enum:
//   template <> inline constexpr auto names_of<Masters> = names<Masters>("whole", "halves");
template <class E, std::size_t N>
struct Names {
  std::array<std::string_view, N> name;
  constexpr std::string_view of(E e) const { return name[std::size_t(e)]; }
  constexpr std::optional<E> named(std::string_view word) const {  // empty if no value has that name; never a default
    for (std::size_t i = 0; i < N; ++i)
      if (name[i] == word) return E(i);
    return std::nullopt;
  }
  std::vector<std::string> all() const { return {name.begin(), name.end()}; }
};
template <class E, class... Words>
constexpr Names<E, sizeof...(Words)> names(Words... words) {
  return {{std::string_view(words)...}};
}
template <class E>
inline constexpr auto names_of = nullptr;  // an enum without names does not compile where one is needed

template <>
inline constexpr auto names_of<Unit> = names<Unit>("none", "bytes", "ms", "tflops", "bytes_per_s", "flops", "ratio", "share", "error",
                                                   "exact", "per_s");

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires(E e) {
  names_of<E>.of(e);
};

// The value that a word names, or an Error that says what is allowed and what was probably meant. `who`: "--masters", "a key".
template <NamedEnum E>
E value_named(std::string_view word, std::string_view who) {
  if (const auto e = names_of<E>.named(word)) return *e;
  throw Error(Code::bad_argument, fmt::format("{}: there is no '{}'; choose from {}{}", who, word, joined(names_of<E>.all()),
                                              did_you_mean(word, names_of<E>.all())));
}

// A type whose values are single words: an enum with names, or a type that declares so (base/precision_words.h). Options, JSON and tables
// write and read it by that word.
template <class T>
struct WordsOf;  // to(value), named(word): the value or nothing, all(): every word, for people

template <NamedEnum E>
struct WordsOf<E> {
  static std::string to(E e) { return std::string(names_of<E>.of(e)); }
  static std::optional<E> named(std::string_view word) { return names_of<E>.named(word); }
  static std::vector<std::string> all() { return names_of<E>.all(); }
};

template <class T>
concept OneWord = requires(const T& x) {
  WordsOf<T>::to(x);
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;

}  // namespace headroom
