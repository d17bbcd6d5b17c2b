// Text for a terminal: aligned tables, fields in two columns, sparklines.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

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

// Its lines, broken between words where it is longer than `columns`; 0: nowhere.
std::vector<std::string> lines_of(const std::string& text, int columns) {
  if (columns <= 0 || text.find('\n') != std::string::npos) return {text};
  std::vector<std::string> lines(1);
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (!lines.back().empty() && columns_of(lines.back()) + 1 + columns_of(word) > columns) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    word.clear();
  };
  for (const char c : text) c == ' ' ? end_word() : void(word += c);
  end_word();
  return lines;
}

constexpr int bar_width = 12, narrowest_words = 24;
constexpr std::size_t most_records = 2;  // more rows are compared rather than read: they stay rows, in pieces of the table

int sum_of(const std::vector<int>& widths) {
  int sum = 0;
  for (const int w : widths) sum += 2 + w;
  return sum;
}

std::vector<int> widths_of(const Worded& w) {
  std::vector<int> all;
  for (std::size_t c = 0; c < w.header.size(); ++c) {
    all.push_back(columns_of(w.header[c]));
    for (const auto& row : w.rows) all[c] = std::max(all[c], columns_of(row[c]));
  }
  return all;
}

// What a column of words needs at least: its name and its longest word on a line each.
int narrowest_of(const Worded& w, std::size_t column) {
  int least = std::max(narrowest_words, columns_of(w.header[column]));
  for (const auto& row : w.rows)
    for (const std::string& word : lines_of(row[column], 1)) least = std::max(least, columns_of(word));
  return least;
}

constexpr std::string_view bold = "1", dim = "2", good = "1;32", bad = "1;31";  // as a terminal is told

struct Text {
  std::string out;
  TextLook look;

  void line(const std::string& raw, std::string_view colour = {}) {
    std::string s = printable(raw, Lines::many);  // titles, names and notes hold what others wrote
    while (!s.empty() && s.back() == ' ') s.pop_back();
    const bool coloured = look.colour && !colour.empty() && !s.empty();
    out += coloured ? fmt::format("\033[{}m{}\033[0m\n", colour, s) : s + "\n";
  }
  void gap() {
    if (!out.empty() && !out.ends_with("\n\n")) out += "\n";
  }
  bool fits(int width) const { return look.columns <= 0 || width <= look.columns; }

  void table(const Table& t) {
    gap();
    for (const std::string& title : lines_of(t.title, look.columns))
      if (!t.title.empty()) line(title, bold);
    if (t.rows.empty()) return line("  (none)");
    Worded w = worded(t, bar_width);
    if (w.header.empty()) return line("  " + nothing_to_show(t));
    std::vector<int> width = widths_of(w);
    std::string same;
    if (!fold(w, width)) w = worded(t, 0), width = widths_of(w);  // bars give way first
    if (!fold(w, width)) same = same_in_all(w), width = widths_of(w);
    in_every_row(same);
    if (!fold(w, width)) {
      const bool one_alone = !fits(sum_of({width[0], *std::max_element(width.begin(), width.end())}));
      if (one_alone || w.rows.size() <= most_records) return records(w);
    }
    for (const auto& which : pieces(w, width)) {
      print(w, w.header, width, which, dim);
      for (const auto& row : w.rows) print(w, row, width, which);
      gap();
    }
  }

  // Columns of words give what is too much, the widest first. False where that is not enough; then they are as they were.
  bool fold(const Worded& w, std::vector<int>& width) const {
    if (fits(sum_of(width))) return true;
    std::vector<int> narrower = width, narrowest(width.size());
    for (std::size_t c = 0; c < width.size(); ++c) narrowest[c] = w.right[c] ? width[c] : narrowest_of(w, c);
    while (!fits(sum_of(narrower))) {
      std::size_t widest = width.size();
      for (std::size_t c = 0; c < width.size(); ++c)
        if (narrower[c] > narrowest[c] && (widest == width.size() || narrower[c] > narrower[widest])) widest = c;
      if (widest == width.size()) return false;
      narrower[widest] -= 1;
    }
    width = std::move(narrower);
    return true;
  }

  // Takes out the columns that say the same in every row, and says them once.
  static std::string same_in_all(Worded& w) {
    std::vector<std::string> said;
    for (std::size_t c = w.header.size(); w.rows.size() > 1 && c-- > 1;) {
      if (!std::all_of(w.rows.begin(), w.rows.end(), [&](const auto& row) { return row[c] == w.rows[0][c]; })) continue;
      said.insert(said.begin(), w.header[c] + " " + w.rows[0][c]);
      for (auto& row : w.rows) row.erase(row.begin() + std::ptrdiff_t(c));
      w.header.erase(w.header.begin() + std::ptrdiff_t(c));
      w.right.erase(w.right.begin() + std::ptrdiff_t(c));
    }
    return joined(said, " · ");
  }
  void in_every_row(const std::string& same) {
    if (same.empty()) return;
    for (const std::string& part : lines_of("In every row: " + same, look.columns - 2)) line("  " + part);
  }

