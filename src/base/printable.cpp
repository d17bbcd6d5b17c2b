#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headroom {

namespace {

// The character that begins at `at` and how many bytes it takes; 0 bytes where none does.
std::pair<char32_t, std::size_t> utf8_at(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const unsigned char head = byte(0);
  const std::size_t bytes = head < 0x80                   ? 1
                            : head >= 0xc2 && head < 0xe0 ? 2
                            : head >= 0xe0 && head < 0xf0 ? 3
                            : head >= 0xf0 && head < 0xf5 ? 4
                                                          : 0;
  if (bytes == 0 || at + bytes > s.size()) return {0, 0};
  char32_t c = bytes == 1 ? head : char32_t(head & (0xff >> (bytes + 1)));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    c = c << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  return c < least[bytes] || c > 0x10ffff || surrogate ? std::pair<char32_t, std::size_t>{0, 0} : std::pair{c, bytes};
}

bool turns(char32_t c) {  // the reading direction, or lines
  return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, bytes] = utf8_at(text, at);
    if (bytes == 0)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    else if (c == '\n' && lines == Lines::many)
      out += '\n';
    else if (c == '\n' || c == '\t' || c == '\r')
      out += c == '\n' ? "\\n" : c == '\t' ? (lines == Lines::many ? "\t" : "\\t") : "\\r";
    else if (c < 0x20 || (c >= 0x7f && c < 0xa0))
      out += fmt::format("\\x{:02x}", std::uint32_t(c));
    else if (turns(c) || c == 0xfeff)
      out += fmt::format("\\u{{{:04x}}}", std::uint32_t(c));
    else
      out += text.substr(at, bytes);
    at += std::max<std::size_t>(bytes, 1);
  }
  return out;
}

std::string escaped_in_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t at = 0; at < json.size();) {
    const auto [c, bytes] = utf8_at(json, at);
    if (bytes > 0 && ((c >= 0x7f && c < 0xa0) || turns(c) || c == 0xfeff))  // below 0x20 the writer of JSON has escaped them
      out += fmt::format("\\u{:04x}", std::uint32_t(c));
    else
      out += json.substr(at, std::max<std::size_t>(bytes, 1));
    at += std::max<std::size_t>(bytes, 1);
  }
  return out;
}

bool begins_formula(std::string_view text) {
  return !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos;
}

}  // namespace headroom
