#include "report/render.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"

namespace headroom {
namespace {

Record sample() {
  Record inner{"analysis", "Analysis", {}};
  inner.add("edge", std::int64_t(4096));
  Table t{
      "rows", "Rows", {{"variant"}, {"fwd_ms", Unit::ms, Show::bar}, {"peak_bytes", Unit::bytes}, {"why", Unit::none, Show::detail}}, {}};
  t.add({std::string("plain"), 2.0, std::int64_t(3 << 20), std::string("a, \"b\"\nc")});
  t.add({std::string("fl|ash"), 1.0, {}, std::string()});
  Record r{"", "Title", {}};
  r.add("name", std::string("CPU")).add("nan", std::nan("")).add("yes", true);
  r.add(Part{t}).add(Part{Note{"a remark"}}).add(Part{inner});
  return r;
}

TEST(Render, JsonKeepsEverythingInItsPlace) {
  const auto j = nlohmann::json::parse(render(sample(), Format::json));
  EXPECT_EQ(j["name"], "CPU");
  EXPECT_TRUE(j["nan"].is_null());
  EXPECT_EQ(j["yes"], true);
  ASSERT_EQ(j["rows"].size(), 2u);
  EXPECT_EQ(j["rows"][0]["peak_bytes"], 3 << 20);
  EXPECT_EQ(j["rows"][0]["why"], "a, \"b\"\nc");
  EXPECT_TRUE(j["rows"][1]["peak_bytes"].is_null());
  EXPECT_EQ(j["notes"][0], "a remark");
  EXPECT_EQ(j["analysis"]["edge"], 4096);
}

TEST(Render, CsvIsTheFirstTableWithQuotesWhereNeeded) {
  EXPECT_EQ(render(sample(), Format::csv), "variant,fwd_ms,peak_bytes,why\nplain,2,3145728,\"a, \"\"b\"\"\nc\"\nfl|ash,1,,\n");
  Record fields;
  fields.add("a", std::int64_t(1)).add("b", std::string("x,y"));
  EXPECT_EQ(render(fields, Format::csv), "name,value\na,1\nb,\"x,y\"\n");
}

// Names come from models' files and other programs' kernels.
TEST(Render, DataIsNoFormulaAndNoCommandToATerminal) {
  const std::string turned = "a\u202e\x1b[31m\u0085";
  Table t{"rows", "", {{"name"}, {"=2+2"}}, {}};
  for (const char* formula : {"=1+1", "+1", "-cmd", "@SUM(1)", "\t=1", "fine = 1"}) t.add({std::string(formula), -1.0});
  t.add({turned, 1.0});
  Record r{"", turned, {}};
  r.add(Part{t});
  EXPECT_EQ(render(r, Format::csv),
            "name,'=2+2\n'=1+1,-1\n'+1,-1\n'-cmd,-1\n'@SUM(1),-1\n'\t=1,-1\nfine = 1,-1\na\\u{202e}\\x1b[31m\\x85,1\n");
  const std::string json = render(r, Format::json), page = render(r, Format::html);
  for (const std::string& text : {json, page})
    for (const char* raw : {"\u202e", "\x1b", "\u0085"}) EXPECT_EQ(text.find(raw), std::string::npos) << raw;
  EXPECT_EQ(nlohmann::json::parse(json)["rows"][6]["name"], turned) << "it means what it meant";
  EXPECT_NE(page.find("<title>a\\u{202e}\\x1b[31m\\x85</title>"), std::string::npos) << page.substr(0, 400);
}

TEST(Render, ACourseSaysWhichNumberIsWhich) {
  Chart c{"Live bytes", "part", "", Unit::bytes, false, {{"allocated", {{0, 1 << 20}, {1, 5 << 20}, {2, 3 << 20}}}}};
  c.series[0].joined = true;
  Record r{"", "", {}};
  const std::string text = render(r.add(Part{c}), Format::text);
  EXPECT_NE(text.find("first 1.00 MiB, last 3.00 MiB, most 5.00 MiB  (part 0 to 2)"), std::string::npos) << text;
}

// What others wrote is in every place: a title, a field, a column, a cell, a note, a chart's name.
Record hostile_record() {
  const std::string bad = std::string("a\x1b[31m\0<script>x</script>[l](http://e)|*`", 42);
  Table t{"rows", bad, {{bad}, {"ms"}}, {}};
  t.add({bad, 1.0}), t.add({bad + "\nb", 2.0});
  Record r{"", bad, {}};
  r.add(bad, bad).add(Part{t}).add(Part{Note{"# " + bad}});
  Chart c{bad, "", "ms", Unit::ms, false, {{"```", {{0, 1}}}}, Chart::Kind::bars};
  c.ticks = {"```\n" + bad};
  return r.add(Part{c});
}

TEST(Render, PeopleSeeWhatATerminalWouldObey) {
  for (const Format f : {Format::text, Format::markdown}) {
    const std::string text = render(hostile_record(), f);
    for (const char c : {'\x1b', '\0'}) EXPECT_EQ(text.find(c), std::string::npos) << text;
    EXPECT_NE(text.find("x1b[31m"), std::string::npos) << text;
  }
  EXPECT_NE(render(hostile_record(), Format::text).find("\\nb"), std::string::npos) << "a cell stays in its line";
}

TEST(Render, MarkdownHoldsNoMarkupOfOthers) {
  std::istringstream lines(render(hostile_record(), Format::markdown));
  bool fenced = false;
  int fences = 0, cells = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) fenced = !fenced, ++fences;
    if (fenced || line.starts_with("```")) continue;
    EXPECT_EQ(line.find("<script"), std::string::npos) << line;
    EXPECT_EQ(line.find("]("), std::string::npos) << line;
    if (line.find("script") != std::string::npos && line.starts_with("|")) {
      ++cells;
      EXPECT_NE(line.find("\\|\\*\\`"), std::string::npos) << line;
    }
    EXPECT_FALSE(line.starts_with("# a") && line.find("# \\# ") == 0) << line;
  }
  EXPECT_EQ(fences, 2) << "no name ends the block";
  EXPECT_GE(cells, 4);
}

