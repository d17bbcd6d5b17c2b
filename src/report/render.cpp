#include "report/render.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace headroom {

namespace {

struct Printer {
  std::string_view name;
  Format format;
  std::string (*print)(const Record&);
};
constexpr std::array printers = {
    Printer{"text", Format::text, render_text}, Printer{"md", Format::markdown, render_markdown}, Printer{"csv", Format::csv, render_csv},
    Printer{"json", Format::json, render_json}, Printer{"html", Format::html, render_html},
};

}  // namespace

std::optional<Format> format_named(std::string_view name) {
  for (const Printer& p : printers)
    if (p.name == name) return p.format;
  return std::nullopt;
}

std::optional<Format> format_of_file(std::string_view file) {
  const auto dot = file.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string end(file.substr(dot + 1));
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  constexpr std::pair<std::string_view, std::string_view> also[] = {{"txt", "text"}, {"log", "text"}, {"markdown", "md"}, {"htm", "html"}};
  for (const auto& [other, name] : also)
    if (end == other) end = name;
  return format_named(end);
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Printer& p : printers) names.emplace_back(p.name);
  return names;
}

std::string render(const Record& r, Format f) {
  for (const Printer& p : printers)
    if (p.format == f) return p.print(r);
  return {};
}

}  // namespace headroom
