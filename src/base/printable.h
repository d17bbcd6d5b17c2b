// Text that others wrote, as a terminal or a page may be shown it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

// Control characters (escape sequences, zero bytes), marks that turn the reading direction and bytes that are no UTF-8 become \x1b,
// \u{202e}, \xff; what is printable already stays as it is. New lines stay where several are wanted.
enum class Lines : std::uint8_t { one, many };
std::string printable(std::string_view text, Lines = Lines::one);

}  // namespace headroom
