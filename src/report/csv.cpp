// CSV (RFC 4180) of the record's first table, every column; of its fields when it holds no table.
#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "report/render.h"

namespace headroom {

namespace {

// Texts come from files that others wrote: control characters are written out, and what a spreadsheet would take for a formula begins
// with an apostrophe, which it does not show. Numbers are never texts here.
std::string quoted(const std::string& text) {
  std::string s = printable(text, Lines::many);
  if (begins_formula(s)) s.insert(0, 1, '\'');
  if (s.find_first_of(",\"\r\n") == std::string::npos) return s;
  std::string out = "\"";
  for (char c : s) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string cell(const Value& v) {
  if (const auto* s = std::get_if<std::string>(&v)) return quoted(*s);
  if (const auto* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<std::int64_t>(&v)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&v)) return std::isfinite(*d) ? fmt::format("{}", *d) : "";
  return "";
}

const Table* first_table(const Record& r) {
  for (const Part& p : r.parts) {
    if (const auto* t = std::get_if<Table>(&p.is)) return t;
    if (const auto* inner = std::get_if<Record>(&p.is))
      if (const Table* t = first_table(*inner)) return t;
  }
  return nullptr;
}

void fields(const Record& r, const std::string& prefix, std::string& out) {
  for (const Part& p : r.parts) {
    if (const auto* f = std::get_if<Field>(&p.is)) out += quoted(prefix + f->name) + "," + cell(f->value) + "\n";
    if (const auto* inner = std::get_if<Record>(&p.is)) fields(*inner, prefix + inner->name + ".", out);
  }
}

}  // namespace

std::string render_csv(const Record& r) {
  const Table* t = first_table(r);
  std::string out;
  if (!t) {
    out = "name,value\n";
    fields(r, "", out);
    return out;
  }
  for (std::size_t c = 0; c < t->columns.size(); ++c) out += (c ? "," : "") + quoted(t->columns[c].name);
  out += "\n";
  for (const auto& row : t->rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c ? "," : "") + cell(row[c]);
    out += "\n";
  }
  return out;
}

}  // namespace headroom
