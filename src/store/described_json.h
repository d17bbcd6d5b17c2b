// A described struct as a JSON object, and back. A missing field keeps its default, so that rows of earlier versions
// stay readable; unknown fields are ignored.
#pragma once
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/described_words.h"
#include "base/json.h"

namespace headroom {

using RowObject = nlohmann::ordered_json;  // fields in the order in which they are described

// A type with an object of its own, as a model's configuration: specialise with to(value) and from(object).
template <class T>
struct JsonOf;

template <class T>
RowObject json_of_member(const T& x) {
  if constexpr (is_optional<T>) {
    return x ? json_of_member(*x) : RowObject();
  } else if constexpr (is_list<T>) {
    RowObject list = RowObject::array();
    for (const auto& item : x) list.push_back(json_of_member(item));
    return list;
  } else if constexpr (OneWord<T>) {
    return WordsOf<T>::to(x);
  } else if constexpr (requires { JsonOf<T>::to(x); }) {
    return JsonOf<T>::to(x);
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(x) ? RowObject(x) : RowObject();  // JSON has no word for the others
  } else {
    return x;
  }
}

// False where the value is of another kind. Nothing (null) leaves what is there.
template <class T>
bool read_member(const RowObject& j, T& into) {
  if constexpr (is_optional<T>) {
    typename T::value_type value{};
    if (j.is_null()) {
      into.reset();
      return true;
    }
    if (!read_member(j, value)) return false;
    into = std::move(value);
    return true;
  } else if constexpr (is_list<T>) {
    T list;
    const auto add = [&](const RowObject& item) {
      typename T::value_type value{};
      const bool read = read_member(item, value);
      list.push_back(std::move(value));
      return read;
    };
    if (j.is_array() ? !std::all_of(j.begin(), j.end(), add) : !add(j)) return false;  // one value: a list of it
    into = std::move(list);
    return true;
  } else {
    if (j.is_null()) return true;
    if constexpr (OneWord<T>) {
      const auto value = j.is_string() ? WordsOf<T>::named(j.get_ref<const std::string&>()) : std::nullopt;
      if (value) into = *value;
      return value.has_value();
    } else if constexpr (requires { JsonOf<T>::from(j); }) {
      into = JsonOf<T>::from(j);
      return true;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!j.is_boolean()) return false;
      into = j.get<bool>();
      return true;
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (j.is_structured()) return false;
      into = j.is_string() ? j.get<std::string>() : j.dump();  // CSV does not tell the word 7 from the number
      return true;
    } else {
      if (!(std::is_floating_point_v<T> ? j.is_number() : j.is_number_integer())) return false;
      into = j.get<T>();
      return true;
    }
  }
}

template <Described T>
RowObject json_of(const T& x) {
  RowObject j = RowObject::object();
  describe(x, [&](const auto& member, const Description& d) { j[d.name] = json_of_member(member); });
  return j;
}

// `who` begins the line that refuses a field of another kind: "a stored row". A missing field stays as in x.
template <Described T>
T read_described(const RowObject& j, std::string_view who, T x = {}) {
  check(j.is_object(), Code::io, "{} is no JSON object", who);
  describe(x, [&](auto& member, const Description& d) {
    const auto at = j.find(d.name);
    if (at == j.end() || read_member(*at, member)) return;
    check(false, Code::io, "{} cannot be read: its {} is {}", who, d.name, text_of_json(*at));
  });
  return x;
}

// A member as JSON text. Words and lists are written here, because nlohmann 3.11 ends the program where an allocation fails in their
// conversion, and keys are built inside a sweep.
template <class T>
void append_key(std::string& key, const T& x) {
  if constexpr (is_optional<T>) {
    if (x)
      append_key(key, *x);
    else
      key += "null";
  } else if constexpr (is_list<T>) {
    key += '[';
    bool first = true;
    for (const auto& item : x) {
      if (!first) key += ',';
      first = false;
      append_key(key, item);
    }
    key += ']';
  } else if constexpr (OneWord<T>) {
    key += '"';
    for (const char c : std::string(WordsOf<T>::to(x))) {
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20)
        key += fmt::format("\\u{:04x}", int(static_cast<unsigned char>(c)));
      else
        key += c;
    }
    key += '"';
  } else {
    key += text_of_json(json_of_member(x));
  }
}

// What was asked: equal keys are the same question. What --resume goes by.
template <Described T>
std::string key_of(const T& x) {
  std::string key;
  describe(x, [&](const auto& member, const Description& d) {
    if (d.role != Role::asked) return;
    key += key.empty() ? '{' : ',';
    key += fmt::format("\"{}\":", d.name);
    append_key(key, member);
  });
  return key.empty() ? "{}" : key + "}";
}

// The options of fields that are not as usual, with commas between them: "--softmax, --adam".
template <Described T>
std::string changed_options(const T& x, const T& usually = {}) {
  std::vector<std::string> usual, changed;
  const auto text = [](const auto& member) {
    std::string key;
    append_key(key, member);
    return key;
  };
  describe(usually, [&](const auto& member, const Description&) { usual.push_back(text(member)); });
  std::size_t i = 0;
  describe(x, [&](const auto& member, const Description& d) {
    if (text(member) != usual[i++]) changed.push_back(first_option_of(d));
  });
  return joined(changed);
}

}  // namespace headroom