  // A row of these columns; a cell that is wider than its column goes on below.
  void print(const Worded& w, const std::vector<std::string>& cells, const std::vector<int>& width, const std::vector<std::size_t>& which,
             std::string_view colour = {}) {
    std::vector<std::vector<std::string>> folded;
    std::size_t height = 1;
    for (const std::size_t c : which) {
      folded.push_back(columns_of(cells[c]) > width[c] ? lines_of(cells[c], width[c]) : std::vector{cells[c]});
      height = std::max(height, folded.back().size());
    }
    for (std::size_t l = 0; l < height; ++l) {
      std::string s;
      for (std::size_t i = 0; i < which.size(); ++i)
        s += "  " + padded(l < folded[i].size() ? folded[i][l] : "", width[which[i]], w.right[which[i]]);
      line(s, colour);
    }
  }

  // Each row by itself, a line for each value.
  void records(const Worded& w) {
    int name = 0;
    for (const auto& h : w.header) name = std::max(name, columns_of(h));
    for (const auto& row : w.rows) {
      for (std::size_t c = 0; c < row.size(); ++c) value(w.header[c], name, row[c]);
      gap();
    }
  }
  void value(const std::string& name, int width, const std::string& words) {
    std::string head = "  " + padded(name, width, false) + "  ";
    for (const std::string& part : lines_of(words, look.columns <= 0 ? 0 : std::max(narrowest_words, look.columns - width - 4))) {
      line(head + part);
      head = std::string(std::size_t(width) + 4, ' ');
    }
  }

  // How many of the first columns tell the rows apart, if they leave half of the line, and room for any other column; else 1.
  std::size_t columns_that_name(const Worded& w, const std::vector<int>& width) const {
    const int widest = 2 + *std::max_element(width.begin(), width.end());
    int taken = 0;
    for (std::size_t c = 0; c < width.size(); ++c) {
      taken += 2 + width[c];
      if (2 * taken > look.columns || !fits(taken + widest)) break;
      std::set<std::vector<std::string>> names;
      for (const auto& row : w.rows) names.insert({row.begin(), row.begin() + std::ptrdiff_t(c) + 1});
      if (names.size() == w.rows.size()) return c + 1;
    }
    return 1;
  }

  // The columns printed side by side: those that no longer fit come below, after the columns that name a row once more.
  std::vector<std::vector<std::size_t>> pieces(const Worded& w, const std::vector<int>& width) const {
    std::vector<std::size_t> names(columns_that_name(w, width));
    std::iota(names.begin(), names.end(), std::size_t{0});
    const int of_names = std::accumulate(names.begin(), names.end(), 0, [&](int sum, std::size_t c) { return sum + 2 + width[c]; });
    std::vector<std::vector<std::size_t>> all(1);
    int taken = 0;
    for (std::size_t c = 0; c < width.size(); ++c) {
      if (c >= names.size() && !fits(taken + 2 + width[c]) && all.back().size() > names.size()) {
        all.push_back(names);
        taken = of_names;
      }
      all.back().push_back(c);
      taken += 2 + width[c];
    }
    return all;
  }

  void chart(const Chart& c) {
    const auto lines = look.columns > 0 ? chart_lines(c, look.columns) : chart_lines(c);
    if (lines.empty()) return;
    gap();
    for (const std::string& part : lines_of(c.choice.empty() ? c.title : c.title + ": " + c.choice, look.columns)) line(part, bold);
    for (const auto& l : lines)
      for (const auto& part : fits(columns_of(l) + 2) ? std::vector{l} : lines_of(l, look.columns - 2)) line("  " + part);
    gap();
  }

  void record(const Record& r, std::string_view colour = bold) {
    if (!r.title.empty()) {
      gap();
      for (const std::string& part : lines_of(r.title, look.columns)) line(part, colour);
    }
    int width = 0;
    for (const Part& p : r.parts)
      if (const auto* f = std::get_if<Field>(&p.is)) width = std::max(width, columns_of(f->name));
    for (const Part& p : r.parts) {
      if (const auto* f = std::get_if<Field>(&p.is)) value(f->name, width, in_words(f->value, f->unit));
      if (const auto* t = std::get_if<Table>(&p.is)) table(*t);
      if (const auto* n = std::get_if<Note>(&p.is))
        for (const std::string& part : lines_of(n->text, look.columns)) line(part);
      if (const auto* c = std::get_if<Chart>(&p.is)) chart(*c);
      if (const auto* inner = std::get_if<Record>(&p.is)) record(*inner);
    }
    gap();
  }
};

}  // namespace

std::string render_text(const Record& r, const TextLook& look) {
  Text text{{}, look};
  const bool answers = r.title.ends_with('.');  // a title that is a sentence is the answer
  text.record(r, !answers ? bold : look.answer == TextLook::Answer::good ? good : look.answer == TextLook::Answer::bad ? bad : bold);
  while (text.out.ends_with("\n\n")) text.out.pop_back();
  return text.out;
}

std::string render_text(const Record& r) { return render_text(r, TextLook{}); }

}  // namespace headroom
