// Ranks as processes over shared memory: right values at every size, and nothing left behind by any death.
#include "dist/shared.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <thread>

#include "base/random.h"
#include "tests/dist/processes.h"

namespace headroom::dist {
namespace {

Tensor bytes_of(std::vector<unsigned char>& x) { return {x.data(), DType::u8, {std::int64_t(x.size())}}; }
unsigned char value(int from, int to, std::size_t i) {
  return static_cast<unsigned char>(Random{7}.bits(std::size_t(from * 64 + to) * 100000007u + i));
}

std::string wrong_values(Comm& comm, std::size_t part) {  // "" where everything arrived
  const int n = comm.ranks(), me = comm.rank();
  std::vector<unsigned char> mine(part * std::size_t(n)), theirs(mine.size());
  for (int j = 0; j < n; ++j)
    for (std::size_t i = 0; i < part; ++i) mine[std::size_t(j) * part + i] = value(me, j, i);
  comm.exchange(bytes_of(mine), bytes_of(theirs), nullptr);
  for (int j = 0; j < n; ++j)
    for (std::size_t i = 0; i < part; ++i)
      if (theirs[std::size_t(j) * part + i] != value(j, me, i)) return fmt::format("exchange: byte {} from {}", i, j);
  std::vector<unsigned char> whole(mine.size());
  std::copy_n(mine.begin(), part, whole.begin() + std::ptrdiff_t(std::size_t(me) * part));  // for rank 0
  comm.gather({whole.data() + std::size_t(me) * part, DType::u8, {std::int64_t(part)}}, bytes_of(whole), nullptr);
  for (int j = 0; j < n; ++j)
    for (std::size_t i = 0; i < part; ++i)
      if (whole[std::size_t(j) * part + i] != value(j, 0, i)) return fmt::format("gather: byte {} from {}", i, j);
  const int root = n - 1;
  comm.broadcast(bytes_of(mine), root, nullptr);
  for (std::size_t i = 0; i < part; ++i)
    if (mine[i] != value(root, 0, i)) return fmt::format("broadcast: byte {}", i);
  comm.barrier(nullptr);
  return "";
}

TEST(SharedComm, MovesEveryByteAtEverySize) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Address at = fresh_address();
    const auto all = as_processes(ranks, [&](int rank) {
      Rendezvous r(coming(rank, ranks, at));
      std::string wrong;
      for (const std::size_t window : {std::size_t(256), std::size_t(1) << 20}) {
        const auto comm = make_shared_comm(r, window);
        for (const std::size_t part : {0, 1, 3, 31, 32, 33, 127, 128, 129, 1000, 10007})
          if (wrong.empty()) wrong = wrong_values(*comm, part);
        if (wrong.empty() && window > 256) wrong = wrong_values(*comm, 1'500'001);
        comm->barrier(nullptr);
      }
      r.leave();
      return wrong;
    });
    for (const auto& o : all) EXPECT_EQ(fmt::format("{} {}", o.code, o.said), "0 ") << ranks << " ranks";
  }
}

std::set<std::string> kept_by_the_system() {  // names of shared memory, and sockets that are ours
  std::set<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator("/dev/shm")) names.insert(e.path());
  std::ifstream in("/proc/net/unix");
  for (std::string line; std::getline(in, line);)
    if (const auto at = line.find(fmt::format("test-{}-", getpid())); at != std::string::npos) names.insert(line.substr(at));
  return names;
}
// What is there beside `before`, and does not go by itself: programs beside this one name shared memory, too, for as long as they run.
std::set<std::string> left_beside(const std::set<std::string>& before) {
  std::set<std::string> left = kept_by_the_system();
  std::erase_if(left, [&](const std::string& name) { return before.contains(name); });
  for (int k = 0; k < 600 && !left.empty(); ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto now = kept_by_the_system();
    std::erase_if(left, [&](const std::string& name) { return !now.contains(name); });
  }
  return left;
}

TEST(SharedComm, ARankKilledInAnyCallEndsTheOthersWithItsNameAndLeavesNothing) {
  const auto before = kept_by_the_system();
  for (const char* when : {"start", "exchange", "gather", "broadcast", "barrier", "between"})
    for (const int killed : {0, 1}) {
      const Address at = fresh_address();
      const std::string moment = when;
      const auto all = as_processes(3, [&](int rank) -> std::string {
        Rendezvous r(coming(rank, 3, at));
        const auto die = [&](const char* here) {
          if (rank == killed && moment == here) ::raise(SIGKILL);
        };
        die("start");
        const auto comm = make_shared_comm(r);
        std::vector<unsigned char> x(30000), y(30000), z(10000);
        for (int k = 0; k < 50; ++k) {
          const bool now = k == 20;
          if (now) die("exchange");
          comm->carries({"gradients", 3});
          comm->exchange(bytes_of(x), bytes_of(y), nullptr);
          if (now) die("gather");
          comm->gather(bytes_of(z), bytes_of(x), nullptr);
          if (now) die("broadcast");
          comm->broadcast(bytes_of(z), 2, nullptr);
          if (now) die("barrier");
          comm->barrier(nullptr);
          if (now && moment == "between") {
            if (rank == killed) ::usleep(50000), die("between");
            ::usleep(200000);  // computes, while the other dies
          }
        }
        return "went on";
      });
      const std::string name = fmt::format("rank {} ended: its process is gone without a word", killed);
      for (int i = 0; i < 3; ++i) {
        const auto& o = all[std::size_t(i)];
        EXPECT_LT(o.seconds, 10) << when;
        if (i == killed) {
          EXPECT_EQ(o.signal, SIGKILL) << when;
          continue;
        }
        EXPECT_EQ(o.code, 1) << when;
        EXPECT_NE(o.said.find(name), std::string::npos) << when << ", rank " << i << ": " << o.said;
        const bool speaker = i == (killed == 0 ? 1 : 0);
        EXPECT_TRUE(o.said.starts_with(speaker ? "error: " : "quiet: ")) << when << ": " << o.said;
        if (moment != "start" && moment != "between") { EXPECT_NE(o.said.find(moment + ": rank"), std::string::npos) << o.said; }
      }
    }
  EXPECT_EQ(left_beside(before), std::set<std::string>());
}

TEST(SharedComm, RanksThatDisagreeAreTold) {
  const Address at = fresh_address();
  const auto all = as_processes(2, [&](int rank) -> std::string {
    Rendezvous r(coming(rank, 2, at));
    const auto comm = make_shared_comm(r);
    std::vector<unsigned char> x(rank == 0 ? 4 : 8), y(x.size());
    try {
      comm->exchange(bytes_of(x), bytes_of(y), nullptr);
    } catch (const Error& e) {
      r.leave();
      return e.what();
    }
    return "went on";
  });
  for (const auto& o : all) EXPECT_EQ(o.said, "exchange: rank 0 brings 4 bytes, rank 1 brings 8");
}

}  // namespace
}  // namespace headroom::dist
