// headroom report as a user meets it: what it takes, what it refuses, and that a page is a page.
#include "tests/cli/program.h"

namespace headroom {
namespace {

TEST_F(Program, ReportSaysWhatItCannotTake) {
  refused("report 3", 2, "there is no run 3 in the store, which is still empty");
  refused("report nonsense", 2, "neither a file nor a run's number");
  refused("report --db " + db_, 1, "there is no '" + db_ + "' yet");
  std::ofstream(folder_ / "bad.json") << "{\"rows\": [1]}";
  refused("report " + (folder_ / "bad.json").string(), 2, "row 1 of 'bad.json' is damaged");
  std::ofstream(folder_ / "bad.csv") << "a,b\n1\n";
  refused("report " + (folder_ / "bad.csv").string(), 2, "a line of 1 cell under a head of 2");
}

// Rows of another program need a column of something measured; what this program wrote is taken as it is.
TEST_F(Program, AFileFromElsewhereNeedsSomethingMeasured) {
  const auto file = [&](const char* name, const char* text) {
    std::ofstream(folder_ / name) << text;
    return " " + (folder_ / name).string();
  };
  const std::string scores = file("scores.csv", "name,score\nx,1\ny,2\n"), times = file("times.csv", "model,latency_ms\nx,2.5\ny,3\n");
  refused("report" + scores, 2, "'scores.csv' has no column of something measured, only name, score;");
  refused("compare" + scores + scores, 2, "no column of something measured");
  refused("report" + file("scores.json", R"({"rows": [{"name": "x", "score": 1}]})"), 2, "only name, score;");
  refused("report" + file("german.csv", "name;latency_ms\nx;2,5\n"), 2,
          "'german.csv' has semicolons between its columns; write it with commas");
  refused("report" + file("semicolons.csv", "name;latency_ms\nx;2.5\n"), 2, "semicolons between its columns");
  refused("report" + file("tabs.csv", "name\tlatency_ms\nx\t2.5\n"), 2, "tabs between its columns");
  refused("report" + file("words.csv", "name,latency_ms\nx,fast\n"), 2, "only name, latency_ms; a column of numbers is known by its end");
  EXPECT_EQ(run("report" + file("CAPITALS.CSV", "model,latency_ms\nx,2.5\n")).code, 0) << "as --out reads it";
  refused("report" + file("times.tsv", "name\tlatency_ms\nx\t2.5\n"), 2, "'times.tsv' is not JSON, and CSV has a name that ends in .csv");
  refused("report" + file("empty.json", R"({"rows": []})"), 2, "'empty.json' has no rows");
  refused("report" + file("twice.csv", "ms,ms\n1,2\n"), 2, "two columns 'ms'");
  // Names that rows of ours have as well.
  refused("report" + file("letters.csv", "a,b\n1,2\n"), 2, "'letters.csv' has no column of something measured, only a, b;");
  refused("report" + file("settings.csv", "model,batch\nx,2\n"), 2, "only model, batch;");
  refused("compare" + file("settings.json", R"([{"model": "x", "batch": 2}])") + times, 2, "only model, batch;");
  const std::string marked = file("marked.csv", "\xef\xbb\xbfphase,ms\nforward,1.5\n");
  EXPECT_EQ(Json::parse(run("report --format json" + marked).out)["marked.csv"]["rows"][0]["phase"], "forward");
  EXPECT_EQ(run("report" + times).code, 0);
  EXPECT_EQ(run("compare" + times + times).code, 0);
  const std::string account = (folder_ / "account.json").string();
  ASSERT_EQ(run("memory attention --len 64 --device a100 --out " + account).code, 0);
  const std::string page = run("report " + account).out;
  EXPECT_EQ(page.find("  memory_bytes"), page.rfind("  memory_bytes")) << "the machine's memory is said once\n" << page;
  ASSERT_EQ(run("step --device cpu --layers 1 --width 32 --heads 2 --vocab 64 --batch 1 --len 16 --warmup 0 --steps 1 --db " + db_).code,
            0);
  for (const char* command : {"results", "kernels --device cpu", "device --known", "precision autocast", "precision accumulate",
                              "precision norm", "precision formats"})
    for (const char* format : {"csv", "json"}) {
      const std::string out = (folder_ / fmt::format("out.{}", format)).string();
      const std::string store = std::string_view(command) == "results" ? " --db " + db_ : "";
      ASSERT_EQ(run(fmt::format("{} --out {}{}", command, out, store)).code, 0) << command;
      EXPECT_EQ(run("report " + out).code, 0) << command << " " << format << run("report " + out).err;
    }
}

TEST_F(Program, AStepIsKeptAndReported) {
  const Ended step =
      run("step --device cpu --layers 1 --width 32 --heads 2 --vocab 64 --batch 1 --len 16 --warmup 0 --steps 2 --db " + db_);
  ASSERT_EQ(step.code, 0) << step.err;
  EXPECT_NE(step.err.find("run 1 in"), std::string::npos) << step.err;
  const Json rows = Json::parse(run("results 1 --format json --db " + db_).out)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2]["phase"], "train");
  EXPECT_EQ(rows[2]["peak_bytes"], rows[2]["forecast_peak_bytes"]);

