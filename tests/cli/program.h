// The program as its tests meet it: run in a folder and with a store of its own, its words and exit code caught.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/device.h"
#include "store/results.h"

namespace headroom {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Ended {
  int code;
  std::string out, err;
};

class Program : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("headroom_cli_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    db_ = (folder_ / "results.db").string();
    setenv("XDG_DATA_HOME", folder_.c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string command(const std::string& arguments) const {
    return std::string(HEADROOM_BINARY_DIR) + "/headroom " + arguments + " > " + (folder_ / "out").string() + " 2> " +
           (folder_ / "err").string();
  }
  static std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  Ended run(const std::string& arguments) const {
    const int status = std::system(command(arguments).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(folder_ / "out"), text_of(folder_ / "err")};
  }
  void refused(const std::string& arguments, int code, const std::string& said) const {
    SCOPED_TRACE(arguments);
    const Ended e = run(arguments);
    EXPECT_EQ(e.code, code) << e.err;
    EXPECT_NE(e.err.find(said), std::string::npos) << e.err;
    EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << e.err;
    EXPECT_TRUE(e.out.empty()) << e.out;
  }

  // Without waiting; standard output and error are the test's own, or caught in the files "out" and "err".
  pid_t start(std::vector<std::string> words, bool caught = false) const {
    words.insert(words.begin(), std::string(HEADROOM_BINARY_DIR) + "/headroom");
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    if (caught)
      for (const char* file : {"out", "err"}) fs::remove(at(file));  // what an earlier one said is not this one's
    const pid_t child = fork();
    if (child == 0) {
      for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);  // whatever started the tests ignores
      if (caught) {
        dup2(open(at("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(open(at("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      }
      execv(argv[0], argv.data()), _exit(127);
    }
    return child;
  }

  static int ended_within(pid_t pid, std::chrono::seconds limit) {  // its wait status; −1: it still ran, and is killed
    using Clock = std::chrono::steady_clock;
    int status = 0;
    for (const auto until = Clock::now() + limit; Clock::now() < until; std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (waitpid(pid, &status, WNOHANG) == pid) return status;
    kill(pid, SIGKILL), waitpid(pid, &status, 0);
    return -1;
  }

  // A line of the shell in which $H is the program; its own words and code, with what the line redirects left to it.
  Ended shell(const std::string& line) const {
    std::ofstream(folder_ / "line.sh") << "H=" HEADROOM_BINARY_DIR "/headroom\ncd " << folder_.string() << "\n" << line << "\n";
    const int status = std::system(("sh " + at("line.sh") + " > " + at("out") + " 2> " + at("err")).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(folder_ / "out"), text_of(folder_ / "err")};
  }
  void shell_refused(const std::string& line, int code, const std::string& said) const {
    SCOPED_TRACE(line);
    const Ended e = shell(line);
    EXPECT_EQ(e.code, code) << e.err;
    EXPECT_NE(e.err.find(said), std::string::npos) << e.err;
    EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << e.err;
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name, std::ios::binary) << text; }
  std::vector<std::string> names() const {  // names of the files in its folder, but for the harness's
    std::vector<std::string> all;
    for (const auto& e : fs::directory_iterator(folder_))
      if (const auto name = e.path().filename().string(); name != "out" && name != "err" && name != "line.sh") all.push_back(name);
    std::sort(all.begin(), all.end());
    return all;
  }

  void keep_ceilings(double flops = 1e9) const { keep_device(db_, flops); }
  // As `headroom device` does, with further rows.
  static void keep_device(const std::string& store, double flops, const std::vector<std::string>& more = {}) {
    Results results(store, Results::Access::write);
    const auto run = results.start_run("device", "{}", cpu_device().name);
    const auto row = [&](const char* what, const char* dtype, double rate) {
      const Json j{{"what", what}, {"dtype", dtype}, {"copy_bytes_per_s", dtype == std::string("bytes") ? rate : 0}, {"flops_per_s", rate}};
      results.add_row(run, {std::string(what) + dtype, j.dump(), "{}"});
    };
    row("copy", "bytes", 1e18), row("matmul", "fp32", flops), row("matmul", "bf16", flops / 2);
    for (const std::string& one : more) results.add_row(run, {one, one, "{}"});
    results.finish_run(run);
  }

  fs::path folder_;
  std::string db_;
};

}  // namespace headroom
