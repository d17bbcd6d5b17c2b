// The only reader of JSON; no other code calls nlohmann's parser. A foreign file may be nested 100 000 levels deep, name a key twice or be
// larger than memory; each is refused in one line.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace headroom {

constexpr int most_json_levels = 100;                  // past them a walk over the value would end the program's stack
constexpr std::uint64_t most_json_bytes = 256u << 20;  // a value takes some ten times its text

// The value of `text`, or an Error of `code` that begins with `who` and says what is wrong: "'x.json' is not JSON, near byte 7".
// J: nlohmann::json or nlohmann::ordered_json.
template <class J = nlohmann::json>
J parse_json(std::string_view text, const std::string& who, At code = Code::bad_argument);

// The same for a caller with error messages of its own: text that is not JSON gives a discarded value (is_discarded()).
template <class J = nlohmann::json>
J parse_json_or_discard(std::string_view text);

// The text of a value, on one line or indented; bytes that are not UTF-8, as a file's name may have, are replaced.
template <class J>
std::string text_of_json(const J& value, int indent = -1) {
  return value.dump(indent, ' ', false, J::error_handler_t::replace);
}

}  // namespace headroom
