#include "base/json.h"

#include <set>
#include <vector>

#include "base/printable.h"
#include "base/text.h"

namespace headroom {

namespace {

// Asked by the parser at every key and bracket; throws what is wrong, as a sentence that goes on after who it is about.
class Watch {
 public:
  template <class J>
  bool operator()(int, nlohmann::detail::parse_event_t event, J& parsed) {
    using Event = nlohmann::detail::parse_event_t;
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        check(int(open_.size()) < most_json_levels, Code::bad_argument, "is nested deeper than {} levels", most_json_levels);
        open_.emplace_back();
        break;
      case Event::object_end:
      case Event::array_end: open_.pop_back(); break;
      case Event::key: {
        const auto& key = parsed.template get_ref<const std::string&>();
        check(open_.back().insert(key).second, Code::bad_argument, "names '{}' twice in one object", shortened(printable(key), 60));
        break;
      }
      case Event::value: break;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> open_;  // of each open bracket the keys so far
};

template <class J>
J watched(std::string_view text) {
  check(text.size() <= most_json_bytes, Code::bad_argument, "is larger than {}", bytes_in_words(double(most_json_bytes)));
  try {
    return J::parse(text, [watch = Watch()](int depth, auto event, J& parsed) mutable { return watch(depth, event, parsed); });
  } catch (const nlohmann::json::parse_error& e) {
    throw Error(Code::bad_argument, text.find_first_not_of(" \t\r\n") == std::string_view::npos
                                        ? "is empty; it should be JSON"
                                        : fmt::format("is not JSON, near byte {}", e.byte));
  } catch (const nlohmann::json::out_of_range&) { throw Error(Code::bad_argument, "holds a number beyond a double's range"); }
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
