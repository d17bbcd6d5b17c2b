// headroom profile from the outside: a step, attention, other programs.
#include <fmt/format.h>
#include <zlib.h>

#include <map>
#include <set>

#include "tests/cli/program.h"

namespace headroom {
namespace {

class Profile : public Program {};

constexpr const char* small_step = "profile step --device cpu --layers 2 --width 64 --heads 2 --vocab 100 --len 32 --batch 1 --steps 2 ";

double sum_of(const Json& rows, const char* field) {
  double sum = 0;
  for (const Json& r : rows) sum += r[field].is_number() ? r[field].get<double>() : 0;
  return sum;
}

TEST_F(Profile, EveryTableOfAStepAddsUpToTheSameTime) {
  const Ended e = run(std::string(small_step) + "--format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  const double step = j["step_ms"], covered = j["covered"], ran = step * covered;
  EXPECT_GT(covered, 0.5);
  EXPECT_LE(covered, 1.0);
  for (const char* table : {"kernels", "phases", "modules"}) EXPECT_NEAR(sum_of(j[table], "ms"), ran, 1e-6 * ran) << table;
  EXPECT_NEAR(sum_of(j["gaps"], "ms"), step - ran, 1e-6 * step);
  EXPECT_NEAR(sum_of(j["timeline"], "ms"), 2 * ran, 1e-6 * ran) << "two steps were recorded";
  ASSERT_EQ(j["work"].size(), 3u);
  EXPECT_EQ(j["work"][0]["phase"], "forward");
  EXPECT_EQ(j["work"][2]["phase"], "train");
  EXPECT_NEAR(j["work"][2]["ms"].get<double>(), step, 1e-9 * step);
}

TEST_F(Profile, OnlyTheLastPhaseWhereThatIsAskedFor) {
  const Ended e = run(std::string(small_step) + "--only --phase forward+backward --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  ASSERT_EQ(j["work"].size(), 1u);
  EXPECT_EQ(j["work"][0]["phase"], "forward+backward");
  EXPECT_EQ(j["phase"], "forward+backward");
}

TEST_F(Profile, EverySliceOfAStepIsAttributed) {
  const Ended e = run(std::string(small_step) + "--format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  std::set<std::string> modules, parts, phases;
  const Json j = Json::parse(e.out);
  for (const Json& s : j["timeline"]) {
    ASSERT_TRUE(s["op"].is_string() && s["part"].is_string() && s["module"].is_string()) << s;
    modules.insert(s["module"]), parts.insert(s["part"]), phases.insert(s["phase"]);
  }
  EXPECT_EQ(modules, (std::set<std::string>{"attention", "embedding", "feed-forward", "head", "optimiser"}));
  EXPECT_EQ(phases, (std::set<std::string>{"backward", "forward", "optimizer"}));
  for (const char* part : {"projections", "norms", "attention core", "loss", "rotary positions"}) EXPECT_TRUE(parts.contains(part)) << part;
}

TEST_F(Profile, PlainAttentionShowsSoftmaxBesideItsProducts) {
  const Ended e = run("profile attention --device cpu --variant plain --len 128 --dim 16 --batch 1 --format json --db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  std::map<std::string, Json> rows;
  const Json j = Json::parse(e.out);
  for (const Json& r : j["attention"]) rows[r["what"]] = r;
  ASSERT_TRUE(rows.contains("softmax") && rows.contains("products (scores)") && rows.contains("products (values)")) << e.out;
  // 128·128 scores of dim 16: forward one product of each kind, backward two
  EXPECT_DOUBLE_EQ(rows["products (scores)"]["gflop"].get<double>(), 3 * 2.0 * 128 * 128 * 16 / 1e9);
  EXPECT_DOUBLE_EQ(rows["softmax"]["gflop"].get<double>(), ((5 + 2) * 128.0 * 128 + (2 + 2 * 16) * 128) / 1e9);
}

TEST_F(Profile, TheTraceIsJsonAndTheRunIsKept) {
  const std::string trace = (folder_ / "t.json.gz").string();
  const Ended e = run(std::string(small_step) + "--db " + db_ + " --trace " + trace);
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("Matmul against everything else"), std::string::npos);
  std::string text;
  gzFile f = gzopen(trace.c_str(), "rb");
  std::vector<char> buffer(1 << 16);
  for (int n; (n = gzread(f, buffer.data(), unsigned(buffer.size()))) > 0;) text.append(buffer.data(), std::size_t(n));
  gzclose(f);
  EXPECT_GT(Json::parse(text).size(), 100u);
  const Ended kept = run("results --format json --db " + db_);
  EXPECT_NE(kept.out.find("\"profile\""), std::string::npos) << kept.out;
}

TEST_F(Profile, AllIsEveryVariantThatServesAndTwoRunsAreCompared) {
  const std::string attention = "profile attention --device cpu --variant all --len 32 --dim 16 --batch 1 --steps 4 --db " + db_;
  const Ended e = run(attention + " --format json");
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  EXPECT_EQ(j["steps"], 4) << "a forward and a backward are one";
  EXPECT_GT(j["step_ms_std"], 0);
  ASSERT_EQ(j["work"].size(), 2u) << "plain and flash";
  ASSERT_EQ(run(attention).code, 0);
  const Ended against = run("compare 1 2 --tolerance 99% --format json --db " + db_);
  EXPECT_EQ(Json::parse(against.out)["rows"][0]["problem"], "step: flash") << against.out << against.err;
}

TEST_F(Profile, APageOfItHasTheReportsCharts) {
  const std::string page = (folder_ / "p.html").string();
  const Ended e = run(std::string(small_step) + "--db " + db_ + " --out " + page);
  ASSERT_EQ(e.code, 0) << e.err;
  const std::string text = text_of(page);
  for (const char* title : {"Kernel timeline", "Time by module", "Matmul against the rest", "Roofline", "Live bytes over the step"})
    EXPECT_NE(text.find(fmt::format(R"("title":"{}","kind")", title)), std::string::npos) << title;
}

TEST_F(Profile, TheAnswerIsFirstAndTheRooflineIsNoWiderThanATerminal) {
  const Ended e = run(std::string(small_step) + "--db " + db_);
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out.find("Phase train takes "), 0u) << e.out;
  EXPECT_NE(e.out.substr(0, e.out.find('\n')).find(" %"), std::string::npos) << "what takes most of it: " << e.out;
  const std::string page = (folder_ / "answer.html").string();
  ASSERT_EQ(run(std::string(small_step) + "--db " + db_ + " --out " + page).code, 0);
  EXPECT_NE(text_of(page).find("<title>Phase train takes "), std::string::npos);
  const auto chart = e.out.find("Roofline of ");
  if (chart == std::string::npos) GTEST_SKIP() << "no ceilings here";
  std::istringstream lines(e.out.substr(chart));
  for (std::string line; std::getline(lines, line) && !line.empty();) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(Profile, RefusesWhatMakesNoSense) {
  refused("profile", 2, "give step");
  refused("profile --counters -- true", 2, "--counters is an option of step and of attention");
  refused("profile step sideways", 2, "'sideways' is not the value of any option");
  refused("profile step --len 64,128", 2, "takes one value");
  refused("profile step --precision fp32,bf16 --len 16", 2, "takes one value");
  refused("profile step --phase sideways", 2, "there is no 'sideways'");
  refused("profile attention --variant none", 2, "there is no 'none'; choose from");
  refused("profile attention --device cpu --variant plain,flash_sm90 --len 16 --db " + db_, 1, "flash_sm90 does not serve");
  EXPECT_FALSE(fs::exists(db_)) << "it is said before the first of them is run";
  refused("profile step --trace /no/such/folder/t.json", 2, "there is no directory");
}

#ifdef HEADROOM_HAS_INJECT  // built with CUDA
TEST_F(Profile, AProgramThatIsNotThereIsSaid) { refused("profile -- /no/such/program", 2, "cannot be started"); }

TEST_F(Profile, AProgramsOutputAndExitCodePassThrough) {
  const Ended e = run("profile -- sh -c 'echo words; exit 7'");
  EXPECT_EQ(e.code, 7);
  EXPECT_EQ(e.out, "words\n");
  EXPECT_NE(e.err.find("did not use CUDA"), std::string::npos) << e.err;
  EXPECT_EQ(run("profile -- sh -c 'kill -9 $$'").code, 128 + 9);
  const std::string page = (folder_ / "p.html").string();
  EXPECT_EQ(run("profile --out " + page + " -- sh -c 'exit 7'").code, 7);
  EXPECT_NE(text_of(page).find("did not use CUDA"), std::string::npos);
}
#else
TEST_F(Profile, WithoutTheInjectionLibraryItSaysWhatIsMissing) {
  refused("profile -- true", 1, "profile: a program is profiled through libheadroom_inject.so, which this build lacks");
}
#endif

}  // namespace
}  // namespace headroom
