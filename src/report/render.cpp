#include "report/render.h"

#include <array>

namespace headroom {

namespace {

struct Printer {
  std::string_view name;
  Format format;
  std::string (*print)(const Record&);
};
constexpr std::array printers = {
    Printer{"text", Format::text, render_text},
    Printer{"md", Format::markdown, render_markdown},
    Printer{"csv", Format::csv, render_csv},
    Printer{"json", Format::json, render_json},
    Printer{"html", Format::html, render_html},
};

}  // namespace

std::optional<Format> format_named(std::string_view name) {
  for (const Printer& p : printers)
    if (p.name == name) return p.format;
  return std::nullopt;
}

std::optional<Format> format_of_file(std::string_view file) {
  const auto dot = file.rfind('.');
  return dot == std::string_view::npos ? std::nullopt : format_named(file.substr(dot + 1));
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
