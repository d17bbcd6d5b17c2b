// headroom forecast that is killed, stopped or left waiting: what it takes along, what it leaves, and what is known then.
#include <signal.h>
#include <sys/file.h>

#include <chrono>
#include <thread>

#include "studies/launch.h"
#include "tests/cli/forecast_program.h"

#ifdef HEADROOM_LIKE_TORCH
namespace headroom {
namespace {

TEST_F(Forecast, NothingIsLeftBehind) {
  fs::create_directory(folder_ / "tmp");
  const auto start = std::chrono::steady_clock::now();
  const Ended e =
      shell("TMPDIR=" + at("tmp") + " $H forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " batch=2 leaves forks");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "a worker that stays is not waited for";
  EXPECT_TRUE(fs::is_empty(folder_ / "tmp"));
}

// Python's own process for that removes semaphores and shared memory once the last process that may use them is gone.
TEST_F(Forecast, WhatRemovesThingsForAnotherProcessHasTimeToDoIt) {
  const std::string done = at("removed"), pipe = at("pipe"), mark = "MARK_OF_THIS_TEST=" + folder_.string();
  const std::string script = "mkfifo " + pipe + "; exec >/dev/null 2>&1; sh -c 'sleep 60; true' >" + pipe +
                             " & sh -c 'cat <\"$0\"; touch \"$1\"' " + pipe + " " + done + " multiprocessing.resource_tracker &";
  const studies::Ended e = studies::launch({.who = "test", .command = {"sh", "-c", script}, .settings = {mark}, .mark_of_left_over = mark});
  EXPECT_EQ(e.exit_code, 0);
  EXPECT_GE(e.left_over, 1) << "the worker";
  EXPECT_TRUE(fs::exists(done));
}

TEST_F(Forecast, AKilledOneTakesItsProgramAndItsFolderAlong) {
  const fs::path tmp = folder_ / "tmp";
  fs::create_directory(tmp);
  setenv("TMPDIR", tmp.c_str(), 1);
  const pid_t child = start({"forecast", "--device", "h100", "--db", db_, "--", HEADROOM_LIKE_TORCH, "batch=8", "spins"}, true);
  unsetenv("TMPDIR");
  const auto until = [](auto&& is) {
    for (int i = 0; i < 1500 && !is(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return is();
  };
  ASSERT_TRUE(until([&] { return text_of(at("err")).find("the program's own") != std::string::npos && processes_of(tmp) > 0; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(until([&] { return processes_of(tmp) == 0; }));
  EXPECT_TRUE(until([&] { return fs::is_empty(tmp); }));
}

TEST_F(Forecast, FoldersWithoutAnOwnerAreTakenAwayByTheNext) {
  const fs::path tmp = folder_ / "tmp", orphan = tmp / "headroom-forecast-aaaaaa", owned = tmp / "headroom-forecast-bbbbbb",
                 other = tmp / "headroom-forecast-cccccc";
  for (const fs::path& one : {orphan, owned, other}) fs::create_directories(one);
  for (const fs::path& one : {orphan, owned}) std::ofstream(one / "owner");
  std::ofstream(orphan / "1.dry") << "bytes";
  const int lock = open((owned / "owner").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const Ended e = shell("TMPDIR=" + tmp.string() + " $H forecast --device h100 --db " + db_ + " -- " HEADROOM_LIKE_TORCH " batch=2");
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_FALSE(fs::exists(orphan));
  EXPECT_TRUE(fs::exists(owned)) << "its owner lives";
  EXPECT_TRUE(fs::exists(other)) << "not a folder of ours";
  close(lock);
}

TEST_F(Forecast, CtrlCKeepsWhatIsKnown) {
  const pid_t child = start({"forecast", "--device", "h100", "--db", db_, "--", HEADROOM_LIKE_TORCH, "batch=8", "spins"}, true);
  for (int i = 0; i < 300 && text_of(at("err")).find("the program's own") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(text_of(at("out")).starts_with("Stopped before its end")) << text_of(at("out")) << text_of(at("err"));
  EXPECT_NE(text_of(at("out")).find("2.06 GiB"), std::string::npos) << text_of(at("out"));
  EXPECT_NE(text_of(at("err")).find("headroom forecast: stopped by Ctrl-C after "), std::string::npos) << text_of(at("err"));
}

// A program's worker is waited for half a second. Ctrl-C in that time stops the runs to come, though the one before it has ended.
TEST_F(Forecast, CtrlCBetweenTwoRunsStopsTheOthers) {
  const std::string ended = at("ended");
  const std::string program = "\"$@\"; (setsid sleep 30 >/dev/null 2>&1 &); touch " + ended;
  const pid_t child = start(
      {"forecast", "--device", "h100", "--db", db_, "--", "sh", "-c", program, "sh", HEADROOM_LIKE_TORCH, "batch=8", "routed", "masked"},
      true);
  for (int i = 0; i < 1500 && !fs::exists(ended); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(child, SIGINT);
  ended_within(child, std::chrono::seconds(30));
  EXPECT_TRUE(text_of(at("out")).starts_with("Stopped before ")) << text_of(at("out"));
  EXPECT_NE(text_of(at("err")).find("headroom forecast: stopped by Ctrl-C"), std::string::npos) << text_of(at("err"));
}

TEST_F(Forecast, WhatWasStoppedOrFailedIsNotKnownToFit) {
  const auto stopped = [&](const std::vector<std::string>& options, const std::vector<std::string>& program) {
    std::vector<std::string> words{"forecast", "--db", db_};
    for (const auto* more : {&options, &program}) words.insert(words.end(), more->begin(), more->end());
    const pid_t child = start(words, true);
    for (int i = 0; i < 300 && text_of(at("err")).find("the program's own") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(child, SIGINT);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    return text_of(at("out"));
  };
  const std::string out = stopped({"--device", "h100", "--format", "json"}, {"--", HEADROOM_LIKE_TORCH, "batch=8", "spins"});
  const Json j = Json::parse(out);
  EXPECT_TRUE(j["fits"].is_null()) << out;
  EXPECT_TRUE(j["rows"][0]["fits"].is_null()) << out;
  EXPECT_TRUE(j["ranks"][0]["fits"].is_null()) << out;
  EXPECT_EQ(j["status"], "interrupted");
  EXPECT_EQ(out.find("may wait"), std::string::npos) << out;
  const std::string loops = stopped({"--device", "h100"}, {"--", HEADROOM_LIKE_TORCH, "batch=8", "loops", "spins"});
  EXPECT_NE(loops.substr(0, loops.find('\n')).find("train.py:9 has read a value that only the card knows 128 times or more"),
            std::string::npos)
      << loops;
  const std::string text = stopped({"--device", "h100"}, {"--", HEADROOM_LIKE_TORCH, "batch=8", "spins"});
  EXPECT_TRUE(text.starts_with("Stopped before its end: as far as is known, it needs ")) << text;
  EXPECT_NE(text.find("not known"), std::string::npos) << text;
  EXPECT_TRUE(json("--device h100", "batch=2 fails", 1)["fits"].is_null());
}

// Also while it makes its folder and has not started the program yet: then nobody has told the program.
TEST_F(Forecast, CtrlCAtAnyMomentEndsIt) {
  int while_listening = 0;
  for (int milliseconds = 0; milliseconds <= 90; milliseconds += 3) {
    const pid_t child = start({"forecast", "--device", "h100", "--db", db_, "--", HEADROOM_LIKE_TORCH, "batch=8", "spins"}, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    kill(child, SIGINT);
    const int status = ended_within(child, std::chrono::seconds(60));
    ASSERT_NE(status, -1) << "SIGINT after " << milliseconds << " ms was lost";
    const bool before_it_listened = WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
    EXPECT_TRUE(before_it_listened || (WIFEXITED(status) && WEXITSTATUS(status) == 1)) << status << text_of(at("err"));
    while_listening += !before_it_listened;
  }
  EXPECT_GT(while_listening, 0);
}

TEST_F(Forecast, StoppedBeforeItUsedACardIsSaid) {
  const pid_t child = start({"forecast", "--device", "h100", "--db", db_, "--", "sh", "-c", "echo begun >&2; sleep 60"}, true);
  for (int i = 0; i < 300 && text_of(at("err")).find("begun") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(text_of(at("err")).find("stopped by Ctrl-C before 'sh' used a card"), std::string::npos) << text_of(at("err"));
}

TEST_F(Forecast, ASearchThatWasStoppedSaysWhatItFound) {
  const std::string waits = "case $0 in 4) sleep 60;; esac; exec " HEADROOM_LIKE_TORCH " batch=$0";
  const pid_t child =
      start({"forecast", "--device", "h100", "--db", db_, "--largest", "batch=1..64", "--", "sh", "-c", waits, "{batch}"}, true);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string out = text_of(at("out"));
  EXPECT_TRUE(out.starts_with("Stopped: batch=2 fits on NVIDIA H100 SXM, larger ones are not known.")) << out << text_of(at("err"));
}

// A later run than the first one is stopped, once it is there: its environment has the word, and it makes a file.
class ForecastStopped : public Forecast {
 protected:
  std::string spins_with(const std::string& variable, const std::string& word) const {
    return "spins-with=" + variable + ":" + word + ":" + at("again");
  }
  Ended stopped(const std::vector<std::string>& options, const std::vector<std::string>& program) const {
    std::vector<std::string> words{"forecast", "--db", db_};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", HEADROOM_LIKE_TORCH});
    words.insert(words.end(), program.begin(), program.end());
    fs::remove(at("again"));
    const pid_t child = start(words, true);
    for (int i = 0; i < 1500 && !fs::exists(at("again")); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(fs::exists(at("again"))) << text_of(at("out")) << text_of(at("err"));
    kill(child, SIGINT);
    int status = 0;
    waitpid(child, &status, 0);
    return {WEXITSTATUS(status), text_of(at("out")), text_of(at("err"))};
  }
};

TEST_F(ForecastStopped, WhatDoesNotFitIsKnownWithoutTheRunThatSaysHowMuchItNeeds) {
  const std::string spins = spins_with("HEADROOM_DRY_CARD", "unlimited=1");
  const Ended e = stopped({"--device", "rtx4090"}, {"batch=100", spins});
  EXPECT_EQ(e.code, 3) << e.err;
  const std::string first = e.out.substr(0, e.out.find('\n'));
  EXPECT_TRUE(first.starts_with("Does not fit on NVIDIA GeForce RTX 4090: it has taken ")) << first;
  EXPECT_NE(first.find("It runs out in step 1, forward, at a request for 25.0 GiB."), std::string::npos) << first;
  EXPECT_TRUE(first.ends_with("Stopped during the run with unlimited memory that says how much it needs.")) << first;
  EXPECT_NE(e.err.find("stopped by Ctrl-C"), std::string::npos) << e.err;
  const Ended data = stopped({"--device", "rtx4090", "--format", "json"}, {"batch=100", spins});
  EXPECT_EQ(data.code, 3);
  const Json j = Json::parse(data.out);
  EXPECT_EQ(j["fits"], false);
  EXPECT_EQ(j["status"], "oom");
  EXPECT_EQ(j["ranks"][0]["fits"], false);
  EXPECT_TRUE(j["uncertain"]["high_bytes"].is_null());
  EXPECT_NE(j["why"].get<std::string>().find("the run with unlimited memory"), std::string::npos) << j["why"];
  EXPECT_EQ(j["peak_allocated_bytes"], 64 * mib);
}

TEST_F(ForecastStopped, OneStepThatWasSeenIsKnownWithoutARunWithAnotherNumber) {
  const Ended e = stopped({"--device", "h100"}, {"batch=2", "steps=3", "until-low", spins_with("HEADROOM_DRY_FLOAT", "100")});
  EXPECT_EQ(e.code, 1);
  EXPECT_TRUE(e.out.starts_with("Stopped before all is known: as far as is known, it needs at least ")) << e.out;
  EXPECT_NE(e.out.find("Stopped during the run with 100 for a float that only the card knows."), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("576 MiB"), std::string::npos) << e.out;
}

TEST_F(ForecastStopped, ASearchKnowsThatTheLastValueDoesNotFit) {
  const Ended e = stopped({"--device", "h100", "--memory", "5", "--largest", "batch=1..64"},
                          {"batch={batch}", spins_with("HEADROOM_DRY_CARD", "unlimited=1")});
  EXPECT_EQ(e.code, 1);
  EXPECT_TRUE(e.out.starts_with("Stopped: batch=8 fits on NVIDIA H100 SXM in 5.00 GiB, batch=16 does not.")) << e.out << e.err;
  const Ended none = stopped({"--device", "h100", "--memory", "5", "--largest", "batch=100..128"},
                             {"batch={batch}", spins_with("HEADROOM_DRY_CARD", "unlimited=1")});
  EXPECT_EQ(none.code, 3) << "the answer is whole";
  EXPECT_TRUE(none.out.starts_with("Not even batch=100 fits on NVIDIA H100 SXM in 5.00 GiB.")) << none.out << none.err;
}

TEST_F(ForecastStopped, TheAnswerStaysWithoutAllThatCouldBeTried) {
  const Ended e = stopped({"--device", "rtx4090", "--try"}, {"batch=8", spins_with("PYTORCH_CUDA_ALLOC_CONF", "expandable")});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(e.out.starts_with("Fits on NVIDIA GeForce RTX 4090: it needs ")) << e.out;
  EXPECT_NE(e.out.find("Stopped before all changes were tried."), std::string::npos) << e.out;
  EXPECT_NE(e.err.find("stopped by Ctrl-C"), std::string::npos) << e.err;
  const Ended half =
      stopped({"--device", "h100", "--memory", "4", "--try"}, {"batch=16", "spare", spins_with("PYTORCH_CUDA_ALLOC_CONF", "expandable")});
  EXPECT_EQ(half.code, 3) << half.err;
  EXPECT_EQ(half.out.find("With PYTORCH_CUDA_ALLOC_CONF"), std::string::npos) << "what a stopped run took is no need";
}

TEST_F(Forecast, AValueWithoutAnAnswerLeavesWhatASearchFound) {
  const std::string dies = "case $0 in 4) kill -9 $$;; esac; exec " HEADROOM_LIKE_TORCH " batch=$0";
  const Ended e = shell("$H forecast --device h100 --db " + db_ + " --largest batch=1..64 -- sh -c '" + dies + "' {batch}");
  EXPECT_EQ(e.code, 1);
  EXPECT_TRUE(e.out.starts_with("No answer at batch=4: ")) << e.out << e.err;
  EXPECT_NE(e.out.find("batch=2 fits on NVIDIA H100 SXM, larger ones are not known."), std::string::npos) << e.out;
}

TEST_F(Forecast, OneStepThatReadAValueIsSaidInTheFirstLine) {
  const Ended e = run(line("--device h100", "batch=2 steps=1 reads"));
  EXPECT_EQ(e.code, 0) << e.err;
  const std::string first = e.out.substr(0, e.out.find('\n'));
  EXPECT_TRUE(first.starts_with("Fits as far as one step shows on NVIDIA H100 SXM: it needs at least ")) << first;
  EXPECT_NE(first.find("train.py:9"), std::string::npos) << first;
  EXPECT_NE(first.find("give the loop a number of steps"), std::string::npos) << first;
  const Json j = json("--device h100", "batch=2 steps=1 reads", 0);
  EXPECT_EQ(j["fits"], true);
  EXPECT_TRUE(j["rows"][0]["high_bytes"].is_null());
  EXPECT_NE(j["why"].get<std::string>().find("train.py:9"), std::string::npos) << j["why"];
  for (const char* known : {"batch=2 steps=1", "batch=2 steps=2 reads"})
    EXPECT_TRUE(run(line("--device h100", known)).out.starts_with("Fits on NVIDIA H100 SXM: it needs ")) << known;
}

TEST_F(Forecast, ALoopThatAValueEndsRunsWithAnotherValue) {
  const Json j = json("--device h100", "batch=2 steps=3 until-low", 0);
  EXPECT_EQ(j["steps"], 3);
  EXPECT_EQ(j["why"], "");
  const Ended e = run(line("--device h100", "batch=2 steps=3 until-low"));
  EXPECT_TRUE(e.out.starts_with("Fits on NVIDIA H100 SXM: it needs ")) << e.out;
  EXPECT_NE(e.out.find("so it ran again with 100"), std::string::npos) << e.out;
}

}  // namespace
}  // namespace headroom
#endif
