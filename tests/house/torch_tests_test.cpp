// tests/python/torch, with a program in place of Python: every test runs where its folder is not, and one that fails does not end the others.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

TEST(TorchTests, run_whole_from_a_relative_path) {
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
  int topics = 0;
  for (std::ifstream ran(folder / "ran"); std::getline(ran, line); last = line) {
    if (line == "-c") continue;
    ++topics;
    EXPECT_TRUE(fs::exists(line)) << line;
  }
  EXPECT_TRUE(last.ends_with("/dry/watchdog_test.py")) << last;
  EXPECT_GT(topics, 30);
  fs::remove_all(folder);
}

}  // namespace
