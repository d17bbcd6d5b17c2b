// headroom forecast of a program that is run several times: side by side where the machine has cores, with the answer of runs one after the other.
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "base/threads.h"
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

class ForecastBeside : public Forecast {
 protected:
  void SetUp() override {
    Forecast::SetUp();
    if (available_cores() < 2) GTEST_SKIP() << "one core: runs are made one after the other";
    fs::create_directory(folder_ / "beside");
  }
  std::string guesses(const std::string& more = "") const { return "batch=8 routed masked bounded varied " + more; }
  std::string met() const { return at("beside/met"); }
};

TEST_F(ForecastBeside, RunsWithOtherValuesMeet) {
  const Json plain = json("--device h100", guesses(), 0), j = json("--device h100", guesses("meets=" + at("beside")), 0);
  EXPECT_TRUE(fs::exists(met()));
  for (const char* field : {"uncertain", "peak_allocated_bytes", "peak_reserved_bytes", "needed_bytes"})
    EXPECT_EQ(j[field], plain[field]) << field;
}

// A port or a file of a fixed name: the second of two programs fails, on a card too.
TEST_F(ForecastBeside, RunsThatAreInEachOthersWayAreMadeAgainAlone) {
  const Json plain = json("--device h100", guesses(), 0), j = json("--device h100", guesses("holds=" + at("lock")), 0);
  EXPECT_EQ(j["uncertain"], plain["uncertain"]);
  const Ended said = run(line("--device h100", guesses("holds=" + at("lock"))));
  EXPECT_NE(said.out.find("run four times: with half of each such mask"), std::string::npos) << said.out;
  EXPECT_EQ(said.out.find("failed"), std::string::npos) << said.out;
}

// A forecast whose other runs never end, once two of them are there; its temporary files go to "tmp".
class ForecastBesideThatSpins : public ForecastBeside {
 protected:
  pid_t started() const {
    fs::create_directory(at("tmp"));
    std::vector<std::string> words{"forecast", "--db", db_, "--device", "h100", "--", HEADROOM_LIKE_TORCH, "batch=8", "routed", "masked"};
    for (const char* how : {"balanced", "worst", "nearly"})
      words.push_back(std::string("spins-with=HEADROOM_DRY_ROUTING:") + how + ":" + at(how));
    setenv("TMPDIR", at("tmp").c_str(), 1);
    const pid_t child = start(words, true);
    unsetenv("TMPDIR");
    EXPECT_TRUE(until([&] { return fs::exists(at("balanced")) && fs::exists(at("worst")); })) << "two at once";
    return child;
  }
  template <class F>
  static bool until(F&& is) {
    for (int i = 0; i < 1500 && !is(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return is();
  }
};

TEST_F(ForecastBesideThatSpins, CtrlCEndsAllRuns) {
  const pid_t child = started();
  kill(child, SIGINT);
  const int status = ended_within(child, std::chrono::seconds(20));
  ASSERT_TRUE(WIFEXITED(status));
  const std::string out = text_of(at("out")), err = text_of(at("err"));
  EXPECT_TRUE(out.starts_with("Stopped before all is known: as far as is known, it needs at least ")) << out;
  EXPECT_NE(out.find("Stopped during the runs with "), std::string::npos) << out;
  EXPECT_NE(err.find("stopped by Ctrl-C"), std::string::npos) << err;
  EXPECT_EQ(processes_of(folder_ / "tmp"), 0);
  EXPECT_TRUE(fs::is_empty(folder_ / "tmp"));
}

TEST_F(ForecastBesideThatSpins, AKilledForecastTakesAllRunsAlong) {
  const pid_t child = started();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(until([&] { return processes_of(folder_ / "tmp") == 0; }));
  EXPECT_TRUE(until([&] { return fs::is_empty(folder_ / "tmp"); }));
}

}  // namespace
}  // namespace headroom
#endif
