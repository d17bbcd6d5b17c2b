// What a page is given, and that nothing in it can become markup. That it opens and works is asked in a browser (tests/page).
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "report/chart_json.h"
#include "report/chart_text.h"
#include "report/page_data.h"
#include "report/render.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

const std::string hostile = "</script><img src=x onerror=alert(1)><!--{{code}}";

Chart some_chart() {
  Chart c{"Bytes", "len", "", Unit::bytes, true, {{"flash", {{256, 1.5}, {512, 3}}, {"a", "b"}}}};
  c.series.push_back({"flash, forecast", {{512, 3}, {1024, 6}}, {}, true, "flash"});
  c.marks = {{"memory", 4}, {"edge", 700, true}};
  c.ticks = {"one"}, c.choice = "dim 64", c.x_unit = Unit::ms, c.kind = Chart::Kind::areas, c.log_x = true;
  return c;
}

Record record_with(const std::string& text) {
  Table t{"rows", text, {{text}, {"ms", Unit::ms, Show::bar}}, {}};
  t.add({text, 1.0});
  Chart c = some_chart();
  c.title = c.choice = c.series[0].name = c.series[0].names[0] = c.marks[0].name = text;
  Record r{text, text, {}};
  return r.add(text, text).add(Part{t}).add(Part{Note{text}}).add(Part{c});
}

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// As in text: such as "setting" of a forecast without --sweep. All columns are still there when the reader asks for them.
TEST(Page, AColumnWithoutAWordIsADetail) {
  Table t{"rows", "Rows", {{"setting"}, {"fits"}, {"why"}, {"ms"}}, {}};
  t.add({std::string(), true, std::string("slow"), {}});
  const Json columns = page_data(Record{"", "T", {Part{t}}})["parts"][0]["columns"];
  EXPECT_EQ(columns[0]["show"], "detail");
  for (int shown : {1, 2, 3}) EXPECT_EQ(columns[shown]["show"], "always") << shown;
}

TEST(Page, ARecordsPartsComeInOrder) {
  Record r{"", "T", {}};
  Table t{"rows", "Rows", {{"a"}, {"same"}, {"x", Unit::exact}}, {}};
  t.add({std::int64_t(1), std::string("s"), 0.1234567890123});
  t.add({std::int64_t(2), std::string("s"), std::nan("")});
  r.add("field", 1.0 / 3, Unit::share).add(Part{t}).add(Part{Note{"n", false}}).add(Part{Record{"in", "", {}}});
  const Json j = page_data(r);
  EXPECT_EQ(j["title"], "T");
  const Json& parts = j["parts"];
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0]["is"], "field");
  EXPECT_EQ(parts[0]["value"], 0.333333) << "six digits";
  EXPECT_EQ(parts[0]["unit"], "share");
  EXPECT_EQ(parts[1]["columns"][0]["values"], Json::parse("[1, 2]"));
  EXPECT_EQ(parts[1]["columns"][1]["same"], "s") << "a column of one value is written once";
  EXPECT_EQ(parts[1]["columns"][2]["values"], Json::parse("[0.1234567890123, null]")) << "exact keeps every digit";
  EXPECT_EQ(parts[2]["text"], "n");
  EXPECT_EQ(parts[3]["is"], "record");
}

TEST(Page, AChartIsReadBackAsItWas) {
  const Chart c = some_chart();
  const auto again = chart_of(json_of(c));
  ASSERT_TRUE(again);
  EXPECT_EQ(json_of(*again), json_of(c));
  EXPECT_EQ(again->series[0].names, c.series[0].names);
  EXPECT_EQ(again->series[1].continues, "flash");
  for (const char* bad : {"{}", "[]", "3", R"({"title": 3})"}) EXPECT_FALSE(chart_of(Json::parse(bad))) << bad;
}

TEST(Page, WhatIsTooMuchIsLeftOutAndSaid) {
  Table t{"rows", "", {{"i"}}, {}};
  for (std::int64_t i = 0; i < 10; ++i) t.add({i});
  Chart lines{"l", "x", "y", Unit::none, false, {{"s", {}}}}, spans = lines;
  spans.kind = Chart::Kind::spans;
  for (int i = 0; i < 10; ++i) lines.series[0].points.emplace_back(i, i), spans.series[0].points.emplace_back(i, i + (i % 2 ? 0.9 : 0.1));
  Record r;
  const Json j = page_data(r.add(Part{t}).add(Part{lines}).add(Part{spans}), {.rows = 4, .points = 5})["parts"];
  EXPECT_EQ(j[0]["columns"][0]["values"], Json::parse("[0, 1, 2, 3]"));
  EXPECT_EQ(j[0]["left_out"], 6);
  EXPECT_EQ(j[1]["series"][0]["x"], Json::parse("[0, 2, 4, 6, 9]")) << "first and last stay";
  EXPECT_EQ(j[2]["series"][0]["x"], Json::parse("[1, 3, 5, 7, 9]")) << "the longest stay";
  EXPECT_EQ(j[2]["left_out"], 5);
}

