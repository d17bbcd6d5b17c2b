#include "gpu/plan_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace headroom {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("headroom-plans-" + std::to_string(::getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

const Algorithms some = {{"64x64x64x1:fp32.64.0.256", {1, 2, 3, 4, 5, 6, 7, ~0ull}}, {"8x8x8x1:bf16t.8.0.256+c", {9, 0, 0, 0, 0, 0, 0, 0}}};

TEST(PlanFile, WhatWasWrittenIsRead) {
  const Folder folder;
  const fs::path file = folder.path / "deep" / "plans";
  EXPECT_TRUE(read_plans(file).empty());
  ASSERT_TRUE(write_plans(file, some));
  EXPECT_EQ(read_plans(file), some);
  ASSERT_TRUE(write_plans(file, {}));
  EXPECT_TRUE(read_plans(file).empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), {}), 1);  // nothing unfinished lies about
}

TEST(PlanFile, ADamagedFileHoldsNone) {
  const Folder folder;
  const fs::path file = folder.path / "plans";
  ASSERT_TRUE(write_plans(file, some));
  std::stringstream whole;
  whole << std::ifstream(file).rdbuf();
  const std::string text = whole.str();
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = damaged[at] == '1' ? '2' : '1';
    std::ofstream(file) << damaged;
    EXPECT_TRUE(read_plans(file).empty()) << at;
    std::ofstream(file) << text.substr(0, at);
    EXPECT_TRUE(read_plans(file).empty()) << at;
  }
}

TEST(PlanFile, AFolderThatCannotBeWrittenIsSaid) {
  EXPECT_FALSE(write_plans("/dev/null/plans", some));
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(plan_file_of("NVIDIA H200 1.2"), "/somewhere/headroom/plans-NVIDIA-H200-1-2");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace headroom