TEST(Render, TextAlignsAndDrawsBars) {
  const std::string text = render(sample(), Format::text);
  EXPECT_NE(text.find("3.00 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("████████████"), std::string::npos) << text;
  EXPECT_EQ(text.find("why"), std::string::npos) << "details stay out of the page";
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "no spaces at line ends";
  EXPECT_NE(text.find("a remark"), std::string::npos);
}

TEST(Render, TextIsNoWiderThanTheTerminal) {
  Table t{"rows", "What fits", {}, {}};
  for (int i = 0; i < 12; ++i) t.columns.push_back({fmt::format("column_{}", i)});
  for (int r = 0; r < 9; ++r) {
    t.rows.emplace_back();
    for (int i = 0; i < 12; ++i) t.rows.back().emplace_back(fmt::format("value_{}{}", i, "abcdefghi"[r]));
  }
  Record r{"", "", {}};
  r.add(Part{t}).add(Part{Note{"A sentence with so many words that no narrow terminal has room for all of them in one line of it."}});
  const std::string wide = render_text(r), narrow = render_text(r, {.columns = 40});
  EXPECT_EQ(render_text(r, {.columns = 1000}), wide);
  std::stringstream lines(narrow);
  int headers = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 40u) << line;
    headers += line.find("column_0") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(headers, 3) << "every piece begins with the first column";
  for (int i = 0; i < 12; ++i) {
    EXPECT_NE(narrow.find(fmt::format("column_{}", i)), std::string::npos);
    EXPECT_NE(narrow.find(fmt::format("value_{}", i)), std::string::npos);
  }
}

// A column of words is never narrower than its longest word, which would reach past the line.
TEST(Render, ALongWordKeepsTheColumns) {
  Table t{"rows", "", {{"bench"}, {"docs"}, {"minutes"}, {"command"}}, {}};
  t.add({std::string("attention"), std::string("docs/attention.md"), 1.0,
         std::string("headroom attention --device cpu --attention plain,flash")});
  t.add({std::string("attention-peers"), std::string("docs/attention.md"), 2.0,
         std::string("python3 bench/peers/cpu_attention.py --dims 64,128 --lens 256,1024,4096")});
  t.add({std::string("comm"), std::string("docs/several-gpus.md"), 0.5,
         std::string("headroom comm --device cpu --ranks 2 --bytes 1MB,10MB")});
  Record r;
  r.add(Part{t});
  for (int columns = 60; columns < 140; ++columns) {
    std::istringstream lines(render_text(r, {.columns = columns}));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), columns) << line;
  }
  EXPECT_NE(render_text(r, {.columns = 80}).find("  bench            docs"), std::string::npos) << "it is still a table";
}

