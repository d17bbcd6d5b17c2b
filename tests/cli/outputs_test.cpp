// What commands write: --out and the formats, full disks, closed descriptors, and what a terminal or a page would obey.
#include <fmt/format.h>

#include "base/device.h"
#include "tests/cli/small_run.h"
#include "tests/sanitizers.h"

namespace headroom {
namespace {

class Outputs : public SmallRun {};

TEST_F(Outputs, NoOutputReplacesTheStore) {
  keep_a_run();
  const std::string store = text_of(db_);
  fs::create_symlink("results.db", folder_ / "link.json");
  fs::create_hard_link(db_, folder_ / "hard.json");
  const std::string db = " --db " + db_;
  for (const std::string name : {"results.db", "link.json"}) refused("results --out " + at(name) + db, 2, at(name) + "' is");
  refused("results --out " + at("hard.json") + db, 2, "is");
  refused("results --out " + at("results.db-journal") + db, 2, "or its journal");
  refused("report 1 --format html --out " + db_, 2, "is a database");
  refused("profile step --device cpu --trace " + db_ + db, 2, "--trace: ");
  fs::create_directories(folder_ / "headroom");
  fs::copy_file(db_, folder_ / "headroom" / "results.db");
  refused("results --format json --out " + at("headroom/results.db"), 2, "headroom/results.db' is");
  refused("attention --len 16 --format json --out " + at("new.db") + " --db " + at("new.db"), 2, "is where results are kept");
  const Ended once = run("results --out " + db_ + db);
  EXPECT_EQ(once.err.find("choose another place"), std::string::npos) << "one remedy is enough: " << once.err;
  EXPECT_EQ(text_of(db_), store);
  EXPECT_EQ(text_of(folder_ / "headroom" / "results.db"), store);
}

TEST_F(Outputs, TwoOutputsOfOneNameAndAnOutputOverAnInputAreRefused) {
  refused("profile step --device cpu --trace " + at("x.json") + " --out " + at("x.json"), 2, "both name");
  put("rows.json", R"({"rows": [{"variant": "flash", "fwd_ms": 1}]})");
  const std::string rows = text_of(folder_ / "rows.json");
  refused("report " + at("rows.json") + " --out " + at("rows.json"), 2, "is what RUN reads");
  refused("compare " + at("rows.json") + " " + at("rows.json") + " --out " + at("./rows.json"), 2, "is what A reads");
  EXPECT_EQ(text_of(folder_ / "rows.json"), rows);
  put("book.txt", std::string(1000, 'x'));
  refused("train --text " + at("book.txt") + " --out " + at("book.txt"), 2, "is what --text reads");
  EXPECT_EQ(text_of(folder_ / "book.txt").size(), 1000u);
}

TEST_F(Outputs, TheEndOfOutNamesTheFormatOrIsRefused) {
  refused("precision formats --out " + at("x.xyz"), 2, "'.xyz' is the ending of no known format; use .txt");
  refused("precision formats --out " + at("x.tar.gz"), 2, "'.gz' is the ending of no known format");
  EXPECT_EQ(run("precision formats --values 100 --out " + at("x.xyz") + " --format csv").code, 0);
  EXPECT_EQ(text_of(folder_ / "x.xyz").substr(0, 7), "format,");
  EXPECT_EQ(run("precision formats --values 100 --out " + at("X.JSON")).code, 0);
  EXPECT_TRUE(Json::parse(text_of(folder_ / "X.JSON")).is_object());
  for (const char* name : {"plain", "x.txt", "x.TXT"}) {
    EXPECT_EQ(run("precision formats --values 100 --out " + at(name)).code, 0);
    EXPECT_EQ(text_of(folder_ / name).substr(0, 14), "Number formats") << name;
  }
}

TEST_F(Outputs, AFullDiskKeepsTheOldFileAndPrintsTheAnswer) {
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer writes a file of its own before main, and the limit ends the program there";
  keep_a_run();
  put("page.json", "{\"old\": \"page\"}");
  const auto before = names();
  const Ended e = shell("{ (ulimit -f 0; $H results --db results.db --out page.json; echo code $?) | cat; } 2>&1 | cat");
  EXPECT_NE(e.out.find("\"runs\": ["), std::string::npos) << "printed instead: " << e.out;
  EXPECT_NE(e.out.find("it is printed here instead\n"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("code 1\n"), std::string::npos) << e.out;
  EXPECT_EQ(text_of(folder_ / "page.json"), "{\"old\": \"page\"}");
  EXPECT_EQ(names(), before) << "nothing stays beside it";
}

TEST_F(Outputs, APageThatAFullDiskRefusesIsALineOrText) {
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer writes a file of its own before main, and the limit ends the program there";
  keep_a_run();
  const auto full = [&](const std::string& words) {
    return shell("{ (ulimit -f 0; $H " + words + " --out page.html; echo code $?) | cat; } 2>&1 | cat").out;
  };
  for (const char* words : {"report --db results.db", "results --db results.db", "results 1 --db results.db"}) {
    const std::string said = full(words);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
    for (const char* one : {"the runs are kept: name another place\n", "code 1\n"}) EXPECT_NE(said.find(one), std::string::npos) << said;
  }
  const std::string counted = full("precision formats --values 100");
  EXPECT_EQ(counted.find("<html"), std::string::npos) << counted;
  EXPECT_NE(counted.find("Number formats"), std::string::npos) << "what was counted is not lost: " << counted;
  for (const char* said : {"it is printed here as text instead\n", "code 1\n"}) EXPECT_NE(counted.find(said), std::string::npos) << counted;
  EXPECT_FALSE(fs::exists(folder_ / "page.html"));
}

TEST_F(Outputs, ClosedDescriptorsAreNobodysFiles) {
  for (const std::string closed : {"2>&-", "0<&- 2>&-", "0<&- 1>&- 2>&-", "1>&- 2>&-"}) {
    EXPECT_EQ(shell("$H kernels --device cpu --out x.json " + closed).code, 0) << closed;
    EXPECT_TRUE(Json::accept(text_of(folder_ / "x.json"))) << closed << ": " << text_of(folder_ / "x.json");
    EXPECT_EQ(shell("$H attention --batch 1 --dim 16 --len 16 --steps 2 --warmup 0 --db s.db --out x.json " + closed).code, 0) << closed;
    EXPECT_TRUE(Json::accept(text_of(folder_ / "x.json"))) << closed;
  }
  EXPECT_EQ(shell("$H results --db s.db --format csv").code, 0) << "the store is whole";
}

TEST_F(Outputs, WordsThatReachNobodyAreAFailure) {
  for (const char* words : {"--help", "--version", "help", "attention --help", "memory model --help", "precision formats --values 100"})
    for (const char* nowhere : {"> /dev/full", ">&-"})
      shell_refused(fmt::format("$H {} {}", words, nowhere), 1, "standard output cannot be written to");
  const Ended e = shell("{ $H --help; echo $? > code; } | true; cat code");
  EXPECT_EQ(e.out, "1\n") << "who reads is gone: " << e.err;
  EXPECT_EQ(e.err, "") << "and has what it asked for";
}

// Everything that outlives the terminal says what made it.
TEST_F(Outputs, FilesSayWhatMadeThem) {
  const std::string words = "plan --model small --batch 1 --len 64 --device h100 --most 1 --out ";
  for (const char* file : {"plan.json", "plan.md", "plan.html"}) {
    ASSERT_EQ(run(words + at(file)).code, 0);
    const std::string text = text_of(at(file));
    EXPECT_NE(text.find("headroom plan --model small"), std::string::npos) << file;
    EXPECT_NE(text.find(cpu_device().name), std::string::npos) << file;
  }
  const Json made = Json::parse(text_of(at("plan.json")))["made_by"];
  for (const char* key : {"command", "date", "machine", "version", "commit"}) EXPECT_TRUE(made.contains(key)) << key;
  EXPECT_EQ(run("report " + at("plan.json") + " --format md").code, 0) << "and is read again";
}

TEST_F(Outputs, TextShowsWhatATerminalWouldObeyAndMarkdownNoTags) {
  keep_a_run(R"row({"variant": "fl\u001b[31mash\u0000x", "note": "<script>alert(1)</script> [a](javascript:b)", "fwd_ms": 1.5})row",
             "m\x1b]0;t\x07");
  for (const std::string command : {"results 1", "results", "report 1", "compare 1 1"})
    for (const char* format : {"text", "md"}) {
      const Ended e = run(fmt::format("{} --format {} --db {}", command, format, db_));
      EXPECT_EQ(e.code, 0) << e.err;
      for (const char bad : {'\x1b', '\x07', '\0'}) EXPECT_EQ(e.out.find(bad), std::string::npos) << command << " " << int(bad);
      EXPECT_EQ(std::string(format) == "md" ? e.out.find("<script>") : std::string::npos, std::string::npos) << command;
      EXPECT_EQ(std::string(format) == "md" ? e.out.find("](javascript") : std::string::npos, std::string::npos) << command;
    }
  EXPECT_NE(run("results 1 --db " + db_).out.find("fl\\x1b[31mash\\x00x"), std::string::npos);
}

}  // namespace
}  // namespace headroom
