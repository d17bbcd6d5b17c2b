// Options from a described struct of settings: every field with a help line becomes an option, parsed directly into the
// member. Only the description has names, defaults, ranges, help and enum words.
#pragma once
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "base/described_words.h"
#include "base/text.h"
#include "cli/attention_words.h"

namespace headroom::cli {

// An option named after a unit takes numbers of it: --workspace-mib 32.
inline bool in_mib(const Description& d) { return d.unit == Unit::bytes && first_option_of(d).ends_with("-mib"); }

// What a number without a unit means: --memory 24 is GiB, --bytes 4096 is bytes.
inline std::string_view usual_unit(const Description& d) { return first_option_of(d) == "--bytes" ? "B" : "GiB"; }

// Bytes as parse_bytes reads them, in the largest unit that leaves a whole number.
inline std::string as_typed(std::uint64_t bytes) {
  constexpr std::pair<const char*, std::uint64_t> units[] = {{"GiB", 1ull << 30}, {"GB", 1'000'000'000}, {"MiB", 1ull << 20},
                                                             {"MB", 1'000'000},   {"KiB", 1ull << 10},   {"KB", 1'000}};
  for (const auto& [unit, size] : units)
    if (bytes % size == 0) return fmt::format("{}{}", bytes / size, unit);
  return fmt::format("{}B", bytes);
}

template <class T>
std::string shape_of(const Description& d, const char* between) {  // what --help writes for a value
  if constexpr (is_optional<T>) {
    return shape_of<typename T::value_type>(d, between);
  } else if constexpr (requires { WordsOf<T>::shape; }) {
    return WordsOf<T>::shape;
  } else if (const auto words = words_allowed<T>(d); !words.empty()) {
    return joined(words, between);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "TEXT";
  } else if constexpr (std::is_floating_point_v<T>) {
    return d.unit == Unit::share ? "P%" : "X";
  } else {
    return in_mib(d) ? "X" : d.unit == Unit::bytes ? std::string(usual_unit(d)) : "N";
  }
}

template <class T>
std::string default_of(const T& x, const Description& d) {
  if constexpr (is_optional<T>) {
    return x ? default_of(*x, d) : "";
  } else if constexpr (is_list<T>) {
    std::vector<std::string> words;
    for (const auto& item : x) words.push_back(default_of(item, d));
    return joined(words, ",");
  } else if constexpr (OneWord<T>) {
    return WordsOf<T>::to(x);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return x;
  } else if ((d.unit == Unit::share || d.unit == Unit::bytes) && x == 0) {
    return "";
  } else if (d.unit == Unit::bytes) {
    return as_typed(std::uint64_t(x));
  } else {
    return d.unit == Unit::share ? fmt::format("{:g}%", 100.0 * double(x)) : fmt::format("{}", x);
  }
}

template <class T>
void read_option(const std::string& word, const std::string& who, const Description& d, T& into) {
  if constexpr (is_optional<T>) {
    typename T::value_type value{};
    read_option(word, who, d, value);
    into = std::move(value);
  } else if constexpr (is_list<T>) {
    T list;
    for (const std::string& item : parse_list(word, who)) read_option(item, who, d, list.emplace_back());
    into = std::move(list);
  } else if constexpr (std::is_same_v<T, std::string>) {
    into = word_read<T>(who == "--attention" ? attention_in_our_words(word) : word, who, d);
  } else if constexpr (OneWord<T>) {
    into = word_read<T>(word, who, d);
  } else if constexpr (std::is_floating_point_v<T>) {
    into = d.unit == Unit::share ? parse_fraction(word, who) : parse_number(word, who, d.real.low, d.real.high);
  } else {
    if (in_mib(d))
      into = T(parse_number(word, who, double(d.allowed.low) / 0x1p20, double(d.allowed.high) / 0x1p20) * 0x1p20);
    else if (d.unit == Unit::bytes)
      into = T(parse_bytes(word, who, usual_unit(d)));
    else
      into = T(parse_integer(word, who, {std::max<std::int64_t>(d.allowed.low, std::numeric_limits<T>::min()), d.allowed.high}));
  }
}

template <class T>
concept ReadableWord = OneWord<T> || std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;
template <class T>
inline constexpr bool is_readable = ReadableWord<T>;
template <class T>
inline constexpr bool is_readable<std::optional<T>> = ReadableWord<T>;
template <class T>
inline constexpr bool is_readable<std::vector<T>> = is_readable<T>;

// One member as an option. It outlives the parsing.
template <class M>
CLI::Option* add_value(CLI::App& app, M& member, const Description& d) {
  const std::string names = options_of(d), who = first_option_of(d);
  if constexpr (std::is_same_v<M, bool>) {
    return app.add_flag(names, member, d.about);
  } else {
    auto* option = app.add_option_function<std::string>(
        names, [&member, d, who](const std::string& word) { read_option(word, who, d, member); }, d.about);
    if constexpr (is_list<M>) {
      const std::string one = shape_of<typename M::value_type>(d, ",");
      option->type_name(one.find(',') == std::string::npos ? fmt::format("{0},{0},...", one) : one);
    } else {
      option->type_name(shape_of<M>(d, "|"));
    }
    if (const std::string now = default_of(member, d); !now.empty()) option->default_str(now);
    return option;
  }
}

// `settings` outlives the parsing. `except`: names of fields that this command says otherwise or not at all.
template <Described T>
void add_described(CLI::App& app, T& settings, std::initializer_list<const char*> except = {}) {
  describe(settings, [&](auto& member, const Description& d) {
    if constexpr (is_readable<std::remove_reference_t<decltype(member)>>)
      if (*d.about && std::none_of(except.begin(), except.end(), [&](const char* name) { return !std::strcmp(name, d.name); }))
        add_value(app, member, d);
  });
}

}  // namespace headroom::cli