  const std::string page = (folder_ / "page.html").string();
  ASSERT_EQ(run("report --db " + db_ + " --out " + page).code, 0);
  EXPECT_EQ(text_of(page).substr(0, 15), "<!doctype html>") << "the name of the file says the format";
  const Ended md = run("report 1 --format md --db " + db_);
  EXPECT_NE(md.out.find("## Step time by phase"), std::string::npos) << md.out;
  EXPECT_NE(md.out.find("Live bytes over the step"), std::string::npos) << md.out;
  EXPECT_NE(md.out.find("```text\n"), std::string::npos);
  EXPECT_TRUE(Json::parse(run("report 1 --format json --db " + db_).out)["run 1"]["rows"].is_array());
  EXPECT_EQ(run("compare 1 1 --db " + db_).code, 0) << "a step is compared like any run";
}

// The newest runs of two commands have nothing to compare: a page of both begins with no differences.
TEST_F(Program, RunsOfTwoCommandsAreNotCompared) {
  const std::string small = " --device cpu --warmup 0 --steps 2 --batch 1 --db " + db_;
  ASSERT_EQ(run("attention --heads 2 --dim 16 --len 16,32" + small).code, 0);
  ASSERT_EQ(run("step --layers 1 --width 32 --heads 2 --vocab 64 --len 16" + small).code, 0);
  const Ended page = run("report --format md --db " + db_);
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_EQ(page.out.find("against run"), std::string::npos) << page.out.substr(0, 400);
  EXPECT_NE(page.out.find("run 1: attention"), std::string::npos);
  EXPECT_NE(page.out.find("run 2: step"), std::string::npos);
  refused("compare 1 2 --db " + db_, 2, "run 1 is of headroom attention and run 2 of headroom step");

  // Files say the whole command that made them.
  const std::string a = (folder_ / "a.json").string(), b = (folder_ / "b.json").string(), again = (folder_ / "again.json").string();
  ASSERT_EQ(run("memory attention --device cpu --len 16 --out " + a).code, 0);
  ASSERT_EQ(run("step --layers 1 --width 32 --heads 2 --vocab 64 --len 16 --out " + b + small).code, 0);
  for (const char* const before : {"against a.json", "against b.json"})
    EXPECT_EQ(run("report --format md " + a + " " + b).out.find(before), std::string::npos);
  refused("compare " + a + " " + b, 2, a + " is of headroom memory and " + b + " of headroom step");
  ASSERT_EQ(run("results 2 --db " + db_ + " --out " + again).code, 0);
  EXPECT_NE(run("report --format md " + again + " " + b).out.find("against again.json"), std::string::npos)
      << "rows of the store may be of any kind";
}

TEST_F(Program, ACardThatIsNotHereIsForecastByOtherCommands) {
  refused("attention --device h100 --len 16", 2, "headroom memory attention --device h100 (attention)");
}

TEST_F(Program, NothingMeasuredIsAPageToo) {
  const Ended e = run("report --format md");
  EXPECT_EQ(e.code, 0);
  EXPECT_NE(e.out.find("Nothing has been measured yet"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "headroom")) << "looking makes no store";
}

}  // namespace
}  // namespace headroom
