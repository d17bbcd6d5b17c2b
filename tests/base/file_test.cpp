#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "tests/without_rights.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("headroom_files_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static void put(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }
  static std::string text_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  std::size_t entries() const { return std::size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
  template <class Work>
  static std::string refusal_of_file(Work&& work) {
    try {
      work();
    } catch (const Error& e) { return e.what(); }
    return "";
  }
  template <class Work>
  static int status_of_child(Work&& work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
  fs::path folder_;
};

TEST_F(Files, AFileIsReplacedWholeAndKeepsItsPermissions) {
  put(at("a"), "old");
  fs::permissions(at("a"), fs::perms(0640));
  write_atomically(at("a"), std::string("new\0text", 8));
  EXPECT_EQ(text_of(at("a")), std::string("new\0text", 8));
  EXPECT_EQ(fs::status(at("a")).permissions(), fs::perms(0640));
  write_atomically(at("fresh"), "x");
  EXPECT_EQ(entries(), 2u) << "nothing else stays";
}

TEST_F(Files, AFileThatMayNotBeWrittenIsRefusedWithTheSystemsReason) {
  put(at("a"), "old");
  fs::permissions(at("a"), fs::perms(0444));
  EXPECT_EQ(refused_without_rights([&] { write_atomically(at("a"), "new"); }), "'" + at("a") + "' cannot be written to: Permission denied");
}

TEST_F(Files, WhatIsNotPutInPlaceIsGone) {
  put(at("a"), "old");
  {
    AtomicFile file(at("a"));
    file.write("half", 4);
    EXPECT_EQ(entries(), 2u) << "it lies beside the file";
  }
  EXPECT_EQ(text_of(at("a")), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, AKillAtAnyStepLeavesTheOldOrTheNewAndTheNextWriteCleansUp) {
  long step = 1;
  for (bool killed = true; killed; ++step) {
    put(at("a"), "old");
    const int status = status_of_child([&] {
      end_at_write_step(step);
      write_atomically(at("a"), "new");
    });
    killed = WIFSIGNALED(status);
    EXPECT_TRUE(text_of(at("a")) == "old" || text_of(at("a")) == "new");
    write_atomically(at("a"), "next");
    EXPECT_EQ(text_of(at("a")), "next");
    EXPECT_EQ(entries(), 1u) << "after a kill at step " << step;
  }
  EXPECT_GE(step, 4) << "it passes several steps";
}

TEST_F(Files, TwoWritersOfOneNameDoNotMixTheirBytes) {
  AtomicFile one(at("a")), two(at("a"));
  one.write("one", 3), two.write("two!", 4);
  one.put_in_place();
  EXPECT_EQ(text_of(at("a")), "one");
  two.put_in_place();
  EXPECT_EQ(text_of(at("a")), "two!");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, ALinkStaysALink) {
  put(at("target"), "old");
  fs::create_symlink("target", at("link"));
  write_atomically(at("link"), "new");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(text_of(at("target")), "new");
  fs::create_symlink("circle", at("circle"));
  EXPECT_NE(refusal_of_file([&] { write_atomically(at("circle"), "x"); }).find("circle"), std::string::npos);
}

TEST_F(Files, NoOutputReplacesADatabase) {
  const std::string store = std::string("SQLite format 3\0", 16) + std::string(4080, 'x');
  put(at("results.db"), store);
  fs::create_symlink("results.db", at("link"));
  fs::create_hard_link(at("results.db"), at("hard"));
  for (const char* name : {"results.db", "link", "hard"}) {
    EXPECT_NE(refusal_of_file([&] { write_atomically(at(name), "page"); }).find("is a database"), std::string::npos) << name;
    EXPECT_NE(refusal_of_file([&] { open_for_writing(at(name)); }).find("is a database"), std::string::npos) << name;
  }
  for (const char* name : {"results.db-journal", "results.db-wal", "results.db-shm"}) {
    EXPECT_NE(refusal_of_file([&] { write_atomically(at(name), "page"); }).find("or its journal"), std::string::npos) << name;
    EXPECT_FALSE(fs::exists(at(name))) << name;
  }
  EXPECT_EQ(refusal_of_file([&] { write_atomically(at("notes-journal"), "page"); }), "") << "of no database";
  EXPECT_EQ(text_of(at("results.db")), store);
}

TEST_F(Files, DevicesAndPipesAreWrittenToAsTheyAre) {
  write_atomically("/dev/null", "x");
  EXPECT_EQ(refusal_of_file([] { write_atomically("/dev/full", "x"); }), "'/dev/full' cannot be written: No space left on device");
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal_of_file([&] { write_atomically(at("pipe"), "x"); }).find("a pipe without a reader"), std::string::npos);
  EXPECT_NE(refusal_of_file([&] { read_file(at("pipe"), "--text"); }).find("a pipe without a writer"), std::string::npos);
  const int status = status_of_child([&] {  // standard output is a file that is appended to
    put(at("log"), "before\n");
    const int log = open(at("log").c_str(), O_WRONLY | O_APPEND);
    dup2(log, 1);
    write_atomically("/dev/stdout", "after\n");
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_of(at("log")), "before\nafter\n");
}

TEST_F(Files, ALimitOnFilesIsAnError) {
  put(at("a"), "old");
  const int status = status_of_child([&] {
    listen_for_signals();
    const rlimit most{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &most);
    const std::string said = refusal_of_file([&] { write_atomically(at("a"), std::string(8192, 'x')); });
    _exit(said.find("it may not grow any larger here") != std::string::npos ? 7 : 1);
  });
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(text_of(at("a")), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, ADiskWithoutRoomIsSaidWithItsBytes) {
  EXPECT_NO_THROW(check_room(folder_.string(), 1, "a letter"));
  EXPECT_NO_THROW(check_room((folder_ / "not-there").string(), 1e30, "a library")) << "nothing is known of it";
  try {
    check_room(folder_.string(), 1e30, "a library");
    FAIL() << "no disk holds that";
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::io);
    EXPECT_EQ(std::string(e.what()).find("'" + folder_.string() + "' has no room for a library: "), 0u) << e.what();
  }
}

TEST_F(Files, ADirectoryAndAMissingFileAreSaid) {
  EXPECT_NE(refusal_of_file([&] { read_file(folder_.string(), "--text"); }).find("is a directory"), std::string::npos);
  EXPECT_EQ(refusal_of_file([] { read_file("/no/such/file", "--text"); }),
            "--text: '/no/such/file' cannot be opened: No such file or directory");
  put(at("a"), "12345");
  EXPECT_EQ(read_file(at("a"), "x"), "12345");
  EXPECT_NE(refusal_of_file([&] { read_file(at("a"), "x", 4); }).find("is larger than 4 B"), std::string::npos);
}

TEST_F(Files, OneFileIsKnownByAllItsNames) {
  put(at("a"), "x");
  fs::create_hard_link(at("a"), at("b"));
  EXPECT_TRUE(is_same_file(at("a"), at("b")));
  EXPECT_TRUE(is_same_file(at("new"), (folder_ / "." / "new").string())) << "before it is there";
  EXPECT_FALSE(is_same_file(at("new"), at("newer")));
}

TEST_F(Files, NoFileOfOursGetsAStandardDescriptorsNumber) {
  const int status = status_of_child([&] {
    for (int fd : {0, 1, 2}) close(fd);
    hold_standard_descriptors();
    const Descriptor file = open_for_writing(at("a"));
    const bool refused = write(1, "x", 1) < 0 && write(2, "x", 1) < 0;
    char c = 0;
    const bool no_input = read(0, &c, 1) <= 0;
    _exit(file.get() > 2 && refused && no_input ? 7 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(status), 7);
  const int alone = status_of_child([&] {  // a program that never held them
    close(1);
    const Descriptor file = open_for_writing(at("a"));
    _exit(file.get() > 2 ? 7 : 1);
  });
  EXPECT_EQ(WEXITSTATUS(alone), 7);
}

TEST(Interrupts, ATwinIsOneRequestAndALaterOneEndsTheProgram) {
  const auto ended = [](bool wait) {
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGTERM, SIG_DFL);
      listen_for_signals();
      raise(SIGTERM);
      if (wait) usleep(2'200'000);
      raise(SIGTERM);
      _exit(interrupted() && stopped_by() == "stopped by SIGTERM" ? 7 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  };
  const int twin = ended(false), later = ended(true);
  EXPECT_TRUE(WIFEXITED(twin) && WEXITSTATUS(twin) == 7);
  EXPECT_TRUE(WIFSIGNALED(later) && WTERMSIG(later) == SIGTERM);
}

TEST(Interrupts, WorkThatStopsNamesItsSignalAndWhereItWas) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    listen_for_signals();
    stop_if_interrupted(" too early");
    raise(SIGINT);
    try {
      stop_if_interrupted(" while it counted");
    } catch (const Error& e) {
      _exit(e.at.code == Code::interrupted && std::string_view(e.what()) == "stopped by Ctrl-C while it counted" ? 7 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Interrupts, WhatNohupIgnoresStaysIgnored) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGHUP, SIG_IGN);
    listen_for_signals();
    raise(SIGHUP);
    _exit(interrupted() ? 1 : 7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain – ü 日本 \xf0\x9f\x98\x80"), "plain – ü 日本 \xf0\x9f\x98\x80");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x1b[31mred\x07\x7f"), "\\x1b[31mred\\x07\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\x9b") << "an escape sequence in one letter";
  EXPECT_EQ(printable("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(printable("a\nb\tc\r", Lines::many), "a\nb\tc\\r");
  EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80"), "\\xff\\xc3(\\xed\\xa0\\x80");
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u{202e}b");
  EXPECT_EQ(printable(printable("\x1b\xff")), printable("\x1b\xff")) << "twice is once";
}

}  // namespace
}  // namespace headroom