TEST(Render, AChartsTitleKeepsTheColumns) {
  Record r;
  r.add({Chart{"Relative error of the running sum (each line is scaled to itself; beside it its first and last error)",
               "part",
               "",
               Unit::none,
               false,
               {{"fp32", {{0, 1}, {1, 2}, {2, 3}}}}}});
  std::istringstream lines(render_text(r, {.columns = 60}));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 60u) << line;
}

// Rows that the first column does not tell apart are named by as many columns as it takes, in every piece of the table.
TEST(Render, PiecesOfATableNameTheirRows) {
  Table t{"rows", "", {{"variant"}, {"len"}, {"milliseconds_forward"}, {"milliseconds_backward"}, {"bytes_at_the_peak"}}, {}};
  for (const char* variant : {"plain", "flash"})
    for (const std::int64_t len : {256, 512})
      t.add({std::string(variant), len, 0.5 * double(len), 1.5 * double(len), std::int64_t(len * 7)});
  Record r{"", "", {}};
  r.add(Part{t});
  const std::string text = render_text(r, {.columns = 48});
  std::size_t headers = 0;
  for (auto at = text.find("variant  len  "); at != std::string::npos; at = text.find("variant  len  ", at + 1)) ++headers;
  EXPECT_EQ(headers, 3u) << text;
  EXPECT_EQ(text.find("variant  bytes"), std::string::npos) << text;
}

// A few rows are read, not compared: each becomes a record. Bars give way first, and words are folded within their column.
TEST(Render, ATooWideRowBecomesARecord) {
  Table t{"rows", "What fits", {{"way"}, {"needed_bytes", Unit::bytes, Show::bar}, {"with"}}, {}};
  t.add({std::string("all parameters"), std::int64_t(3 << 20),
         std::string("--batch 2 --parameters half --adam paged-8bit --optimizer-in-backward")});
  Record r{"", "Fits a card.", {}};
  r.add(Part{t}).add("program", std::string("python3 train.py --with many --options that --go --on --and --on"));
  const auto widest = [](const std::string& text) {
    int most = 0;
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line);) most = std::max(most, columns_of(line));
    return most;
  };
  const std::string folded = render_text(r, {.columns = 80}), record = render_text(r, {.columns = 44});
  EXPECT_LE(widest(folded), 80) << folded;
  EXPECT_NE(folded.find("████"), std::string::npos) << "the words alone were folded: " << folded;
  EXPECT_LE(widest(record), 44) << record;
  EXPECT_NE(record.find("\n  needed_bytes  3.00 MiB\n  with          --batch 2"), std::string::npos) << record;
}

TEST(Render, WhatIsEqualInEveryRowOfATooWideTableIsSaidOnce) {
  Table t{"rows", "", {{"variant"}, {"dtype"}, {"mask"}, {"ms", Unit::ms}}, {}};
  for (const char* variant : {"plain", "flash", "flash_sm90"})
    t.add({std::string(variant), std::string("bf16"), std::string("causal"), 1.5});
  t.rows[2][3] = 0.5;
  Record r;
  r.add(Part{t});
  EXPECT_EQ(render_text(r, {.columns = 32}).find("In every row"), std::string::npos) << "it fits";
  EXPECT_EQ(render_text(r, {.columns = 20}),
            "  In every row:\n  dtype bf16 · mask\n  causal\n  variant      ms\n  plain       1.5\n  flash       1.5\n"
            "  flash_sm90  0.5\n");
}

