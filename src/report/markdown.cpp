// Markdown: headings by depth, pipe tables. What a text says is never markup: no tag, link, emphasis or cell's end.
#include <algorithm>

#include "base/printable.h"
#include "base/text.h"
#include "report/chart_text.h"
#include "report/render.h"
#include "report/words.h"

namespace headroom {

namespace {

// In one line.
std::string words(std::string s) {
  std::replace(s.begin(), s.end(), '\n', ' ');
  std::string out;
  for (const char c : printable(s)) {
    const bool before_link = c == '(' && out.ends_with(']');
    if (before_link || c == '|' || c == '*' || c == '`' || c == '\\') out += '\\';
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

// A line of its own, which must not begin as a heading, a quotation or a list does.
std::string paragraph(const std::string& s) {
  const std::string out = words(s);
  const bool begins_something = out.find_first_of("#>|=~+-") == 0;
  return begins_something ? "\\" + out : out;
}

// Within ``` nothing is markup but its end; what a reader of less than Markdown would take for a tag or a link is none either.
std::string fenced(const std::string& s) {
  std::string out = printable(s);
  for (const auto& [tag, none] : {std::pair{"<", "‹"}, {"](", "] ("}})
    for (auto at = out.find(tag); at != std::string::npos; at = out.find(tag, at + 1)) out.replace(at, std::string(tag).size(), none);
  for (auto at = out.find("```"); at != std::string::npos; at = out.find("```", at)) out.replace(at, 3, "'''");
  return out;
}

struct Markdown {
  std::string out;

  void row(const std::vector<std::string>& cells) {
    out += "|";
    for (const auto& c : cells) out += " " + words(c) + " |";
    out += "\n";
  }
  void heading(int depth, const std::string& title) {
    if (!title.empty()) out += repeated("#", std::min(depth, 6)) + " " + words(title) + "\n\n";
  }
  void table(const Table& t, int depth) {
    heading(depth, t.title);
    const Worded w = worded(t, 0);
    if (w.header.empty()) {
      out += nothing_to_show(t) + "\n\n";
      return;
    }
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
    for (const auto& l : lines) out += fenced(l) + "\n";
    out += "```\n\n";
  }
  void record(const Record& r, int depth) {
    heading(depth, r.title);
    fields(r);
    for (const Part& p : r.parts) {
      if (const auto* t = std::get_if<Table>(&p.is)) table(*t, depth + 1);
      if (const auto* n = std::get_if<Note>(&p.is)) out += paragraph(n->text) + "\n\n";
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
