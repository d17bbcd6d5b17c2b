// The ranks' door: processes that a test started join through the C interface.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/convert.h"
#include "headroom/headroom.h"
#include "tests/dist/processes.h"
#include "tests/dist/values.h"

namespace headroom::capi {

namespace {

using dist::as_processes;
using dist::in_order;
using dist::Outcome;
using dist::value_of;
using dist::values_of;

void need(headroom_status s, headroom_status want = HEADROOM_OK) {
  if (s != want) throw std::runtime_error(fmt::format("{}: {}", headroom_status_name(s), headroom_last_error()));
}

headroom_comm* joined_as(int rank, int ranks, const std::string& rendezvous, int patience_ms = 0) {
  headroom_comm_settings s = HEADROOM_COMM_SETTINGS_INIT;
  s.rank = rank, s.ranks = ranks, s.rendezvous = rendezvous.c_str(), s.patience_ms = patience_ms;
  headroom_comm* made = nullptr;
  need(headroom_comm_create(&s, &made));
  return made;
}

std::vector<Outcome> ranks_do(int ranks, const std::function<std::string(headroom_comm*, int)>& body, int patience_ms = 0) {
  const std::string where = dist::fresh_address().text();
  return as_processes(ranks, [&](int rank) {
    headroom_comm* comm = joined_as(rank, ranks, where, patience_ms);
    const std::string said = body(comm, rank);
    headroom_comm_destroy(comm);
    return said;
  });
}

template <class T>
bool bits_equal(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
std::string sums_of(headroom_comm* comm, int rank, int ranks, headroom_dtype dtype, std::int64_t count) {
  for (const bool mean : {false, true}) {
    const auto how = mean ? HEADROOM_MEAN : HEADROOM_SUM;
    auto all = values_of<T>(rank, count);
    need(headroom_comm_all_reduce(comm, all.data(), count, dtype, how));
    const auto whole = values_of<T>(rank, count * ranks);
    std::vector<T> part(std::size_t(count), T{});
    need(headroom_comm_reduce_scatter(comm, whole.data(), part.data(), count, dtype, how));
    for (std::int64_t i = 0; i < count; ++i) {
      if (!bits_equal(all[std::size_t(i)], in_order<T>(ranks, i, mean ? ranks : 1)))
        return fmt::format("all_reduce of {}: element {}", count, i);
      if (!bits_equal(part[std::size_t(i)], in_order<T>(ranks, rank * count + i, mean ? ranks : 1)))
        return fmt::format("reduce_scatter of {}: element {}", count, i);
    }
  }
  return "";
}

}  // namespace

TEST(Comm, SumsAreInTheOrderOfRanksAndRoundedOnce) {
  for (const int ranks : {1, 2, 3, 4})
    for (const auto& o : ranks_do(ranks, [&](headroom_comm*comm, int rank) {
           std::string wrong;
           for (const std::int64_t count : {0, 1, 3, 5, 1000, 400'003}) {
             if (wrong.empty()) wrong = sums_of<float>(comm, rank, ranks, HEADROOM_F32, count);
             if (wrong.empty()) wrong = sums_of<bf16>(comm, rank, ranks, HEADROOM_BF16, std::min<std::int64_t>(count, 1000));
             if (wrong.empty()) wrong = sums_of<f16>(comm, rank, ranks, HEADROOM_F16, std::min<std::int64_t>(count, 1000));
           }
           return wrong;
         })) {
      EXPECT_EQ(o.said, "") << ranks;
      EXPECT_EQ(o.code, 0);
    }
}

TEST(Comm, BytesArriveWhereTheyBelong) {
  for (const int ranks : {1, 2, 3})
    for (const auto& o : ranks_do(ranks, [&](headroom_comm*comm, int rank) -> std::string {
           if (headroom_comm_rank(comm) != rank || headroom_comm_ranks(comm) != ranks) return "who it is";
           const std::int64_t n = 70'001;
           for (int root = 0; root < ranks; ++root) {
             std::vector<std::int32_t> v(std::size_t(n), rank * 10 + 1);
             need(headroom_comm_broadcast(comm, v.data(), n, HEADROOM_I32, root));
             if (v != std::vector<std::int32_t>(std::size_t(n), root * 10 + 1)) return "broadcast";
           }
           std::vector<float> whole(std::size_t(n * ranks), NAN), mine(whole.size());
           const std::vector<float> part(std::size_t(n), float(rank) + 0.5f);
           need(headroom_comm_all_gather(comm, part.data(), whole.data(), n, HEADROOM_F32));
           for (std::size_t i = 0; i < whole.size(); ++i)
             if (whole[i] != float(i / std::size_t(n)) + 0.5f) return "all_gather";
           for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = float(rank * 100) + float(i / std::size_t(n));
           need(headroom_comm_exchange(comm, mine.data(), whole.data(), n, HEADROOM_F32));
           for (std::size_t i = 0; i < whole.size(); ++i)
             if (whole[i] != float(i / std::size_t(n)) * 100 + float(rank)) return "exchange";
           need(headroom_comm_barrier(comm));
           return "";
         })) {
      EXPECT_EQ(o.said, "") << ranks;
    }
}

TEST(Comm, WhatDiffersIsSaidOnEveryRankAndTheyGoOn) {
  for (const auto& o : ranks_do(3, [](headroom_comm*comm, int rank) {
         float x[8] = {};
         std::string all;
         const auto hear = [&](headroom_status s) {
           all += s == HEADROOM_BAD_ARGUMENT ? std::string(headroom_last_error()) + "|" : "no error|";
         };
         hear(rank == 1 ? headroom_comm_barrier(comm) : headroom_comm_all_reduce(comm, x, 8, HEADROOM_F32, HEADROOM_SUM));
         hear(headroom_comm_all_reduce(comm, x, rank == 2 ? 7 : 8, HEADROOM_F32, HEADROOM_SUM));
         hear(headroom_comm_all_reduce(comm, x, 8, rank == 2 ? HEADROOM_BF16 : HEADROOM_F32, HEADROOM_SUM));
         hear(headroom_comm_all_reduce(comm, x, 8, HEADROOM_F32, rank == 1 ? HEADROOM_MEAN : HEADROOM_SUM));
         hear(headroom_comm_broadcast(comm, x, 8, HEADROOM_F32, rank == 1));
         x[3] = 1;
         need(headroom_comm_all_reduce(comm, x, 8, HEADROOM_F32, HEADROOM_SUM));
         return all + std::to_string(int(x[3]));
       })) {
    EXPECT_EQ(o.said,
              "ranks ask for different calls: rank 0 for all_reduce of 8 fp32, sum, rank 1 for barrier|"
              "ranks ask for different calls: rank 0 for all_reduce of 8 fp32, sum, rank 2 for all_reduce of 7 fp32, sum|"
              "ranks ask for different calls: rank 0 for all_reduce of 8 fp32, sum, rank 2 for all_reduce of 8 bf16, sum|"
              "ranks ask for different calls: rank 0 for all_reduce of 8 fp32, sum, rank 1 for all_reduce of 8 fp32, mean|"
              "ranks ask for different calls: rank 0 for broadcast of 8 fp32 from rank 0, rank 1 for broadcast of 8 fp32 from rank 1|3");
    EXPECT_EQ(o.code, 0);
  }
}

TEST(Comm, WhatACallCarriesIsComparedOnce) {
  const std::string far = std::string(100, 'x') + " of layer ";
  for (const auto& o : ranks_do(2, [&](headroom_comm*comm, int rank) {
         float x[8] = {};
         std::string all;
         for (const std::string& what : {std::string("up"), far + "3", rank ? far + "4" : far + "5", std::string()}) {
           need(headroom_comm_carries(comm, what.c_str()));
           const auto s = headroom_comm_all_reduce(comm, x, 8, HEADROOM_F32, HEADROOM_SUM);
           all += s == HEADROOM_OK ? "|" : std::string(headroom_last_error()) + "|";
         }
         if (rank) need(headroom_comm_carries(comm, "what a call of its own before this had"));
         if (headroom_comm_carries(comm, "") != HEADROOM_OK || headroom_comm_barrier(comm) != HEADROOM_OK) return std::string("barrier");
         return all;
       })) {
    const std::string cut = std::string(37, 'x') + " of layer ";
    EXPECT_EQ(o.said.substr(0, 2), "||");
    EXPECT_NE(o.said.find("rank 0 for all_reduce of 8 fp32, sum (" + cut.substr(1) + "5), rank 1 for all_reduce of 8 fp32, sum (" +
                          cut.substr(1) + "4)"),
              std::string::npos)
        << o.said;
    EXPECT_EQ(o.said.substr(o.said.size() - 2), "||");
  }
}

TEST(Comm, ADeadRankEndsTheOthersCalls) {
  for (const int dead : {0, 1, 2}) {
    const auto all = ranks_do(3, [&](headroom_comm* comm, int rank) {
      float x = 1;
      need(headroom_comm_all_reduce(comm, &x, 1, HEADROOM_F32, HEADROOM_SUM));
      if (rank == dead) ::raise(SIGKILL);
      const auto s = headroom_comm_all_reduce(comm, &x, 1, HEADROOM_F32, HEADROOM_SUM);
      const std::string first = s == HEADROOM_OK ? "no error" : headroom_last_error();
      headroom_comm_barrier(comm);
      return first + "|" + headroom_last_error();
    });
    for (int r = 0; r < 3; ++r) {
      const Outcome& o = all[std::size_t(r)];
      if (r == dead) continue;
      EXPECT_LT(o.seconds, 10) << dead;
      EXPECT_NE(o.said.find(fmt::format("rank {} ended: ", dead)), std::string::npos) << o.said;
      EXPECT_NE(o.said.find("|barrier: the ranks have ended: "), std::string::npos) << o.said;
    }
  }
}

TEST(Comm, WhoLeavesEarlyFailsOrIsRefusedIsNamed) {
  const auto left = ranks_do(2, [](headroom_comm* comm, int rank) -> std::string {
    if (rank == 1) return "left";
    float x = 1;
    if (headroom_comm_all_reduce(comm, &x, 1, HEADROOM_F32, HEADROOM_SUM) == HEADROOM_OK) return "no error";
    std::string said = headroom_last_error();
    headroom_comm_all_reduce(comm, &x, 1, HEADROOM_F32, HEADROOM_SUM);
    return said + "|" + headroom_last_error();
  });
  EXPECT_NE(left[0].said.find("rank 1 for leave|"), std::string::npos) << left[0].said;
  EXPECT_NE(left[0].said.find("rank 1 has left"), std::string::npos) << left[0].said;
  const auto failed = ranks_do(2, [](headroom_comm* comm, int rank) -> std::string {
    float x = 1;
    if (rank == 1) headroom_comm_end(comm, "the data are gone");
    return headroom_comm_all_reduce(comm, &x, 1, HEADROOM_F32, HEADROOM_SUM) == HEADROOM_OK ? "no error" : headroom_last_error();
  });
  for (const auto& o : failed) EXPECT_NE(o.said.find("the data are gone"), std::string::npos) << o.said;
  const auto refused = ranks_do(2, [](headroom_comm* comm, int rank) -> std::string {
    float x = 1;
    return headroom_comm_all_reduce(comm, rank ? nullptr : &x, 1, HEADROOM_F32, HEADROOM_SUM) == HEADROOM_OK ? "no error"
                                                                                                             : headroom_last_error();
  });
  for (const auto& o : refused) EXPECT_NE(o.said.find("data is NULL"), std::string::npos) << o.said;
}

TEST(Comm, TwoThreadsAtOnceAreRefusedOnEveryRank) {
  for (const auto& o : ranks_do(2, [](headroom_comm*comm, int rank) -> std::string {
         // Every thread calls until it is refused: on a busy machine the second one may begin after several calls of the first.
         const auto until_refused = [&]() -> std::string {
           std::vector<float> own(1 << 20);
           for (int i = 0; i < 1000; ++i)
             if (headroom_comm_all_reduce(comm, own.data(), 1 << 20, HEADROOM_F32, HEADROOM_SUM) != HEADROOM_OK)
               return headroom_last_error();
           return "no error";
         };
         if (rank == 1) return until_refused();
         std::vector<std::string> said(2);
         std::vector<std::thread> threads;
         for (int t = 0; t < 2; ++t) threads.emplace_back([&, t] { said[std::size_t(t)] = until_refused(); });
         for (auto& t : threads) t.join();
         return said[0] + said[1];
       })) {
    EXPECT_NE(o.said.find("calls are made by one thread at a time"), std::string::npos) << o.said;
    EXPECT_LT(o.seconds, 10);
  }
}

TEST(Comm, ARankThatDoesNotComeIsWaitedForInVain) {
  const auto all = ranks_do(
      2,
      [](headroom_comm* comm, int rank) -> std::string {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
        return headroom_comm_barrier(comm) == HEADROOM_OK ? "no error" : headroom_last_error();
      },
      300);
  EXPECT_NE(all[0].said.find("waited 0.3 s for the others"), std::string::npos) << all[0].said;
  EXPECT_NE(all[1].said.find("waited 0.3 s for the others"), std::string::npos) << all[1].said;
}

TEST(Comm, LaunchersAreUnderstood) {
  const std::string run = fmt::format("capi-{}", getpid());
  for (const auto& o : as_processes(2, [&](int rank) -> std::string {
         const std::pair<const char*, std::string> variables[] = {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"},
                                                                  {"LOCAL_WORLD_SIZE", "2"},      {"MASTER_ADDR", "localhost"},
                                                                  {"MASTER_PORT", "29500"},       {"TORCHELASTIC_RUN_ID", run}};
         for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
         headroom_comm_settings s = HEADROOM_COMM_SETTINGS_INIT;
         headroom_comm* comm = nullptr;
         need(headroom_comm_create(&s, &comm));
         float x = float(rank + 1);
         need(headroom_comm_all_reduce(comm, &x, 1, HEADROOM_F32, HEADROOM_SUM));
         headroom_comm_destroy(comm);
         return x == 3 ? "" : "wrong";
       }))
    EXPECT_EQ(o.said, "");
}

TEST(Comm, SettingsThatMakeNoRankAreRefused) {
  headroom_comm* comm = nullptr;
  EXPECT_EQ(headroom_comm_create(nullptr, &comm), HEADROOM_BAD_ARGUMENT);
  headroom_comm_settings s = HEADROOM_COMM_SETTINGS_INIT;
  s.ranks = 2;
  EXPECT_EQ(headroom_comm_create(&s, &comm), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(headroom_last_error(),
               "ranks is 2, and no launcher started them: say rank and rendezvous too, or start the program with torchrun or mpirun");
  s.rank = 2;
  s.rendezvous = "local:nowhere";
  EXPECT_EQ(headroom_comm_create(&s, &comm), HEADROOM_BAD_ARGUMENT);
  s = HEADROOM_COMM_SETTINGS_INIT;
  s.ranks = -2;
  EXPECT_EQ(headroom_comm_create(&s, &comm), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(headroom_comm_barrier(nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_comm_carries(nullptr, ""), HEADROOM_BAD_ARGUMENT);
  headroom_comm_destroy(nullptr);
  headroom_comm_end(nullptr, nullptr);
  EXPECT_EQ(headroom_comm_rank(nullptr), 0);
}

}  // namespace headroom::capi
