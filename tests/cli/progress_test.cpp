// What a command says while it works: the time that is left, and on a terminal what it does, before the first step too.
#include "cli/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "program.h"
#include "studies/step/words.h"

namespace headroom::cli {
namespace {

TEST(Progress, TheTimeLeftIsInWholeSecondsAndEndsWithTheWork) {
  EXPECT_EQ(left_in_words(10'000, 0.5), ", about 10 s left");
  EXPECT_EQ(left_in_words(10'000, 0.999), ", about 1 s left");
  EXPECT_EQ(left_in_words(10'000, 1), "") << "nothing is left";
  EXPECT_EQ(left_in_words(10'000, 0.005), "") << "nothing is known yet";
}

TEST(Progress, LinesBeforeLongWorkAreSeenAndAThousandAreNot) {
  using std::chrono::milliseconds;
  const Pace::Clock::time_point start = Pace::Clock::now();
  Pace pace(milliseconds(100), 3);
  int passed = 0;
  for (int i = 0; i < 1000; ++i) passed += pace.passes(start + milliseconds(1));
  EXPECT_EQ(passed, 3) << "they follow each other at once";
  EXPECT_FALSE(pace.passes(start + milliseconds(50)));
  passed = 0;
  for (int i = 100; i < 1100; ++i) passed += pace.passes(start + milliseconds(i));
  EXPECT_EQ(passed, 10) << "in each second";

  Pace rare(milliseconds(100), 1);
  EXPECT_TRUE(rare.passes(start));
  EXPECT_FALSE(rare.passes(start + milliseconds(99)));
  EXPECT_TRUE(rare.passes(start + milliseconds(100)));
}

TEST(Progress, OnAGpuTheFirstStepSaysThatItTriesKernels) {
  EXPECT_EQ(studies::words_of_first_step(false), "first step");
  EXPECT_NE(studies::words_of_first_step(true).find("trying kernels"), std::string::npos);
}

// A terminal that a test reads: what is written to `name` comes out of read().
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0 || ptsname_r(master_, name_, sizeof name_) != 0) name_[0] = 0;
    slave_ = open(name_, O_RDWR | O_NOCTTY | O_CLOEXEC);  // what was written stays readable after the program has ended
  }
  ~Terminal() {
    close(slave_);
    close(master_);
  }
  std::string name() const { return name_; }
  std::string read() const {
    std::string all;
    char some[4096];
    for (ssize_t n; (n = ::read(master_, some, sizeof some)) > 0;) all.append(some, std::size_t(n));
    return all;
  }

 private:
  int master_, slave_ = -1;
  char name_[64] = {};
};

class OnATerminal : public Program {
 protected:
  std::string shown(const std::string& arguments) const {
    const Terminal terminal;
    const std::string words = std::string(HEADROOM_BINARY_DIR) + "/headroom " + arguments + " > /dev/null 2> " + terminal.name();
    EXPECT_EQ(std::system(words.c_str()), 0) << words;
    return terminal.read();
  }
};

// The first step is the longest of a run on a GPU, and on a CPU the first word of a training came after it.
TEST_F(OnATerminal, TheFirstStepIsAnnounced) {
  if (Terminal().name().empty()) GTEST_SKIP() << "no terminal can be made here, as in a root without /dev/pts";
  const std::string text = std::string(HEADROOM_SOURCE_DIR) + "/examples/lighthouse.txt", store = " --db " + db_;
  const std::string small = " --layers 1 --width 32 --heads 2 --len 16 --batch 1 --device cpu" + store;
  for (const std::string& command : {"train --steps 2 --text " + text + small, "step --steps 1 --vocab 64" + small,
                                     "profile step --steps 1 --vocab 64" + small, "memory model --measure --vocab 64" + small}) {
    const std::string said = shown(command);
    EXPECT_NE(said.find("first step"), std::string::npos) << command << ": " << said;
    EXPECT_TRUE(said.find("\r\033[K", said.rfind("first step")) != std::string::npos) << "the line is wiped";
  }
}

}  // namespace
}  // namespace headroom::cli
