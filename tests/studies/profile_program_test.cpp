// What is said of a profiled program: from a log whose times are known.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "report/render.h"
#include "studies/profile/program.h"
#include "tests/sanitizers.h"

namespace headroom::studies {
namespace {

constexpr std::int64_t ms = 1'000'000;

// Device 0: a copy, 98 ms of getting ready, then ten kernels of 1 ms, 0.25 ms apart. Device 1: one kernel all the while.
ProgramRun run() {
  using profile::SliceKind;
  ProgramRun r;
  r.command = {"train"}, r.wall_s = 1;
  profile::ActivityLog log;
  log.loaded_ns = 5 * ms;
  log.slices.push_back({"copy to device", SliceKind::copy, -1, 0, 10 * ms, 12 * ms, 7, 64});
  log.slices.push_back({"ours::step<int>", SliceKind::kernel, -1, 1, 11 * ms, 200 * ms, 7, 0});
  for (int i = 0; i < 10; ++i) {
    const std::int64_t start = 110 * ms + i * 5 * ms / 4;
    log.slices.push_back({"ours::step<float>", SliceKind::kernel, -1, 0, start, start + ms, 7, 0});
  }
  log.ended_ns = 300 * ms;
  r.logs.push_back(std::move(log));
  return r;
}

TEST(ProgramRecord, APauseIsNoGap) {
  const auto j = nlohmann::json::parse(render_json(program_record(run(), false)));
  const double first = 2 + 98 + 9 * 1.25 + 1, busy = 2 + 10 + 189;
  EXPECT_DOUBLE_EQ(j["busy_ms"], busy);
  EXPECT_DOUBLE_EQ(j["pauses_ms"], 98);
  EXPECT_NEAR(j["busy_share"].get<double>(), busy / (first + 189), 1e-9);
  EXPECT_NEAR(j["busy_share_between_pauses"].get<double>(), busy / (first - 98 + 189), 1e-9);
  ASSERT_EQ(j["pauses"].size(), 1u);
  EXPECT_DOUBLE_EQ(j["pauses"][0]["at_ms"], 12 - 5);
  EXPECT_EQ(j["pauses"][0]["before"], "ours::step<float>");
  ASSERT_EQ(j["gaps"].size(), 1u) << "what another device does fills no gap, and leaves none";
  EXPECT_EQ(j["gaps"][0]["count"], 9);
  EXPECT_NEAR(j["gaps"][0]["ms"].get<double>(), 9 * 0.25, 1e-9);
}

TEST(ProgramRecord, PeopleReadShortNamesThatTellKernelsApart) {
  const std::string text = render_text(program_record(run(), true));
  EXPECT_NE(text.find("  step<float>"), std::string::npos) << text;
  EXPECT_NE(text.find("  step<int>"), std::string::npos) << text;
}

// A folder of its own for temporary files, in which nothing may stay.
struct Temporary {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("headroom_program_" + std::to_string(getpid()));
  std::string before = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp";
  Temporary() { std::filesystem::create_directories(path), setenv("TMPDIR", path.c_str(), 1); }
  ~Temporary() { setenv("TMPDIR", before.c_str(), 1), std::filesystem::remove_all(path); }
};

TEST(RunProfiled, OnlyWhatItsProcessesRecordedIsRead) {
  const Temporary tmp;
  const ProgramRun r = run_profiled({"sh", "-c",
                                     "cd $HEADROOM_PROFILE_FOLDER; mkfifo 1.activity pipe; mkdir 2.activity; echo notes > notes; printf 'V "
                                     "1\\nH 5\\nZ 9\\n' > 3.activity; exit 7"},
                                    "no library");
  EXPECT_EQ(r.exit_code, 7);
  ASSERT_EQ(r.logs.size(), 1u) << "a pipe would hold us for ever";
  EXPECT_EQ(r.logs[0].ended_ns, 9);
  EXPECT_TRUE(std::filesystem::is_empty(tmp.path));
}

TEST(RunProfiled, ASignalIsTheProgramsAndTheFolderGoesAllTheSame) {
  if (thread_sanitizer) GTEST_SKIP() << "the thread sanitizer holds a signal back until wait4 returns";
  for (const int signal : {SIGTERM, SIGHUP, SIGINT}) {
    const Temporary tmp;
    const std::string started = (tmp.path.string() + "_started");
    const pid_t child = fork();
    if (child == 0) {
      for (int s : {SIGTERM, SIGHUP, SIGINT}) std::signal(s, SIG_DFL);
      const ProgramRun r = run_profiled({"sh", "-c", "echo > " + started + "; exec sleep 100"}, "no library");
      _exit(r.exit_code == 128 + signal && !r.ended_by.empty() ? 7 : 1);
    }
    while (!std::filesystem::exists(started)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    std::filesystem::remove(started);
    ASSERT_TRUE(WIFEXITED(status)) << "the profiler itself was ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_TRUE(std::filesystem::is_empty(tmp.path)) << "after signal " << signal;
  }
}

TEST(RunProfiled, WhatIsIgnoredStaysIgnoredAndBrokenPipesStillEndPrograms) {
  const Temporary tmp;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGHUP, SIG_IGN), std::signal(SIGPIPE, SIG_IGN);  // nohup; and what this program does
    const ProgramRun hup = run_profiled({"sh", "-c", "kill -HUP $$; exit 3"}, "no library"),
                     pipe = run_profiled({"sh", "-c", "kill -PIPE $$"}, "no library");
    _exit(hup.exit_code == 3 && pipe.exit_code == 128 + SIGPIPE ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace headroom::studies
