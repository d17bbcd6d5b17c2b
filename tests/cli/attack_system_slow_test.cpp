// Two programs at once, full disks, closed descriptors, failing system calls and signals.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/cli/attack.h"

namespace headroom {
namespace {

// Two of everything at once, on one store, one output, one folder of checkpoints.
TEST_F(Attack, TwoAtOnce) {
  for (const Words& words : writers()) {
    start_afresh();
    const auto begin = [&] {
      std::string line = "cd " + at("somewhere") + "; exec " + std::string(HEADROOM_BINARY_DIR) + "/headroom";
      for (const auto& w : words) line += " '" + w + "'";
      return line + " > second.out 2> second.err";
    };
    int second = -1;
    std::thread beside([&] { second = std::system(begin().c_str()); });
    const Ended first = attack(words);
    beside.join();
    const std::string what = "two of " + words[0];
    expect_order(first, what);
    const std::string said = text_of(folder_ / "somewhere" / "second.err");
    EXPECT_TRUE(first.code == 0 || second == 0) << what << ": " << first.err << said;
    const bool shares = words[0] == "train";  // one of two that save to one folder is refused, or finds the other's checkpoints
    EXPECT_TRUE(shares || (first.code == 0 && second == 0)) << what << ": " << first.err << said;
    expect_whole(what);
  }
}

TEST_F(Attack, ClosedDescriptors) {
  for (const Words& words : writers())
    for (int closed = 1; closed < 8; ++closed) {
      start_afresh();
      const Ended e = attack(words, [closed] {
        for (int fd : {0, 1, 2})
          if (closed & 1 << fd) close(fd);
      });
      const std::string what = fmt::format("{} with descriptors {:03b} closed", words[0], closed);
      EXPECT_TRUE(e.code == 0) << what << ": " << e.code << " " << e.err;
      expect_whole(what);
    }
}

TEST_F(Attack, FilesThatMayNotGrow) {
  for (const Words& words : writers())
    for (const rlim_t most : {0, 1, 512, 4096, 8192, 16384, 40960, 100'000}) {
      start_afresh();
      const Ended e = attack(words, [most] {
        const rlimit limit{most, most};
        setrlimit(RLIMIT_FSIZE, &limit);
      });
      const std::string what = fmt::format("{} with files of at most {} bytes", words[0], most);
      EXPECT_TRUE(e.code == 0 || e.code == 1) << what << ": " << e.code << " " << e.err;
      expect_whole(what);
    }
}

TEST_F(Attack, FewDescriptors) {
  for (const Words& words : writers())
    for (const rlim_t most : {3, 4, 5, 6, 8, 12}) {
      start_afresh();
      const Ended e = attack(words, [most] {
        const rlimit limit{most, most};
        setrlimit(RLIMIT_NOFILE, &limit);
      });
      const std::string what = fmt::format("{} with {} descriptors", words[0], most);
      if (e.code == 127) continue;  // the libraries themselves could not be opened
      expect_order(e, what);
      expect_whole(what);
    }
}

// What is asked of the system is refused; OpenBLAS asked again without end.
TEST_F(Attack, LittleAddressSpace) {
  for (const Words& words : writers())
    for (const rlim_t mib : {112, 128, 160, 192, 256, 320, 400}) {  // in little, OpenBLAS asks without end
      start_afresh();
      const Ended e = attack(words, [mib] {
        const rlimit limit{mib << 20, mib << 20};
        setrlimit(RLIMIT_AS, &limit);
        alarm(60);  // a program that never ends is ended by it
      });
      const std::string what = fmt::format("{} in {} MiB of address space", words[0], mib);
      if (e.code == 127) continue;  // the libraries themselves have no room
      EXPECT_TRUE(e.code == 0 || e.code == 1 || e.code == 3) << what << ": " << e.code << " " << e.err;
      expect_whole(what);
    }
}

// Each write, each settling, each renaming and each deletion fails once, and once it is the last thing that happens.
TEST_F(Attack, SystemCallsThatFailOrAreTheLast) {
  if (attack({}, [] {}, {"strace", "-f", "-o", "/dev/null", "-e", "trace=rename"}).err.find("strace") != std::string::npos ||
      std::system("strace -f -o /dev/null -e trace=rename true > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "there is no strace here, or it may not trace";
  const std::pair<const char*, std::vector<const char*>> faults[] = {{"pwrite64", {"error=ENOSPC", "error=EIO", "signal=KILL"}},
                                                                     {"fsync,fdatasync", {"error=EIO", "signal=KILL"}},
                                                                     {"rename", {"error=EACCES", "signal=KILL"}},
                                                                     {"unlink", {"error=EACCES", "signal=KILL"}}};
  const auto all = writers();
  int struck = 0;
  for (const std::size_t which : {0u, 3u})  // a store and an output; checkpoints
    for (const auto& [calls, ways] : faults)
      for (const char* way : ways)
        for (int nth = 1; nth <= 6; ++nth) {
          start_afresh();
          const bool killed = std::string(way) == "signal=KILL";
          const Ended e = attack(all[which], [] {},
                                 {"strace", "-f", "-o", "/dev/null", "-e", fmt::format("trace={}", calls), "-e",
                                  fmt::format("inject={}:{}:when={}", calls, way, nth)});
          const std::string what = fmt::format("{} where {} number {} has {}", all[which][0], calls, nth, way);
          struck += e.code != 0;
          if (!killed) expect_order(e, what);
          expect_whole(what, killed);
        }
  EXPECT_GT(struck, 20) << "the faults do not arrive";
}

TEST_F(Attack, SignalsAtAnyMoment) {
  const std::vector<Words> commands = {
      {"attention", "--dim", "16", "--len", "16,32,64,128,256", "--steps", "200", "--db", at("somewhere/s.db"), "--out",
       at("somewhere/a.json")},
      {"train", "--text",  at("text.txt"), "--layers", "1",  "--width",  "32",     "--heads",          "2", "--len", "8", "--batch",
       "1",     "--steps", "100000",       "--every",  "50", "--resume", "--save", at("somewhere/run")},
      {"step", "--device", "cpu", "--layers", "2", "--width", "64", "--heads", "2", "--vocab", "64", "--len", "16,32,64", "--steps", "500",
       "--db", at("somewhere/s.db")},
      {"precision", "norm"},
      {"memory", "model", "--layers", "2000", "--device", "h200"},
      {"plan", "--layers", "500", "--device", "h200"},
      {"device", "--db", at("somewhere/s.db")},
      {"profile", "step", "--device", "cpu", "--model", "small", "--len", "64", "--batch", "1", "--steps", "100", "--db",
       at("somewhere/s.db")}};
  for (const Words& words : commands)
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
      for (const int after_ms : {20, 150, 400, 900}) {
        start_afresh();
        const auto parent = getpid();
        std::thread sender;
        const auto begun = std::chrono::steady_clock::now();
        const Ended e = [&] {
          int ends[2];
          EXPECT_EQ(pipe(ends), 0);
          sender = std::thread([&] {
            pid_t child = 0;
            if (read(ends[0], &child, sizeof child) != sizeof child) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
            kill(child, signal);
          });
          const Ended ended = attack(words, [&] {
            const pid_t me = getpid();
            if (me == parent || write(ends[1], &me, sizeof me) != sizeof me) _exit(126);
            close(ends[1]);
          });
          close(ends[1]);
          sender.join();
          close(ends[0]);
          return ended;
        }();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        const std::string what = fmt::format("{} {} with signal {} after {} ms", words[0], words[1], signal, after_ms);
        if (e.code != -signal || after_ms > 400) expect_order(e, what);  // before it listens a signal ends it as any program
        EXPECT_LT(seconds, 30) << what;
        expect_whole(what, e.code == -signal);
      }
}

}  // namespace
}  // namespace headroom
