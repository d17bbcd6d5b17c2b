// Markdown: headings by depth, pipe tables. A pipe inside a cell is escaped.
#include <algorithm>

#include "base/text.h"
#include "report/chart_text.h"
#include "report/render.h"
#include "report/words.h"

namespace headroom {

namespace {

std::string one_line(std::string s) {
  std::replace(s.begin(), s.end(), '\n', ' ');
  return s;
}

std::string cell(const std::string& s) {
  std::string out;
  for (char c : s) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

struct Markdown {
  std::string out;

  void row(const std::vector<std::string>& cells) {
    out += "|";
    for (const auto& c : cells) out += " " + cell(c) + " |";
    out += "\n";
  }
  void heading(int depth, const std::string& title) {
    if (!title.empty()) out += repeated("#", std::min(depth, 6)) + " " + title + "\n\n";
  }
  void table(const Table& t, int depth) {
    heading(depth, t.title);
    const Worded w = worded(t, 0);
    row(w.header);
    out += "|";
    for (bool right : w.right) out += right ? "---:|" : "---|";
    out += "\n";
    for (const auto& r : w.rows) row(r);
    out += "\n";
  }
  void fields(const Record& r) {
    bool any = false;
    for (const Part& p : r.parts)
      if (const auto* f = std::get_if<Field>(&p.is)) {
        if (!any) out += "| name | value |\n|---|---|\n";
        any = true;
        row({f->name, in_words(f->value, f->unit)});
      }
    if (any) out += "\n";
  }
  void chart(const Chart& c, int depth) {
    const auto lines = chart_lines(c);
    if (lines.empty()) return;
    heading(depth, c.choice.empty() ? c.title : c.title + ": " + c.choice);
    out += "```text\n";
    for (const auto& l : lines) out += one_line(l) + "\n";
    out += "```\n\n";
  }
  void record(const Record& r, int depth) {
    heading(depth, r.title);
    fields(r);
    for (const Part& p : r.parts) {
      if (const auto* t = std::get_if<Table>(&p.is)) table(*t, depth + 1);
      if (const auto* n = std::get_if<Note>(&p.is)) out += n->text + "\n\n";
      if (const auto* c = std::get_if<Chart>(&p.is)) chart(*c, depth + 1);
      if (const auto* inner = std::get_if<Record>(&p.is)) record(*inner, depth + 1);
    }
  }
};

}  // namespace

std::string render_markdown(const Record& r) {
  Markdown md;
  md.record(r, 1);
  while (md.out.ends_with("\n\n")) md.out.pop_back();
  return md.out;
}

}  // namespace headroom
