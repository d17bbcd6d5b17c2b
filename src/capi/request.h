// A request in JSON, read into described structs of settings. A key that no description has is refused, so that a misspelt one does
// not become a default.
#pragma once
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/described_words.h"
#include "base/json.h"

namespace headroom::capi {

inline constexpr int json_version = 1;  // the version of requests and answers

template <class T>
concept ReadValue = OneWord<T> || std::is_same_v<T, std::string> || std::is_integral_v<T>;
template <class T>
inline constexpr bool is_read = ReadValue<T>;
template <class T>
inline constexpr bool is_read<std::optional<T>> = ReadValue<T>;
template <class T>
inline constexpr bool is_read<std::vector<T>> = is_read<T>;

class Request {
 public:
  using Json = nlohmann::ordered_json;

  explicit Request(const char* text) : json_(parse_json<Json>(text, "the request")) {
    check(json_.is_object(), Code::bad_argument, "the request is {}, it must be an object", json_.type_name());
    std::int64_t version = json_version;
    read_field(version, {.name = "version"});
    check(version == json_version, Code::unsupported, "the request has version {}, this library answers version {}", version, json_version);
  }

  const Json* find(const char* key) {  // null where it is not given
    known_.insert(key);
    return json_.contains(key) && !json_.at(key).is_null() ? &json_.at(key) : nullptr;
  }

  const Json& need(const char* key, const char* what) {
    const Json* x = find(key);
    for (const auto& [given, value] : json_.items())  // a misspelt key is not a missing one
      check(x || did_you_mean(given, {key}).empty(), Code::bad_argument, "the request has an unknown key '{}'{}", given,
            did_you_mean(given, {key}));
    check(x, Code::bad_argument, "the request has no {}: {}", key, what);
    return *x;
  }

  // A visitor of descriptions: describe(settings, r.reader()).
  auto reader() {
    return [this](auto& member, const Description& d) {
      if constexpr (is_read<std::remove_reference_t<decltype(member)>>)
        if (*d.about) read_field(member, d);
    };
  }

  void done() const {  // once everything is read
    const std::vector<std::string> words(known_.begin(), known_.end());
    for (const auto& [key, value] : json_.items())
      check(known_.count(key) != 0, Code::bad_argument, "the request has an unknown key '{}'; allowed are {}{}", key, joined(words),
            did_you_mean(key, words));
  }

 private:
  template <class T>
  void read_field(T& member, const Description& d) {
    if (const Json* x = find(d.name)) member = value_of<T>(*x, d);
  }

  template <class T>
  static T value_of(const Json& x, const Description& d) {
    if constexpr (is_optional<T>) {
      return value_of<typename T::value_type>(x, d);
    } else if constexpr (is_list<T>) {
      T list;
      if (!x.is_array())
        list.push_back(value_of<typename T::value_type>(x, d));
      else
        for (const Json& item : x) list.push_back(value_of<typename T::value_type>(item, d));
      check(!list.empty(), Code::bad_argument, "{} is an empty list", d.name);
      return list;
    } else if constexpr (std::is_same_v<T, bool>) {
      return x.is_boolean() ? x.get<bool>() : integer_of(x, d.name) != 0;
    } else if constexpr (std::is_integral_v<T>) {
      return T(
          checked(integer_of(x, d.name), std::max<std::int64_t>(d.allowed.low, std::numeric_limits<T>::min()), d.allowed.high, d.name));
    } else {
      check(x.is_string(), Code::bad_argument, "{} is {}, it must be a word", d.name, x.dump());
      return word_read<T>(x.get<std::string>(), d.name, d);
    }
  }
  static std::int64_t integer_of(const Json& x, const char* key) {
    const double size = x.is_number() ? std::abs(x.get<double>()) : 0;  // what 64 bits do not hold was read as a double
    check(size < 0x1p62, Code::bad_argument, "{} is {}, it must be below 2^62", key, x.dump());
    check(x.is_number_integer(), Code::bad_argument, "{} is {}, it must be a whole number", key, x.dump());
    return x.get<std::int64_t>();
  }
  static std::int64_t checked(std::int64_t x, std::int64_t low, std::int64_t high, const char* key) {
    check(x >= low, Code::bad_argument, "{} is {}, it must be at least {}", key, x, low);
    check(x <= high, Code::bad_argument, "{} is {}, it must be at most {}", key, x, high);
    return x;
  }

  Json json_;
  std::set<std::string> known_;
};

}  // namespace headroom::capi
