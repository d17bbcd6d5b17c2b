// Signals: the first one stops every command, which then shows or saves what it has.
#include <fmt/format.h>

#include <chrono>
#include <regex>
#include <thread>

#include "tests/cli/small_run.h"
#include "tests/sanitizers.h"

namespace headroom {
namespace {

class Stopped : public SmallRun {};

TEST_F(Stopped, SchedulersSignalsSaveTheTraining) {
  put_text();
  for (const int signal : {SIGTERM, SIGHUP}) {
    const std::string save = at("run" + std::to_string(signal));
    const pid_t child = start({"train",   "--device", "cpu",   "--text", at("text.txt"),  "--layers", "1",       "--width", "32",
                               "--heads", "2",        "--len", "32",     "--batch",       "2",        "--steps", "1000000", "--every",
                               "1000000", "--save",   save,    "--out",  at("train.json")});
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    for (int twin = 0; twin < 2; ++twin) kill(child, signal);  // as timeout(1) sends it
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 1);
    const Json j = Json::parse(text_of(folder_ / "train.json"), nullptr, false);
    ASSERT_TRUE(j.is_object()) << "it leaves a word";
    EXPECT_EQ(j["stopped"], true);
    EXPECT_GT(j["step"], 0);
    EXPECT_TRUE(fs::exists(fs::path(save) / fmt::format("step-{:08}.safetensors", j["step"].get<std::int64_t>())));
  }
}

// Thousands of forecasts: a search that is stopped shows what it knows, and does not say that nothing fits.
TEST_F(Stopped, ASearchThatIsStoppedKeepsWhatItKnows) {
  std::string said;
  for (int ms = 500; ms <= 16000; ms *= 2) {  // a busy machine has forecast nothing by then
    const pid_t child = start({"plan", "--model", "llama-3.1-8b", "--gpus", "8", "--batch", "512", "--device", "h200", "--format", "json",
                               "--out", at("plan.json")},
                              true);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    kill(child, SIGINT);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    said = text_of(at("err"));
    if (said.find("before a setting was forecast") == std::string::npos) break;
  }
  EXPECT_TRUE(std::regex_search(said, std::regex("headroom plan: stopped by Ctrl-C after [0-9]+ of [0-9]+ settings"))) << said;
  const Json j = Json::parse(text_of(folder_ / "plan.json"), nullptr, false);
  ASSERT_TRUE(j.is_object()) << said;
  EXPECT_EQ(j.dump().find("Does not fit"), std::string::npos) << j.dump().substr(0, 400);
  EXPECT_NE(j.dump().find("topped after "), std::string::npos) << j.dump().substr(0, 400);
}

// The ways come from the largest to the smallest, and only the last ones fit: a search that is stopped before does not know whether one does.
TEST_F(Stopped, WhetherSomethingFitsIsNotSaidBeforeItIsKnown) {
  for (int ms = 250; ms <= 16000; ms *= 2) {
    const pid_t child = start({"plan", "--as", "pytorch", "--model", "llama-3.1-405b", "--batch", "512", "--len", "8192", "--gpus", "512",
                               "--device", "h100", "--format", "json", "--out", at("plan.json")},
                              true);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    kill(child, SIGINT);
    waitpid(child, nullptr, 0);
    const Json j = Json::parse(text_of(folder_ / "plan.json"), nullptr, false);
    if (!j.is_object()) continue;  // nothing was forecast by then
    const bool known = j["answer"].get<std::string>().find("What fits is not known") == std::string::npos;
    EXPECT_EQ(j["fits"].is_null(), !known) << j["answer"];
    if (!known) return;
  }
  GTEST_SKIP() << "this machine was never stopped between its first forecast and one that fits";
}

TEST_F(Stopped, TheFirstRequestToStopIsHeardByEveryCommand) {
  constexpr std::chrono::seconds patience(thread_sanitizer ? 120
                                                           : 20);  // 4000 layers are walked to the end: 49 s under it on two busy cores
  put_text();
  const std::vector<std::vector<std::string>> commands = {
      // each takes minutes
      {"precision", "norm", "--width", "100000", "--rows", "1000"},
      {"precision", "formats", "--values", "100000000"},
      {"precision", "accumulate", "--count", "100000000", "--value", "1e-30,1e-31,1e-32,1e-33"},
      {"memory", "model", "--model", "small", "--layers", "4000", "--device", "h200", "--len", "128,256,512,1024,2048,4096"},
      {"plan", "--model", "small", "--layers", "4000", "--device", "h200"},
      {"device", "--db", db_},
      {"attention", "--len", "512,1024", "--steps", "1000000", "--db", db_},
      {"step", "--device", "cpu", "--model", "small", "--len", "64", "--steps", "1000", "--db", db_},
  };
  for (const auto& words : commands)
    for (const int signal : {SIGINT, SIGTERM}) {
      const pid_t child = start(words, true);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      kill(child, signal);
      int status = 0;
      const auto asked = std::chrono::steady_clock::now();
      while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() - asked > patience) {
          ADD_FAILURE() << words[0] << " " << words[1] << " goes on after signal " << signal;
          kill(child, SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_TRUE(WIFEXITED(status)) << words[0] << " " << words[1] << " was ended by signal " << WTERMSIG(status);
      EXPECT_EQ(WEXITSTATUS(status), 1) << words[0] << " " << words[1];
      const std::string said = text_of(at("err")), by = signal == SIGINT ? "stopped by Ctrl-C" : "stopped by SIGTERM";
      EXPECT_TRUE(said.starts_with("headroom " + words[0] + ": " + by)) << said;
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    }
}

}  // namespace
}  // namespace headroom
