// Text for a terminal: aligned tables, fields in two columns, sparklines.
#include <algorithm>

#include "base/printable.h"
#include "base/text.h"
#include "report/chart_text.h"
#include "report/render.h"
#include "report/words.h"

namespace headroom {

namespace {

std::string padded(const std::string& s, int width, bool right) {
  const std::string space(std::size_t(std::max(0, width - columns_of(s))), ' ');
  return right ? space + s : s + space;
}

struct Text {
  std::string out;

  void line(const std::string& raw) {
    std::string s = printable(raw, Lines::many);  // titles, names and notes hold what others wrote
    while (!s.empty() && s.back() == ' ') s.pop_back();
    out += s + "\n";
  }
  void gap() {
    if (!out.empty() && !out.ends_with("\n\n")) out += "\n";
  }

  void table(const Table& t) {
    gap();
    if (!t.title.empty()) line(t.title);
    if (t.rows.empty()) return line("  (none)");
    const Worded w = worded(t, 12);
    std::vector<int> width;
    for (std::size_t c = 0; c < w.header.size(); ++c) {
      width.push_back(columns_of(w.header[c]));
      for (const auto& row : w.rows) width[c] = std::max(width[c], columns_of(row[c]));
    }
    const auto print = [&](const std::vector<std::string>& cells) {
      std::string s;
      for (std::size_t c = 0; c < cells.size(); ++c) s += "  " + padded(cells[c], width[c], w.right[c]);
      line(s);
    };
    print(w.header);
    for (const auto& row : w.rows) print(row);
    gap();
  }

  void chart(const Chart& c) {
    const auto lines = chart_lines(c);
    if (lines.empty()) return;
    gap();
    line(c.choice.empty() ? c.title : c.title + ": " + c.choice);
    for (const auto& l : lines) line("  " + l);
    gap();
  }

  void record(const Record& r) {
    if (!r.title.empty()) {
      gap();
      line(r.title);
    }
    int width = 0;
    for (const Part& p : r.parts)
      if (const auto* f = std::get_if<Field>(&p.is)) width = std::max(width, columns_of(f->name));
    for (const Part& p : r.parts) {
      if (const auto* f = std::get_if<Field>(&p.is)) line("  " + padded(f->name, width, false) + "  " + in_words(f->value, f->unit));
      if (const auto* t = std::get_if<Table>(&p.is)) table(*t);
      if (const auto* n = std::get_if<Note>(&p.is)) line(n->text);
      if (const auto* c = std::get_if<Chart>(&p.is)) chart(*c);
      if (const auto* inner = std::get_if<Record>(&p.is)) record(*inner);
    }
    gap();
  }
};

}  // namespace

std::string render_text(const Record& r) {
  Text text;
  text.record(r);
  while (text.out.ends_with("\n\n")) text.out.pop_back();
  return text.out;
}

}  // namespace headroom
