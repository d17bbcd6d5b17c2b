// HTML: one file without a network. The record goes in as JSON (page_data.h), the page's own style and code and the chart library are
// embedded by the build, and the code that lies in src/report/page makes the document of them. Nothing of the record becomes markup:
// the data cannot end its element, the page writes text only as text, and a policy runs no script but the two that carry the nonce.
#include <array>
#include <cstdint>
#include <span>

#include "base/json.h"
#include "base/printable.h"
#include "report/page_data.h"
#include "report/render.h"

namespace headroom {

namespace embedded {
extern const std::string_view page_html, page_css, page_js, chart_library, chart_library_licence;
}

namespace {

constexpr std::size_t most_data_bytes = 2'500'000;  // keeps a page below 3 MB

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// JSON that may stand in a script element: no text in it can end the element or open a comment.
std::string within_script(const std::string& json) {
  std::string out;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&')
      out += c == '<' ? "\\u003c" : c == '>' ? "\\u003e" : "\\u0026";
    else
      out += c;
  }
  return out;
}

std::string data_of(const Record& r) {
  for (PageLimits limits;; limits.rows /= 2, limits.points /= 2) {
    std::string data = within_script(escaped_in_json(text_of_json(page_data(r, limits))));
    if (data.size() <= most_data_bytes || limits.rows < 100) return data;
  }
}

std::string nonce_of(const std::string& data) {  // FNV-1a: a text within the data cannot name the number that it changes
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : data) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3;
  return std::to_string(hash);
}

using Filling = std::pair<std::string_view, std::string_view>;

std::string filled(std::string_view text, std::span<const Filling> fillings) {  // in one pass: what is filled in is not read again
  std::string out;
  while (true) {
    const auto open = text.find("{{"), close = text.find("}}", open);
    out += text.substr(0, open);
    if (open == std::string_view::npos || close == std::string_view::npos) return out;
    for (const auto& [name, with] : fillings)
      if (name == text.substr(open + 2, close - open - 2)) out += with;
    text.remove_prefix(close + 2);
  }
}

}  // namespace

std::string render_html(const Record& r) {
  const std::string data = data_of(r), nonce = nonce_of(data), title = escaped(r.title.empty() ? "Headroom" : printable(r.title));
  const std::string licence = escaped(embedded::chart_library_licence);
  const std::array<Filling, 8> fillings{{{"title", title},
                                         {"nonce", nonce},
                                         {"style", embedded::page_css},
                                         {"data", data},
                                         {"library", embedded::chart_library},
                                         {"code", embedded::page_js},
                                         {"licence", licence},
                                         {"version", HEADROOM_VERSION}}};
  return filled(embedded::page_html, fillings);
}

}  // namespace headroom
