// Ranks that cannot meet, and strangers where they do.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cli/attack.h"

namespace headroom {
namespace {

// Ranks that cannot meet: every place that is none, every number that is no rank's, what a launcher says and does not mean.
TEST_F(Attack, RanksThatCannotMeet) {
  const std::string port = std::to_string(11000 + getpid() % 9000);
  for (const std::string command : {"step", "train", "comm"}) {
    const auto refused = [&](const Words& more, const Words& environment = {}) {
      Words words = spelled(named({command}), "--ranks");
      words.insert(words.end(), more.begin(), more.end());
      std::string what = command;
      for (const auto& w : more) what += " " + w;
      for (const auto& w : environment) what += " " + w;
      const Ended e = attack(words, [&] {
        for (const auto& w : environment) setenv(w.substr(0, w.find('=')).c_str(), w.substr(w.find('=') + 1).c_str(), 1);
      });
      expect_order(e, what);
      EXPECT_NE(e.code, 0) << what;
      EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << what << ": " << e.err;
    };
    for (const char* where : {":", "localhost", "localhost:", "localhost:0", "localhost:-1", "localhost:65536", "localhost:99999999999",
                              "localhost:1e3", "[::1", "local:", ":80", "a\nb:", "\x1b[2J", "x:\x07"})
      refused({"--ranks", "2", "--rank", "0", "--rendezvous", where});
    refused({"--ranks", "2", "--rank", "0", "--rendezvous", "local:" + std::string(200, 'x')});
    refused({"--ranks", "2", "--rank", "0"});
    refused({"--ranks", "2", "--rank", "2", "--rendezvous", "localhost:" + port});
    refused({"--rank", "0"});
    refused({"--rank", "1", "--ranks", "1"});
    refused({"--ranks", "2", "--rendezvous", "localhost:" + port});
    refused({"--gpus", "2", "--ranks", "3"});
    for (const Words& said : std::vector<Words>{{"RANK=x", "WORLD_SIZE=2"},
                                                {"RANK=-1", "WORLD_SIZE=2"},
                                                {"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=1"},
                                                {"RANK=0", "WORLD_SIZE=99999999999"},
                                                {"RANK=0", "WORLD_SIZE=2"},
                                                {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=99999"},
                                                {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=\x1b"},
                                                {"PMI_RANK=0", "PMI_SIZE=\xff"},
                                                {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"},
                                                {"HEADROOM_RANK=1", "HEADROOM_RANKS=2", "HEADROOM_FD=77"},
                                                {"HEADROOM_RANK=5", "HEADROOM_RANKS=2", "HEADROOM_FD=77"}})
      refused({}, said);
    if (command != "comm")
      for (const char* word : {"ZeRO", "none,optimizer", "\n", "4"}) refused({"--ranks", "2", "--shard", word});
  }
  expect_untouched("ranks");
}

// What connects to a rendezvous and is no rank: silence, noise, half a message. The ranks come and go on.
TEST_F(Attack, StrangersAtARendezvous) {
  const int port = 21000 + getpid() % 9000;
  const std::string place = "localhost:" + std::to_string(port);
  const auto rank = [&](int r) {
    Words words = spelled(named({"comm"}), "--ranks");
    for (const auto& w :
         {std::string("--ranks"), std::string("2"), std::string("--rank"), std::to_string(r), std::string("--rendezvous"), place})
      words.push_back(w);
    return words;
  };
  std::atomic<int> connected{0};
  std::thread strangers([&] {
    const std::string noise(300, '\x7f');
    std::string half(24, '\0');
    half.replace(0, 4, "MDRH");  // as a hello begins
    half[16] = 10;
    std::vector<int> open;
    for (int k = 0; k < 400 && connected < 6; ++k) {
      sockaddr_in at{};
      at.sin_family = AF_INET, at.sin_port = htons(std::uint16_t(port)), at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const int s = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(s, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
        const std::string& said = connected % 3 == 0 ? std::string() : connected % 3 == 1 ? noise : half;
        if (!said.empty()) send(s, said.data(), said.size(), MSG_NOSIGNAL);
        ++connected;
      }
      open.push_back(s);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (const int s : open) close(s);
  });
  std::thread other([&] {
    while (connected < 3) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::string line = fmt::format(
        "cd {}; exec {}/headroom comm --device cpu --ranks 2 --bytes 1KiB --call exchange --steps 1 "
        "--warmup 0 --threads 1 --rank 1 --rendezvous {} > other.out 2> other.err",
        at("somewhere"), HEADROOM_BINARY_DIR, place);
    EXPECT_EQ(std::system(line.c_str()), 0) << text_of(folder_ / "somewhere" / "other.err");
  });
  const Ended e = attack(rank(0));
  strangers.join();
  other.join();
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_GE(connected, 3);
}

}  // namespace
}  // namespace headroom
