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

// Broken between words where it is longer than `columns`.
std::string folded(const std::string& text, int columns) {
  if (columns <= 0 || text.find('\n') != std::string::npos) return text;
  std::string out, line;
  const auto end_line = [&] {
    if (!line.empty()) out += (out.empty() ? "" : "\n") + line;
    line.clear();
  };
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > columns) end_line();
    line += (line.empty() ? "" : " ") + word;
    word.clear();
  };
  for (const char c : text) c == ' ' ? end_word() : void(word += c);
  end_word();
  end_line();
  return out;
}

struct Text {
  std::string out;
  int columns = 0;  // of the terminal; 0: as wide as need be

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
    const auto print = [&](const std::vector<std::string>& cells, const std::vector<std::size_t>& which) {
      std::string s;
      for (const std::size_t c : which) s += "  " + padded(cells[c], width[c], w.right[c]);
      line(s);
    };
    for (const auto& which : pieces(width)) {
      print(w.header, which);
      for (const auto& row : w.rows) print(row, which);
      gap();
    }
  }

  // The columns that stand side by side: those that no longer fit come below, after the first column once more.
  std::vector<std::vector<std::size_t>> pieces(const std::vector<int>& width) const {
    std::vector<std::vector<std::size_t>> all(1);
    int taken = 0;
    for (std::size_t c = 0; c < width.size(); ++c) {
      if (columns > 0 && c > 0 && taken + 2 + width[c] > columns && all.back().back() != 0) {
        all.push_back({0});
        taken = 2 + width[0];
      }
      all.back().push_back(c);
      taken += 2 + width[c];
    }
    return all;
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
      if (const auto* n = std::get_if<Note>(&p.is)) line(folded(n->text, columns));
      if (const auto* c = std::get_if<Chart>(&p.is)) chart(*c);
      if (const auto* inner = std::get_if<Record>(&p.is)) record(*inner);
    }
    gap();
  }
};

}  // namespace

std::string render_text(const Record& r, int columns) {
  Text text{{}, columns};
  text.record(r);
  while (text.out.ends_with("\n\n")) text.out.pop_back();
  return text.out;
}

std::string render_text(const Record& r) { return render_text(r, 0); }

}  // namespace headroom
