#include "base/json.h"

#include <set>
#include <vector>

#include "base/printable.h"
#include "base/text.h"

namespace headroom {

namespace {

// Builds the value as the parser meets its parts; throws what is wrong, as a sentence that goes on after who it is about. The library's
// own builder, where it is watched by a callback, looks through all siblings at every closing bracket: it takes quadratic time.
template <class J>
class Builder {
 public:
  J take() { return std::move(root_); }

  bool null() { return add(J(nullptr)) != nullptr; }
  bool boolean(bool x) { return add(J(x)) != nullptr; }
  bool number_integer(typename J::number_integer_t x) { return add(J(x)) != nullptr; }
  bool number_unsigned(typename J::number_unsigned_t x) { return add(J(x)) != nullptr; }
  bool number_float(typename J::number_float_t x, const std::string&) { return add(J(x)) != nullptr; }
  bool string(std::string& x) { return add(J(std::move(x))) != nullptr; }
  bool binary(typename J::binary_t&) { return false; }  // JSON has none
  bool start_object(std::size_t) { return open(J(nlohmann::detail::value_t::object)); }
  bool start_array(std::size_t) { return open(J(nlohmann::detail::value_t::array)); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& x) {
    check(open_.back().keys.insert(x).second, Code::bad_argument, "names '{}' twice in one object", shortened(printable(x), 60));
    open_.back().key = std::move(x);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const typename J::exception& e) {
    check(dynamic_cast<const typename J::out_of_range*>(&e) == nullptr, Code::bad_argument, "holds a number beyond a double's range");
    throw Error(Code::bad_argument, fmt::format("is not JSON, near byte {}", byte));
  }

 private:
  struct Open {
    J* value;  // stays where it is: nothing is added beside it before it is closed
    std::set<std::string> keys{};
    std::string key{};
  };

  J* add(J&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Open& into = open_.back();
    if (into.value->is_array()) {
      auto& list = into.value->template get_ref<typename J::array_t&>();
      return &list.emplace_back(std::move(value));
    }
    auto& object = into.value->template get_ref<typename J::object_t&>();
    if constexpr (requires { object.emplace_back(into.key, std::move(value)); })  // an ordered object is a list, which emplace would search
      return &object.emplace_back(std::move(into.key), std::move(value)).second;
    else
      return &object.emplace(std::move(into.key), std::move(value)).first->second;
  }
  bool open(J&& value) {
    check(int(open_.size()) < most_json_levels, Code::bad_argument, "is nested deeper than {} levels", most_json_levels);
    open_.push_back({add(std::move(value))});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  J root_;
  std::vector<Open> open_;
};

template <class J>
J watched(std::string_view text) {
  check(text.size() <= most_json_bytes, Code::bad_argument, "is larger than {}", bytes_in_words(double(most_json_bytes)));
  check(text.find_first_not_of(" \t\r\n") != std::string_view::npos, Code::bad_argument, "is empty; it should be JSON");
  Builder<J> builder;
  J::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace

template <class J>
J parse_json(std::string_view text, const std::string& who, At code) {
  try {
    return watched<J>(text);
  } catch (const Error& e) { throw Error(code, fmt::format("{} {}", who, e.what())); }
}

template <class J>
J parse_json_or_discard(std::string_view text) {
  try {
    return watched<J>(text);
  } catch (const Error&) { return J(nlohmann::detail::value_t::discarded); }
}

template nlohmann::json parse_json(std::string_view, const std::string&, At);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, At);
template nlohmann::json parse_json_or_discard(std::string_view);
template nlohmann::ordered_json parse_json_or_discard(std::string_view);

}  // namespace headroom
