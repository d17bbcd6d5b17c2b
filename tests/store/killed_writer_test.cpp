#include "tests/store/killed_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

class KilledWriter : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("headroom_killed_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    file_ = (folder_ / "results.db").string();
  }
  void TearDown() override { fs::remove_all(folder_); }
  static std::string bytes(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  // "2 rows", "no run", or what was said.
  std::string seen(Results::Access access) const {
    try {
      const Results r(file_, access);
      return r.runs().empty() ? "no run" : std::to_string(r.rows(1).size()) + " rows";
    } catch (const Error& e) { return e.what(); }
  }
  fs::path folder_;
  std::string file_;
};

const char* const what_counts[] = {"", "there is nothing in", "no run", "0 rows", "1 rows"};  // by the write that was cut short

TEST_F(KilledWriter, IsReadAtOnce) {
  for (int write = 1; write <= 4; ++write) {
    fs::remove(file_);
    ASSERT_TRUE(killed_inside_write(file_, write));
    ASSERT_TRUE(fs::exists(file_ + "-journal")) << "nothing to recover from: this test cannot fail";
    EXPECT_NE(seen(Results::Access::read).find(what_counts[write]), std::string::npos) << write << ": " << seen(Results::Access::read);
    EXPECT_FALSE(fs::exists(file_ + "-journal")) << "who may write has repaired it";
    Results again(file_, Results::Access::write);
    EXPECT_NO_THROW(again.start_run("attention", "{}", "m"));
  }
}

TEST_F(KilledWriter, IsGoneOnWith) {
  for (int write = 1; write <= 4; ++write) {
    fs::remove(file_);
    ASSERT_TRUE(killed_inside_write(file_, write));
    EXPECT_EQ(seen(Results::Access::write), write == 1 ? "no run" : what_counts[write]) << write;
  }
}

TEST_F(KilledWriter, IsReadByWhoMayNotWrite) {
  const fs::path elsewhere = folder_ / "tmp";
  fs::create_directories(elsewhere);
  fs::permissions(elsewhere, fs::perms::all);
  const char* const usual = std::getenv("TMPDIR");
  const std::string kept = usual ? usual : "";
  setenv("TMPDIR", elsewhere.c_str(), 1);
  bool all_reached = true;
  for (int write = 1; write <= 4; ++write) {
    fs::permissions(folder_, fs::perms(0755));
    fs::remove(file_);
    ASSERT_TRUE(killed_inside_write(file_, write));
    for (const auto& name : {file_, file_ + "-journal"}) fs::permissions(name, fs::perms(0444));
    fs::permissions(folder_, fs::perms(0555));
    const std::string before = bytes(file_), journal = bytes(file_ + "-journal");
    const bool root = geteuid() == 0;
    std::error_code unreached;
    if (root) { ASSERT_EQ(seteuid(65534), 0); }                     // permissions bind everyone else
    const bool reached = fs::exists(fs::status(file_, unreached));  // a root directory of 0700 binds everyone else, too
    const std::string said = seen(Results::Access::read);
    if (root) { ASSERT_EQ(seteuid(0), 0); }
    all_reached &= reached;
    if (!reached) break;
    EXPECT_NE(said.find(what_counts[write]), std::string::npos) << write << ": " << said;
    EXPECT_TRUE(bytes(file_) == before && bytes(file_ + "-journal") == journal) << "left as it was";
    EXPECT_TRUE(fs::is_empty(elsewhere)) << "the copy is gone";
    fs::permissions(folder_, fs::perms(0755));
    fs::remove(file_ + "-journal");
  }
  usual ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
  if (!all_reached) GTEST_SKIP() << "another user does not reach " << file_;
}

TEST_F(KilledWriter, WhatIsNoFileKeepsNothingAndIsRefused) {
  file_ = "/dev/null";
  EXPECT_NE(seen(Results::Access::write).find("no file that keeps"), std::string::npos);
  file_ = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  for (const auto access : {Results::Access::write, Results::Access::read})
    EXPECT_NE(seen(access).find("no file that keeps"), std::string::npos) << seen(access);
}

TEST_F(KilledWriter, ANameMeansAFileAndNothingElse) {
  const auto before = fs::current_path();
  fs::current_path(folder_);
  for (const char* name : {":memory:", "file:x?mode=memory"}) {
    file_ = name;
    { Results(file_, Results::Access::write).start_run("attention", "{}", "m"); }
    EXPECT_TRUE(fs::is_regular_file(folder_ / name)) << name;
    EXPECT_EQ(seen(Results::Access::read), "0 rows");
  }
  fs::current_path(before);
}

TEST_F(KilledWriter, AGarbledStoreIsSaidInOneLineOfOurWords) {
  {
    Results r(file_, Results::Access::write);
    const auto run = r.start_run("attention", "{}", "m");
    for (int i = 0; i < 200; ++i) r.add_row(run, {"k" + std::to_string(i), std::string(200, 'x'), "{}"});
  }
  for (const int page : {1, 2, 3, 5, 8}) {
    std::string text = bytes(file_);
    text.replace(std::size_t(page) * 4096, 600, std::string(600, '\xa5'));
    std::ofstream(file_ + ".bad", std::ios::binary) << text;
    const std::string kept = file_;
    file_ += ".bad";
    const std::string said = seen(Results::Access::read);
    EXPECT_EQ(said, "results: '" + file_ + "' is damaged; it was left as it is, move it away or name another with --db") << page;
    file_ = kept;
  }
}

}  // namespace
}  // namespace headroom