TEST(Render, ColourIsOfTheAnswerAndWhereItIsWelcome) {
  Record r{"", "Does not fit a card.", {}};
  r.add("fits", false);
  EXPECT_EQ(render_text(r, {.answer = TextLook::Answer::bad}).find('\033'), std::string::npos);
  EXPECT_TRUE(render_text(r, {.colour = true, .answer = TextLook::Answer::bad}).starts_with("\033[1;31mDoes not fit a card.\033[0m\n"));
  EXPECT_TRUE(render_text(r, {.colour = true, .answer = TextLook::Answer::good}).starts_with("\033[1;32m"));
}

TEST(Render, ASpreadStandsBesideItsValueAndWordsThatNobodySaysAreLeftOut) {
  Record r;
  Table t{"rows", "", {{"ms", Unit::ms}, {"ms_std", Unit::ms, Show::spread}, {"why"}}, {}};
  t.add({8.26676, 0.0699, std::string()});
  t.add({{}, {}, std::string()});
  r.add(Part{t});
  EXPECT_EQ(render(r, Format::text), "            ms\n  8.267 ± 0.07\n             –\n");
  EXPECT_EQ(render(r, Format::csv), "ms,ms_std,why\n8.26676,0.0699,\n,,\n");
  t.add({1.0, 2e-5, std::string("a reason")});
  Record with;
  t.add({1895.0, 330.4, std::string()});
  with.add(Part{t});
  EXPECT_NE(render(with, Format::markdown).find("| 1895 ± 330 |"), std::string::npos) << render(with, Format::markdown);
  EXPECT_NE(render(with, Format::markdown).find("| 1 ± 2e-05 | a reason |"), std::string::npos) << render(with, Format::markdown);
}

TEST(Render, ASlowLinkHasARate) {
  for (const auto& [rate, words] : {std::pair{7.6e6, "7.6 MB/s"}, {210.4e6, "210 MB/s"}, {1.5e9, "1.5 GB/s"}, {4.19e12, "4.19 TB/s"}}) {
    Record r;
    r.add("rate", rate, Unit::bytes_per_s);
    EXPECT_NE(render(r, Format::text).find(words), std::string::npos) << render(r, Format::text);
  }
}

TEST(Render, MarkdownEscapesPipes) {
  const std::string md = render(sample(), Format::markdown);
  EXPECT_NE(md.find("fl\\|ash"), std::string::npos) << md;
  EXPECT_NE(md.find("# Title"), std::string::npos);
  EXPECT_NE(md.find("---:|"), std::string::npos);
}

TEST(Render, AnEmptyTableAndBrokenBytesDoNotBreakAPrinter) {
  Record r;
  r.add(Part{Table{"rows", "None", {{"x", Unit::none, Show::bar}}, {}}}).add("bad", std::string("\xff\xfe"));
  for (const auto& name : format_names()) EXPECT_FALSE(render(r, *format_named(name)).empty()) << name;
  EXPECT_FALSE(format_named("xml"));
}

TEST(Render, RowsWithoutAColumnToShowAreCounted) {
  Table details{"rows", "Rows", {{"why", Unit::none, Show::detail}}, {}}, empty{"rows", "Rows", {{"why"}}, {}},
      bare{"rows", "Rows", {}, {}};
  details.add({std::string("a reason")});
  empty.add({std::string()});
  bare.rows.resize(1);
  for (const Table& t : {details, empty, bare}) {
    Record r;
    r.add(Part{t});
    EXPECT_EQ(render(r, Format::text), "Rows\n  (1 row without a value to show)\n");
    EXPECT_EQ(render_text(r, {.columns = 40}), "Rows\n  (1 row without a value to show)\n");
    EXPECT_EQ(render(r, Format::markdown), "## Rows\n\n(1 row without a value to show)\n");
    for (const auto& name : format_names()) EXPECT_FALSE(render(r, *format_named(name)).empty()) << name;
  }
}

}  // namespace
}  // namespace headroom
