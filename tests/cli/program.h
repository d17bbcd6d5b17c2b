// The program as its tests meet it: run in a folder and with a store of its own, its words and exit code caught.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

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

  pid_t start(std::vector<std::string> words) const {  // without waiting; standard output and error are the test's own
    words.insert(words.begin(), std::string(HEADROOM_BINARY_DIR) + "/headroom");
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) execv(argv[0], argv.data()), _exit(127);
    return child;
  }

  fs::path folder_;
  std::string db_;
};

}  // namespace headroom
