// Python's tests. tests/python/torch, with a program in place of Python: every test runs where its folder is not, and one that fails does not
// end the others. And each is run by it or by ctest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

// Python's tests that ctest runs, as paths below tests/: named in tests/CMakeLists.txt by themselves, or by a topic of the loop before.
std::set<std::string> run_by_ctest() {
  const std::string here = "${CMAKE_CURRENT_SOURCE_DIR}/", topic = "${topic}", end = "_test.py";
  std::set<std::string> out, topics;
  std::string line, word;
  for (std::ifstream in(HEADROOM_SOURCE_DIR "/tests/CMakeLists.txt"); std::getline(in, line);) {
    if (const auto loop = line.find("foreach(topic "); loop != std::string::npos) {
      topics.clear();
      std::istringstream words(line.substr(loop + 14, line.find(')') - loop - 14));
      while (words >> word) topics.insert(word);
    }
    const auto last = line.find(end);
    const auto first = last == std::string::npos ? last : line.rfind(here, last);
    if (first == std::string::npos) continue;
    const std::string name = line.substr(first + here.size(), last + end.size() - first - here.size());
    const auto at = name.find(topic);
    if (at == std::string::npos)
      out.insert(name);
    else
      for (const auto& each : topics) out.insert(std::string(name).replace(at, topic.size(), each));
  }
  return out;
}

TEST(TorchTests, run_whole_from_a_relative_path) {
  const fs::path tests = HEADROOM_SOURCE_DIR "/tests";
  const fs::path folder = fs::temp_directory_path() / ("headroom_torch_tests_" + std::to_string(::getpid()));
  fs::create_directories(folder / "venv/bin");
  fs::create_directories(folder / "build");
  std::ofstream(folder / "build/libheadroom_dry.so") << "";
  std::ofstream(folder / "venv/bin/python") << "#!/bin/sh\n"
                                               "cd /\n"
                                               "[ -d \"$PYTHONPATH/gpu_headroom\" ] || exit 1\n"
                                               "echo \"$1\" >>'" +
                                                   (folder / "ran").string() +
                                                   "'\n"
                                                   "case $1 in */peers_test.py) exit 77 ;; */torch_sdpa_test.py) exit 1 ;; esac\n";
  fs::permissions(folder / "venv/bin/python", fs::perms::owner_all);
  const std::string script = "cd '" HEADROOM_SOURCE_DIR "' && TORCH_VENV='" + (folder / "venv").string() + "' sh tests/python/torch . '" +
                             (folder / "build").string() + "' >'" + (folder / "said").string() + "'";
  EXPECT_NE(std::system(script.c_str()), 0);
  std::string line, last;
  for (std::ifstream said(folder / "said"); std::getline(said, line);) last = line;
  EXPECT_EQ(last, "failed: python/torch_sdpa");
  std::set<std::string> run = run_by_ctest();
  EXPECT_TRUE(run.contains("python/attention_test.py"));
  int topics = 0;
  for (std::ifstream ran(folder / "ran"); std::getline(ran, line); last = line) {
    if (line == "-c") continue;
    ++topics;
    EXPECT_TRUE(fs::exists(line)) << line;
    run.insert(fs::path(line).lexically_relative(tests).string());
  }
  EXPECT_TRUE(last.ends_with("/dry/watchdog_test.py")) << last;
  EXPECT_GT(topics, 30);
  for (const auto& file : fs::recursive_directory_iterator(tests)) {
    const std::string name = file.path().lexically_relative(tests).string();
    if (!name.ends_with("_test.py")) continue;
    EXPECT_TRUE(run.contains(name)) << name << " is run neither by tests/python/torch nor by ctest";
  }
  fs::remove_all(folder);
}

}  // namespace
