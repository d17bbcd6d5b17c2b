// A study's life in the store: what is kept survives, and a run is finished only when its answer was shown.
#include "studies/life.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace headroom::studies {
namespace {

class StudyLife : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(host_.store); }
  void TearDown() override { std::filesystem::remove(host_.store); }
  Life life(bool resume, const RowObject& settings = {{"a", 1}}) {
    host_.resume = resume;
    return {host_, "attention", settings, "a machine"};
  }
  // Every process runs `body`; how many of them did not come to its end, for any reason.
  static int failures_of(int processes, const std::function<void(int)>& body) {
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      try {
        body(i);
        _exit(0);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "process %d: %s\n", i, e.what());
        _exit(1);
      }
    }
    int failed = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      failed += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return failed;
  }
  std::vector<RowObject> stored(std::int64_t run) const { return row_objects(Results(host_.store, Results::Access::read), run); }
  Host host_{.store = (std::filesystem::temp_directory_path() / ("headroom_life_" + std::to_string(getpid()) + ".db")).string()};
};

TEST_F(StudyLife, GoesOnUntilItIsFinished) {
  life(false).keep("k", {{"x", 1}});
  {
    Life again = life(true);
    EXPECT_TRUE(again.goes_on());
    ASSERT_NE(again.known("k"), nullptr) << "all its rows are there, its answer was never shown";
    EXPECT_EQ((*again.known("k"))["x"], 1);
    EXPECT_EQ(again.known("other"), nullptr);
    again.finish();
  }
  std::string said;
  host_.say = [&](const std::string& line) { said = line; };
  EXPECT_FALSE(life(true).goes_on());
  EXPECT_NE(said.find("starting afresh"), std::string::npos) << said;
}

TEST_F(StudyLife, ARunOfOtherSettingsIsNotGoneOnWith) {
  life(false).keep("k", {{"x", 1}});
  EXPECT_FALSE(life(true, {{"a", 2}}).goes_on());
}

TEST_F(StudyLife, WithoutResumeARunIsANewOne) {
  life(false).keep("k", {{"x", 1}});
  const Life second = life(false);
  EXPECT_FALSE(second.goes_on());
  EXPECT_EQ(second.known("k"), nullptr);
  EXPECT_EQ(second.name().substr(0, 9), "run 2 in ");
}

TEST_F(StudyLife, ARunThatAnotherProcessMeasuresIsNotResumed) {
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready) + pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    Life alive = life(false);
    alive.keep("k", {{"x", 1}});
    char word = 'r';
    if (write(ready[1], &word, 1) != 1 || read(done[0], &word, 1) != 1) _exit(1);
    raise(SIGKILL);
  }
  char word = 'd';
  ASSERT_EQ(read(ready[0], &word, 1), 1);
  try {
    life(true);
    ADD_FAILURE() << "two processes measure one run";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              fmt::format("results: run 1 in '{}' has these settings, and process {} is measuring it; wait for it, or "
                          "leave out --resume for a run of its own",
                          host_.store, child));
  }
  ASSERT_EQ(write(done[1], &word, 1), 1);
  waitpid(child, nullptr, 0);
  EXPECT_NE(life(true).known("k"), nullptr) << "it was killed: now it is an interrupted one";
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST_F(StudyLife, OneRunIsResumedByManyProcessesInTurn) {
  life(false).keep("0", {{"key", "0"}});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const int failed = failures_of(8, [&](int process) {
    for (int k = 0; std::chrono::steady_clock::now() < until; ++k) {
      const std::string mine = fmt::format("{} {}", process, k), of_all = std::to_string(k % 50);
      try {
        Life one = life(true);
        for (const std::string& key : {std::string("0"), of_all})
          if (const RowObject* row = one.known(key)) check((*row)["key"] == key, Code::io, "{} is paired with {}", key, row->dump());
        for (const std::string& key : {mine, of_all}) one.keep(key, {{"key", key}});
      } catch (const Error& e) {
        if (std::string(e.what()).find("is measuring it") == std::string::npos) throw;
      }
      Life other = life(false, {{"of", mine}});
      other.adopt([](const RowObject& settings) { return settings.contains("a"); }, [](const RowObject& row) { return row["key"] == "0"; });
    }
  });
  EXPECT_EQ(failed, 0);
  for (const RowObject& row : stored(1)) EXPECT_TRUE(row["key"].is_string());
}

TEST_F(StudyLife, AStoreThatIsFullIsWarnedOfOnceAndGetsItsRowsLater) {
  std::vector<std::string> said;
  host_.say = [&](const std::string& line) { said.push_back(line); };
  Life one = life(false);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const auto on_signal = signal(SIGXFSZ, SIG_IGN);
  rlimit full = usual;
  full.rlim_cur = std::filesystem::file_size(host_.store);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int k = 0; k < 5; ++k) one.keep(std::to_string(k), {{"text", std::string(5000, 'x')}});
  const std::string not_complete = one.finish();
  setrlimit(RLIMIT_FSIZE, &usual);
  signal(SIGXFSZ, on_signal);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("no room is left for"), std::string::npos) << said[0];
  EXPECT_NE(not_complete.find("is not complete: results: no room is left"), std::string::npos) << not_complete;
  EXPECT_TRUE(stored(1).empty());
  EXPECT_EQ(one.finish(), "");
  EXPECT_EQ(stored(1).size(), 5u);
  EXPECT_EQ(said.size(), 1u);
}

TEST_F(StudyLife, AStoreThatIsBusyFromTheBeginningGetsItsRunInTheEnd) {
  { Results made(host_.store, Results::Access::write); }
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(host_.store.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::vector<std::string> said;
  host_.say = [&](const std::string& line) { said.push_back(line); };
  host_.patience = std::chrono::milliseconds(50);
  Life one = life(false);
  one.keep("k", {{"x", 1}});
  EXPECT_THROW(life(true), Error) << "what there is to resume cannot be read";
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("is held by another program"), std::string::npos) << said[0];
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  EXPECT_EQ(one.finish(), "run 1 in " + host_.store);
  EXPECT_EQ(stored(1).size(), 1u);
  EXPECT_EQ(said.size(), 1u);
}

}  // namespace
}  // namespace headroom::studies
