#include "store/row_objects.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "tests/without_rights.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

class Store : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("headroom_store_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    file_ = (folder_ / "results.db").string();
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string bytes() const {
    std::ifstream in(file_, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  std::string refusal(Results::Access access = Results::Access::write) const {
    try {
      Results r(file_, access);
    } catch (const Error& e) { return e.what(); }
    return "";
  }
  fs::path folder_;
  std::string file_;
};

TEST_F(Store, KeepsRunsAndRows) {
  std::int64_t id = 0;
  {
    Results r(file_, Results::Access::write);
    id = r.start_run("attention", R"({"a":1})", "m");
    r.add_row(id, {"k1", R"({"x":1})", "{}"});
    r.add_row(id, {"k2", R"({"x":2})", "{}"});
    r.add_row(id, {"k1", R"({"x":3})", "{}"});  // measured again: replaced, not doubled
    EXPECT_TRUE(r.resume_run("attention", R"({"a":1})", "m"));
    EXPECT_FALSE(r.resume_run("attention", R"({"a":2})", "m"));
    EXPECT_FALSE(r.resume_run("attention", R"({"a":1})", "other"));
  }
  Results r(file_, Results::Access::write);
  ASSERT_EQ(r.rows(id).size(), 2u);
  r.finish_run(id);
  EXPECT_FALSE(r.resume_run("attention", R"({"a":1})", "m"));
  ASSERT_EQ(r.runs().size(), 1u);
  EXPECT_EQ(r.runs()[0].rows, 2);
  EXPECT_FALSE(r.runs()[0].finished.empty());
  EXPECT_FALSE(r.run(id + 1));
}

TEST_F(Store, ARunOfAnotherVersionIsNotGoneOnWith) {
  {
    Results r(file_, Results::Access::write);
    r.start_run("attention", "{}", "m");
  }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(file_.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "UPDATE runs SET version = '0.0.1'", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  Results r(file_, Results::Access::write);
  ASSERT_EQ(r.runs().size(), 1u);
  EXPECT_EQ(r.runs()[0].version, "0.0.1");
  EXPECT_FALSE(r.resume_run("attention", "{}", "m"));
}

TEST_F(Store, EveryRowThatWasReportedSurvivesAKill) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    Results r(file_, Results::Access::write);
    const auto run = r.start_run("attention", "{}", "m");
    for (int i = 0;; ++i) {
      r.add_row(run, {"k" + std::to_string(i), "{}", "{}"});
      if (write(pipe_ends[1], &i, sizeof i) != sizeof i) _exit(1);
    }
  }
  int last = 0;
  while (last < 20) ASSERT_EQ(read(pipe_ends[0], &last, sizeof last), ssize_t(sizeof last));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(pipe_ends[1]);
  for (int i; read(pipe_ends[0], &i, sizeof i) == ssize_t(sizeof i);) last = i;
  close(pipe_ends[0]);
  Results r(file_, Results::Access::write);
  const auto run = r.resume_run("attention", "{}", "m");
  ASSERT_TRUE(run);
  const auto rows = r.rows(run->id);
  ASSERT_GE(int(rows.size()), last + 1);
  ASSERT_LE(int(rows.size()), last + 2);  // one more may be on disk than was heard of
  for (int i = 0; i <= last; ++i) EXPECT_EQ(rows[std::size_t(i)].key, "k" + std::to_string(i));
}

TEST_F(Store, ADamagedFileIsReportedAndLeftAlone) {
  {
    Results r(file_, Results::Access::write);
    const auto run = r.start_run("attention", "{}", "m");
    for (int i = 0; i < 200; ++i) r.add_row(run, {"k" + std::to_string(i), std::string(200, 'x'), "{}"});
  }
  {
    std::fstream f(file_, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(4096 * 2 + 10);
    f << std::string(9000, '\x5a');
  }
  const std::string before = bytes();
  EXPECT_NE(refusal().find("damaged"), std::string::npos) << refusal();
  EXPECT_NE(refusal(Results::Access::read).find("--db"), std::string::npos);
  EXPECT_EQ(bytes(), before);
  std::ofstream(file_) << "these are my notes, not a database, and longer than one hundred bytes, so that a header could be read from them";
  const std::string notes = bytes();
  EXPECT_NE(refusal().find("damaged"), std::string::npos) << refusal();
  EXPECT_EQ(bytes(), notes);
}

TEST_F(Store, ADamagedRowIsNamedInOneLine) {
  Results r(file_, Results::Access::write);
  for (const std::string bad : {"{\"x\": ", "", "[1, 2]", "3", "{\"status\": 5}", "{\"x\": \"\xff\"}"}) {
    const auto run = r.start_run("attention", "{}", "m");
    r.add_row(run, {"k1", R"({"x": 1, "a": 2})", "{}"});
    ASSERT_EQ(row_objects(r, run).at(0).dump(), R"({"x":1,"a":2})");
    r.add_row(run, {"k2", bad, "{}"});
    try {
      row_objects(r, run);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      const std::string said = e.what();
      EXPECT_TRUE(said.starts_with("results: row 2 of '" + file_ + "' is damaged")) << said;
      EXPECT_EQ(said.find('\n'), std::string::npos);
    }
  }
}

TEST_F(Store, ADirectoryAMissingFileAndAReadOnlyOneAreSaidInOneLine) {
  EXPECT_NE(refusal(Results::Access::read).find("there is no"), std::string::npos);
  EXPECT_FALSE(fs::exists(file_));
  const std::string kept = file_;
  file_ = folder_.string();
  EXPECT_NE(refusal().find("directory"), std::string::npos);
  file_ = kept;
  { Results r(file_, Results::Access::write); }
  fs::permissions(file_, fs::perms::owner_read | fs::perms::others_read);
  const bool root = geteuid() == 0;
  if (root) {  // permissions bind everyone else
    fs::permissions(folder_, fs::perms::all);
    ASSERT_EQ(seteuid(65534), 0);
  }
  std::error_code unreached;
  const bool reached = fs::exists(fs::status(file_, unreached));  // a root directory of 0700 binds everyone else, too
  const std::string said = refusal();
  if (root) { ASSERT_EQ(seteuid(0), 0); }
  if (!reached) GTEST_SKIP() << "another user does not reach " << file_;
  EXPECT_NE(said.find("cannot be written to"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos);
}

TEST_F(Store, AFolderThatMayNotBeWrittenIsNamedWithTheSystemsReason) {
  fs::permissions(folder_, fs::perms(0555));
  const std::string said = refused_without_rights([&] { Results r(file_, Results::Access::write); });
  fs::permissions(folder_, fs::perms(0755));
  EXPECT_EQ(said, "results: no file can be made in '" + folder_.string() + "': Permission denied; name another with --db");
}

TEST_F(Store, IsMadeByManyProcessesAtOnceAndNoneOfThemFails) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (int round = 0; round < 10 || std::chrono::steady_clock::now() < until; ++round) {
    fs::remove(file_);
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      close(gate[1]);
      char word = 0;
      if (read(gate[0], &word, 1) != 0) _exit(2);  // the end of the pipe: all are there
      try {
        results_if_any(file_);  // as a command that looks for ceilings first
        Results r(file_, Results::Access::write);
        r.add_row(r.start_run("attention", "{}", "m"), {"k", "{}", "{}"});
        _exit(results_if_any(file_) ? 0 : 3);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        _exit(1);
      }
    }
    close(gate[0]);
    close(gate[1]);
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "round " << round << ": " << status;
    }
    ASSERT_EQ(Results(file_, Results::Access::read).runs().size(), 8u);
  }
}

TEST(StorePlace, FollowsXdg) {
  setenv("XDG_DATA_HOME", "/somewhere", 1);
  EXPECT_EQ(default_results_file(), "/somewhere/headroom/results.db");
  setenv("XDG_DATA_HOME", "relative", 1);  // the standard says to ignore it
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(default_results_file(), "/home/me/.local/share/headroom/results.db");
  unsetenv("XDG_DATA_HOME");
}

}  // namespace
}  // namespace headroom
