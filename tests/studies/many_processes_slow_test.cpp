// Eight processes on one store for thirty seconds: in every round all of them make the store at the same moment, then resume one run again
// and again. No process fails, and no key is ever paired with another row.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "studies/life.h"

namespace headroom::studies {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int processes = 8;

// What one process does in a round. A run that another process measures is refused in a sentence; every other Error is a failure.
void resume_until(Clock::time_point end, Host host, int process) {
  results_if_any(host.store);  // as a command that looks for ceilings first
  host.resume = true;
  for (int k = 0; k == 0 || Clock::now() < end; ++k) {
    const std::string mine = fmt::format("{} {}", process, k), of_all = std::to_string(k % 50);
    try {
      Life one(host, "attention", {{"a", 1}}, "a machine");
      if (const RowObject* row = one.known(of_all)) check((*row)["key"] == of_all, Code::io, "{} is paired with {}", of_all, row->dump());
      for (const std::string& key : {mine, of_all}) one.keep(key, {{"key", key}});
    } catch (const Error& e) {
      if (std::string(e.what()).find("is measuring it") == std::string::npos) throw;
    }
  }
  check(results_if_any(host.store).has_value(), Code::io, "there is no store");
}

struct Ends {
  int wrong = 0, round = 0;
  std::string how;
};

Ends one_round(int round, Host host) {
  std::filesystem::remove(host.store);
  std::array<int, 2> gate{};
  check(pipe(gate.data()) == 0, Code::io, "no pipe");
  std::array<pid_t, processes> children{};
  for (int i = 0; i < processes; ++i) {
    children[i] = fork();
    if (children[i] != 0) continue;
    close(gate[1]);
    char word = 0;
    if (read(gate[0], &word, 1) != 0) _exit(2);  // the end of the pipe: all processes are there
    try {
      resume_until(Clock::now() + std::chrono::milliseconds(400), host, i);
      _exit(0);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "round %d, process %d: %s\n", round, i, e.what());
      _exit(1);
    }
  }
  close(gate[0]);
  close(gate[1]);
  Ends ends{.round = round};
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ++ends.wrong;
    ends.how += WIFSIGNALED(status) ? fmt::format(" signal {}", WTERMSIG(status)) : fmt::format(" code {}", WEXITSTATUS(status));
  }
  return ends;
}

TEST(ManyProcesses, MakeOneStoreAndResumeOneRunForThirtySeconds) {
  Host host;
  host.store = (std::filesystem::temp_directory_path() / fmt::format("headroom_many_{}.db", getpid())).string();
  const auto end = Clock::now() + std::chrono::seconds(30);
  int rounds = 0, wrong = 0;
  for (; Clock::now() < end; ++rounds) {
    const Ends ends = one_round(rounds, host);
    wrong += ends.wrong;
    EXPECT_EQ(ends.wrong, 0) << "round " << ends.round << ":" << ends.how;
    for (const RowObject& row : row_objects(Results(host.store, Results::Access::read), 1)) EXPECT_TRUE(row["key"].is_string());
  }
  std::filesystem::remove(host.store);
  EXPECT_GE(rounds, 3);
  RecordProperty("rounds", rounds);
  RecordProperty("wrong", wrong);
}

}  // namespace
}  // namespace headroom::studies
