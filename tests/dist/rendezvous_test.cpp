// Ranks find each other, agree on what they are, and hear of every end.
#include "dist/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/dist/processes.h"

namespace headroom::dist {
namespace {

using std::chrono::milliseconds;

TEST(Rendezvous, CollectsByRankAndKnowsWhoIsOnThisMachine) {
  for (const int ranks : {1, 2, 4}) {
    const Address at = fresh_address();
    const auto all = as_processes(ranks, [&](int rank) {
      Rendezvous r(coming(rank, ranks, at));
      std::string out = fmt::format("{}/{} ", r.local_rank(), r.local_ranks());
      for (int k = 0; k < 3; ++k)
        for (const auto& s : r.collect(fmt::format("{}{}", char('a' + rank), k), "letters")) out += s;
      r.leave();
      return out;
    });
    std::string letters;
    for (int k = 0; k < 3; ++k)
      for (int i = 0; i < ranks; ++i) letters += fmt::format("{}{}", char('a' + i), k);
    for (int i = 0; i < ranks; ++i) EXPECT_EQ(all[std::size_t(i)].said, fmt::format("{}/{} {}", i, ranks, letters));
  }
}

TEST(Rendezvous, OverTcpWithAnAddressOfThisMachine) {
  const int port = 20000 + getpid() % 20000;
  const auto all = as_processes(3, [&](int rank) {
    Rendezvous r(coming(rank, 3, Address{"localhost", port, false, 16}));
    const std::string big(1 << 20, char('a' + rank));
    const auto got = r.collect(big, "much");
    r.leave();
    return std::string({got[0][0], got[1][77], got[2].back()});
  });
  for (const auto& o : all) EXPECT_EQ(o.said, "abc");
}

TEST(Rendezvous, EveryRankStopsInTheSameCallOnceOneWantsTo) {
  const Address at = fresh_address();
  const auto all = as_processes(3, [&](int rank) {
    Rendezvous r(coming(rank, 3, at));
    int step = 0;
    while (step < 100 && !r.agree(rank == 1 && step == 5)) ++step;
    r.leave();
    return std::to_string(step);
  });
  for (const auto& o : all) EXPECT_EQ(o.said, "6");
}

TEST(Rendezvous, AReasonReachesTheOthersAndOneOfThemSaysIt) {
  const Address at = fresh_address();
  const auto all = as_processes(3, [&](int rank) -> std::string {
    Rendezvous r(coming(rank, 3, at));
    if (rank == 2) return r.end("no place for block 3 attention.qkv") ? "told" : "not told";
    r.collect("", "nothing");
    return "went on";
  });
  EXPECT_EQ(all[0].said, "error: rank 2 ended: no place for block 3 attention.qkv");
  EXPECT_EQ(all[1].said, "quiet: rank 2 ended: no place for block 3 attention.qkv");
  EXPECT_EQ(all[2].said, "told");
}

TEST(Rendezvous, AKilledRankIsNamedAtOnceAndTheLowestThatIsLeftSaysIt) {
  for (const int killed : {0, 2}) {
    const Address at = fresh_address();
    const auto all = as_processes(3, [&](int rank) -> std::string {
      Rendezvous r(coming(rank, 3, at));
      if (rank == killed) ::raise(SIGKILL);
      r.collect("", "nothing");
      return "went on";
    });
    const std::string sentence = fmt::format("rank {} ended: its process is gone without a word (killed, or crashed)", killed);
    EXPECT_EQ(all[std::size_t(killed)].signal, SIGKILL);
    const std::size_t speaker = killed == 0 ? 1 : 0, silent = killed == 0 ? 2 : 1;
    EXPECT_EQ(all[speaker].said, "error: " + sentence);
    EXPECT_EQ(all[silent].said, "quiet: " + sentence);
    for (const auto& o : all) EXPECT_LT(o.seconds, 10);
  }
}

TEST(Rendezvous, AStoppedMachineIsNoticedByItsSilence) {  // a process that is stopped says as little as a machine that is off
  const Address at = fresh_address();
  const auto all = as_processes(2, [&](int rank) -> std::string {
    Coming c = coming(rank, 2, at);
    c.silence = milliseconds(1500);
    Rendezvous r(std::move(c));
    r.collect("", "nothing");
    if (rank == 1) {
      const pid_t waker = ::fork();
      if (waker == 0) {
        ::sleep(4);
        ::kill(::getppid(), SIGKILL);
        ::_exit(0);
      }
      ::raise(SIGSTOP);
    }
    r.collect("", "nothing");
    return "went on";
  });
  EXPECT_EQ(all[0].said, "error: rank 1 ended: nothing was heard of it for 1.5 s");
  EXPECT_LT(all[0].seconds, 3.5);
}

TEST(Rendezvous, WhoDiffersInWhatIsRefusedBeforeAnythingRuns) {
  const auto refused = [](const auto& change, std::size_t rank) {
    const Address at = fresh_address();
    return as_processes(3,
                        [&](int r) -> std::string {
                          Coming c = coming(r, 3, at);
                          c.settings = {{"model", "small"}, {"len", "128"}};
                          if (r == 2) change(c);
                          Rendezvous(std::move(c)).leave();
                          return "went on";
                        })[rank]
        .said;
  };
  EXPECT_EQ(refused([](Coming& c) { c.settings[1].second = "256"; }, 0),
            "error: rank 2 was given other settings than rank 0: len is 256 there, and 128 on rank 0");
  EXPECT_EQ(refused([](Coming& c) { c.settings[1].second = "256"; }, 1),
            "quiet: rank 2 was given other settings than rank 0: len is 256 there, and 128 on rank 0");
  EXPECT_EQ(refused([](Coming& c) { c.settings.pop_back(); }, 0),
            "error: rank 2 was given other settings than rank 0: len is not given there, and 128 on rank 0");
  EXPECT_EQ(refused([](Coming& c) { c.settings.emplace_back("shard", "optimizer"); }, 0),
            "error: rank 2 was given other settings than rank 0: shard is optimizer there, and not given on rank 0");
  EXPECT_EQ(refused([](Coming& c) { c.build = "0.1.0 other"; }, 0),
            fmt::format("error: rank 2 is another build of headroom (0.1.0 other) than rank 0 ({})", build_id()));
}

// Three ranks, the last of which comes late, and a process that none of them expects.
std::vector<Outcome> beside_a_stranger(const Address& at, const std::function<std::string()>& stranger) {
  return as_processes(4, [&](int rank) -> std::string {
    if (rank == 3) return stranger();
    ::usleep(rank == 2 ? 2'500'000 : 0);
    Coming c = coming(rank, 3, at);
    c.job = "ours";
    c.silence = milliseconds(1500);
    Rendezvous r(std::move(c));
    const auto got = r.collect(std::to_string(rank), "numbers");
    if (rank == 2 && connect_to(at, 0)) return "the door is open when all are in";
    r.collect("", "the end");
    r.leave();
    return got[0] + got[1] + got[2];
  });
}

TEST(Rendezvous, AStrangerIsRefusedIsToldSoAndChangesNothing) {
  const auto refused = [](const auto& change) {
    const Address at = fresh_address();
    const auto all = beside_a_stranger(at, [&]() -> std::string {
      ::usleep(500'000);
      Coming c = coming(1, 3, at);
      c.job = "ours";
      change(c);
      Rendezvous(std::move(c)).leave();
      return "went on";
    });
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all[std::size_t(rank)].said, "012");
    const std::string before = fmt::format("error: rendezvous {}: rank 1 of ", at.text());
    EXPECT_TRUE(all[3].said.starts_with(before)) << all[3].said;
    return all[3].said.substr(std::min(before.size(), all[3].said.size()));
  };
  EXPECT_EQ(refused([](Coming& c) { c.job = "theirs"; }),
            "3 is refused: the ranks of another job meet there (ours; this rank's is theirs)");
  EXPECT_EQ(refused([](Coming& c) { c.ranks = 4; }), "4 is refused: it was started as one of 4 ranks, rank 0 as one of 3");
  EXPECT_EQ(refused([](Coming&) {}), "3 is refused: another process is that rank already");
}

TEST(Rendezvous, StrangersThatSpeakSlowlyOrNotAtAllHoldUpNobody) {
  const Address at = fresh_address();
  const auto all = beside_a_stranger(at, [&]() -> std::string {
    std::vector<Socket> held;
    for (int k = 0; k < 500 && held.size() < 200; ++k) {
      if (Socket s = connect_to(at, 0))
        held.push_back(std::move(s));
      else
        ::usleep(10'000);
    }
    const std::string head = std::string("MDRH") + std::string(12, '\0') + '\x30' + std::string(7, '\0') + std::string(48, 'x');
    for (std::size_t byte = 0; byte < 50; ++byte) {  // four that never are quiet for long
      for (std::size_t i = held.size() - 4; i < held.size(); ++i)
        if (::send(held[i].fd(), &head[byte], 1, MSG_NOSIGNAL) < 0) continue;
      ::usleep(50'000);
    }
    return held.size() == 200 ? "held" : "few";
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all[std::size_t(rank)].said, "012") << rank;
  EXPECT_EQ(all[3].said, "held");
}

TEST(Rendezvous, TwoJobsThatBeginAtOnePortFindTheirOwn) {
  const int port = 25000 + getpid() % 15000;
  const auto all = as_processes(4, [&](int process) {
    const bool second = process >= 2;
    ::usleep(second ? 200'000 : 0);
    Coming c = coming(process % 2, 2, Address{"localhost", port, false, 16});
    c.job = second ? "b" : "a";
    if (process == 1) ::usleep(1'500'000);  // the port of the first job is open while the second looks for its own
    Rendezvous r(std::move(c));
    const auto got = r.collect(fmt::format("{}{}", second ? "b" : "a", process % 2), "names");
    r.leave();
    return got[0] + got[1];
  });
  for (int process = 0; process < 4; ++process) EXPECT_EQ(all[std::size_t(process)].said, process < 2 ? "a0a1" : "b0b1") << process;
}

TEST(Rendezvous, WhoDoesNotComeIsNamed) {
  const Address at = fresh_address();
  const auto all = as_processes(3, [&](int rank) -> std::string {
    if (rank == 1) return "elsewhere";
    Coming c = coming(rank, 3, at);
    c.wait = milliseconds(500);
    Rendezvous(std::move(c)).leave();
    return "went on";
  });
  EXPECT_EQ(all[0].said, fmt::format("error: rendezvous {}: rank 1 of 3 did not come within 0.5 s", at.text()));
  EXPECT_EQ(all[2].said, fmt::format("quiet: rendezvous {}: rank 1 of 3 did not come within 0.5 s", at.text()));
  const auto lonely = as_processes(2, [&](int rank) -> std::string {
    if (rank == 0) return "elsewhere";
    Coming c = coming(rank, 2, Address{"127.0.0.1", 1});
    c.wait = milliseconds(300);
    Rendezvous(std::move(c)).leave();
    return "went on";
  });
  EXPECT_EQ(lonely[1].said, "error: rendezvous 127.0.0.1:1: rank 1 of 2 found no rank 0 there within 0.3 s");
}

std::string failure_of(const auto& body) {
  try {
    body();
  } catch (const Error& e) { return e.what(); }
  return "";
}

TEST(Rendezvous, APortThatIsTakenOrAHostThatIsElsewhereIsSaidInALine) {
  const int port = 40000 + getpid() % 20000;
  const Socket taken = listen_at({"127.0.0.1", port}, 1);
  EXPECT_EQ(failure_of([&] {
              Rendezvous(coming(0, 2, {"127.0.0.1", port}));
            }),
            fmt::format("rendezvous 127.0.0.1:{}: the port is taken; choose another", port));
  EXPECT_EQ(failure_of([&] {
              Rendezvous(coming(0, 2, {"192.0.2.1", port}));
            }),
            fmt::format("rendezvous 192.0.2.1:{}: '192.0.2.1' is another machine; rank 0 must run there", port));
  EXPECT_NE(failure_of([&] { Rendezvous(coming(0, 2, {"no-such-host.invalid", port})); }).find("cannot be found"), std::string::npos);
  const Address at = fresh_address();
  const Socket other = listen_at(at, 1);
  EXPECT_EQ(failure_of([&] { Rendezvous(coming(0, 2, at)); }), fmt::format("rendezvous {}: another rank 0 is there already", at.text()));
}

TEST(Rendezvous, AStrangerAtThePortIsTurnedAway) {
  const int port = 30000 + getpid() % 10000;
  const Address at{"127.0.0.1", port, false, 16};
  const auto all = as_processes(3, [&](int rank) -> std::string {
    if (rank == 2) {  // not one of us: speaks another language, all the while
      for (int k = 0; k < 20; ++k) {
        if (const Socket s = connect_to(at, 0)) {
          if (::write(s.fd(), "GET / HTTP/1.1\r\n\r\nand so on, for longer than a head", 50) < 0) continue;
        }
        ::usleep(20000);
      }
      return "talked";
    }
    ::usleep(100000);
    Rendezvous r(coming(rank, 2, at));
    const auto got = r.collect(std::to_string(rank), "numbers");
    r.leave();
    return got[0] + got[1];
  });
  EXPECT_EQ(all[0].said, "01");
  EXPECT_EQ(all[1].said, "01");
}

TEST(Rendezvous, AStrangerWhoStopsInTheMiddleOfAWordHoldsNobody) {
  const int port = 50000 + getpid() % 10000;
  const Address at{"127.0.0.1", port, false, 16};
  const auto all = as_processes(3, [&](int rank) -> std::string {
    if (rank == 2) {
      std::vector<Socket> held;
      for (int k = 0; k < 500 && held.size() < 9; ++k) {
        if (Socket s = connect_to(at, 0)) {  // nothing; a part of a head; a head whose text does not come
          const std::string said = std::string("MDRH") + std::string(12, '\0') + '\12' + std::string(7, '\0');
          const std::size_t kind = held.size() % 3;
          if (kind > 0 && ::write(s.fd(), said.data(), kind == 1 ? 9 : said.size()) < 0) continue;
          held.push_back(std::move(s));
        }
        ::usleep(10000);
      }
      ::usleep(1000000);
      return held.size() >= 3 ? "one of each" : "few";
    }
    ::usleep(rank == 0 ? 0 : 300000);
    const auto start = std::chrono::steady_clock::now();
    Rendezvous r(coming(rank, 2, at));
    const auto got = r.collect(std::to_string(rank), "numbers");
    r.leave();
    return std::chrono::steady_clock::now() - start < std::chrono::seconds(6) ? got[0] + got[1] : "late";
  });
  EXPECT_EQ(all[0].said, "01");
  EXPECT_EQ(all[1].said, "01");
  EXPECT_EQ(all[2].said, "one of each");
}

TEST(Address, IsReadAndWritten) {
  EXPECT_EQ(address_named("node7:29400", "--rendezvous").text(), "node7:29400");
  EXPECT_EQ(address_named("[::1]:80", "--rendezvous").text(), "[::1]:80");
  EXPECT_EQ(address_named("local:a", "--rendezvous").text(), "local:a");
  for (const char* bad : {"", "node7", ":80", "node7:", "node7:99999", "node7:x", "local:", "[::1", "[::1:80", "::1]:80"})
    EXPECT_NE(failure_of([&] { address_named(bad, "--rendezvous"); }).find("--rendezvous"), std::string::npos) << bad;
}

}  // namespace
}  // namespace headroom::dist
