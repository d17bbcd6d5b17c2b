// Makes foreign text safe to show on a terminal or a page.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

// Control characters (escape sequences, zero bytes), marks that turn the reading direction and bytes that are no UTF-8 become \x1b,
// \u{202e}, \xff; printable text is unchanged. New lines stay if several lines are allowed.
enum class Lines : std::uint8_t { one, many };
std::string printable(std::string_view text, Lines = Lines::one);

// JSON text that writes everything printable() would change as JSON's own escape, so that its meaning stays: \u202e.
std::string escaped_in_json(std::string_view json);

// Whether a spreadsheet takes the text of a cell for a formula: after =, +, -, @, a tab or a carriage return.
bool begins_formula(std::string_view text);

}  // namespace headroom