TEST(Page, AHostileTextIsDataAndNothingElse) {
  const std::string page = render(record_with(hostile), Format::html), plain = render(record_with("plain"), Format::html);
  for (const char* tag : {"</script", "<script", "<img", "<!--", "</title"}) EXPECT_EQ(count(page, tag), count(plain, tag)) << tag;
  EXPECT_EQ(count(page, "const words = "), 1u) << "a placeholder within the data is not filled";
  std::smatch data;
  const auto begin = page.find("id=\"data\">") + 10;
  const Json j = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(j["parts"][0]["value"], hostile) << "and the page still shows it as it was written";
}

TEST(Page, StandsAlone) {
  const std::string page = render(record_with("plain"), Format::html);
  EXPECT_LT(page.size(), 600'000u);
  for (const char* outside : {" src=", "<link", "@import", "url("})
    EXPECT_EQ(count(page.substr(0, page.find("id=\"data\"")), outside), 0u) << outside;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("Licence of the chart library"), std::string::npos);
  EXPECT_EQ(count(page, "{{"), count(page, "{{")) << "template";
  EXPECT_EQ(page.find("{{nonce}}"), std::string::npos);
}

TEST(Page, TenThousandRowsStayBelowThreeMegabytes) {
  Table t{"rows", "", {}, {}};
  for (int c = 0; c < 27; ++c) t.columns.push_back({"column_" + std::to_string(c)});
  for (int i = 0; i < 10'000; ++i) {
    std::vector<Value> row;
    for (int c = 0; c < 27; ++c) row.emplace_back(c < 8 ? Value("word " + std::to_string(i % 7)) : Value(i * 1.234567890123 + c));
    t.add(std::move(row));
  }
  Record r;
  EXPECT_LT(render(r.add(Part{t}), Format::html).size(), 3'000'000u);
}

TEST(Page, BrokenTextStillMakesAPage) { EXPECT_NE(render(record_with("\xff\xfe\xc3"), Format::html).find("</html>"), std::string::npos); }

TEST(Page, TheNameOfAFileSaysItsFormat) {
  EXPECT_EQ(format_of_file("a/page.html"), Format::html);
  EXPECT_EQ(format_of_file("x.y.md"), Format::markdown);
  EXPECT_FALSE(format_of_file("page"));
  EXPECT_FALSE(format_of_file("page.xyz"));
  EXPECT_EQ(format_of_file("page.HTM"), Format::html);
  EXPECT_EQ(format_of_file("notes.txt"), Format::text);
}

TEST(ChartText, SaysInAFewLinesWhatAPageDraws) {
  Chart bars{"t", "", "ms", Unit::ms, false, {{"a", {{0, 10}, {1, 5}}}}, Chart::Kind::bars};
  bars.ticks = {"one", "two"};
  EXPECT_EQ(chart_lines(bars), (std::vector<std::string>{"one  " + std::string("████████████████████████████████") + "  10",
                                                         "two  " + std::string("████████████████                ") + "  5"}));
  Chart ways{"t", "", "", Unit::bytes, false, {{"weights", {{0, 8192}, {1, 4096}}}, {"rest", {{0, 0}, {1, 0}}}}, Chart::Kind::bars};
  ways.ticks = {"all parameters, FP32, AdamW", "all parameters, bf16, AdamW"};
  for (const int columns : {60, 80, 100}) {
    const auto lines = chart_lines(ways, columns);
    EXPECT_EQ(lines[0].find(ways.ticks[0] + "  ███"), 0u) << lines[0] << ": the bar gives way, not the name";
    for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns - 2) << line;
  }
  Chart areas{"t", "x", "", Unit::bytes, false, {{"low", {{0, 1024}, {1, 1024}}}, {"high", {{0, 0}, {1, 3072}}}}, Chart::Kind::areas};
  const auto stacked = chart_lines(areas);
  ASSERT_EQ(stacked.size(), 3u);
  EXPECT_EQ(stacked[0], "all   ▁█  at most 4.00 KiB");
  Chart dots{"t", "x", "", Unit::none, true, {{"d", {{1, 2}}, {}, false}}};
  EXPECT_TRUE(chart_lines(dots).empty()) << "dots are not a course";
}

}  // namespace
}  // namespace headroom
