// render — prints a record in any format. Text and Markdown are for people: rounded numbers with units, no detail columns.
// CSV has the record's first table (its fields if it has none), JSON has everything; both in full precision. HTML is a single page
// with charts that needs no other file.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/record.h"

namespace headroom {

enum class Format : std::uint8_t { text, markdown, csv, json, html };

std::optional<Format> format_named(std::string_view name);    // text md csv json html
std::optional<Format> format_of_file(std::string_view file);  // reads the name's ending: .txt .md .csv .json .html
std::vector<std::string> format_names();

std::string render(const Record&, Format);

// One printer per file.
std::string render_text(const Record&);
struct TextLook {   // the terminal's width and colours
  int columns = 0;  // the most columns of a line of words or a table; 0: no limit
  bool colour = false;
  enum class Answer : std::uint8_t { none, good, bad } answer = Answer::none;  // the colour of the first line
};
std::string render_text(const Record&, const TextLook&);
std::string render_markdown(const Record&);
std::string render_csv(const Record&);
std::string render_json(const Record&);
// The version of names in JSON and their meaning. A new field needs no new version; removing or redefining one does.
constexpr int json_schema_version = 1;
std::string render_html(const Record&);

}  // namespace headroom
