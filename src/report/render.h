// render — one door to every printer. Text and Markdown are for people: rounded numbers with units, detail columns left out.
// CSV holds the record's first table (its fields when it has none), JSON holds everything; both with full precision. HTML is a page
// that stands alone, with charts.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/record.h"

namespace headroom {

enum class Format : std::uint8_t { text, markdown, csv, json, html };

std::optional<Format> format_named(std::string_view name);  // text md csv json html
std::optional<Format> format_of_file(std::string_view file);  // by its ending: .md .csv .json .html
std::vector<std::string> format_names();

std::string render(const Record&, Format);

// One printer per file.
std::string render_text(const Record&);
std::string render_markdown(const Record&);
std::string render_csv(const Record&);
std::string render_json(const Record&);
std::string render_html(const Record&);

}  // namespace headroom
