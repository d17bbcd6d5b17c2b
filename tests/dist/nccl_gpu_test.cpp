// Two GPUs, a process each, over NCCL: right values by every route, recorded into graphs and replayed a thousand times, and an end that is heard.
// The test's own process never touches CUDA: those that it forks do.
#include "dist/nccl.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "gpu/buffer.h"
#include "gpu/device.h"
#include "gpu/stream.h"
#include "tests/dist/processes.h"

namespace headroom::dist {
namespace {

std::vector<Outcome> on_two_cards(const std::function<std::string(Rendezvous&, int)>& body) {
  const Address at = fresh_address();
  return as_processes(2, [&](int rank) -> std::string {
    const int cards = cuda_device_count();
    if (cards < 2) return fmt::format("skip: this machine has {} GPUs, and two are needed", cards);
    Rendezvous r(coming(rank, 2, at));
    std::string said;
    try {
      said = body(r, rank);
    } catch (const Error& e) {
      r.end(e.what());
      throw;
    }
    if (!r.ended()) r.leave();
    return said;
  });
}

#define SKIP_WITHOUT_TWO_CARDS(all) \
  if ((all)[0].said.starts_with("skip: ")) GTEST_SKIP() << (all)[0].said.substr(6)

std::vector<std::uint32_t> words(int rank, std::size_t n) {
  std::vector<std::uint32_t> w(n);
  const Random random{std::uint64_t(rank) + 11};
  for (std::size_t i = 0; i < n; ++i) w[i] = std::uint32_t(random.bits(i));
  return w;
}

struct OnCard {  // a piece of the memory that ranks took together
  char* at;
  std::size_t n;
  const Stream& stream;
  Tensor tensor() const { return {at, DType::u32, {std::int64_t(n)}}; }
  Tensor part(int i, int ranks) const { return {at + std::size_t(i) * n / std::size_t(ranks) * 4, DType::u32, {std::int64_t(n) / ranks}}; }
  void set(const std::vector<std::uint32_t>& w) const { copy_to_device(at, w.data(), n * 4, stream), stream.wait(); }
  std::vector<std::uint32_t> get() const {
    std::vector<std::uint32_t> w(n);
    copy_to_host(w.data(), at, n * 4, stream);
    stream.wait();
    return w;
  }
};

std::vector<std::uint32_t> exchanged(int rank, std::size_t n) {
  std::vector<std::uint32_t> out;
  for (int from = 0; from < 2; ++from) {
    const auto w = words(from, n);
    out.insert(out.end(), w.begin() + std::ptrdiff_t(std::size_t(rank) * n / 2),
               w.begin() + std::ptrdiff_t((std::size_t(rank) + 1) * n / 2));
  }
  return out;
}

std::vector<std::uint32_t> gathered(std::size_t n) {  // part r of rank r's words
  auto out = words(0, n);
  const auto other = words(1, n);
  std::copy(other.begin() + std::ptrdiff_t(n / 2), other.end(), out.begin() + std::ptrdiff_t(n / 2));
  return out;
}

void say_routes(const std::string& said) { std::printf("[ routes   ] %s\n", said.c_str()); }

TEST(NcclComm, MovesEveryWordByEveryRoute) {
  for (const Route route : {Route::kernels, Route::automatic, Route::copy_engines}) {
    const auto all = on_two_cards([&](Rendezvous& r, int rank) -> std::string {
      const Stream stream(rank);
      const auto comm = make_nccl_comm(r, rank, route);
      constexpr std::size_t most = std::size_t(48) << 20;  // words: past the size at which gathers change their route
      const auto memory = comm->take(2 * most * 4);
      std::string wrong;
      const auto lane = comm->make_lane(1);
      for (const std::size_t n : {std::size_t(2), std::size_t(6), std::size_t(1000), std::size_t(3000), std::size_t(1) << 20, most - 2}) {
        const OnCard a{static_cast<char*>(memory.get()), n, stream}, b{static_cast<char*>(memory.get()) + most * 4, n, stream};
        const auto mine = words(rank, n);
        const auto same = [&](const char* what, const std::vector<std::uint32_t>& got, const std::vector<std::uint32_t>& expected) {
          if (got != expected && wrong.empty()) wrong = fmt::format("{} of {} words is wrong", what, n);
        };
        a.set(mine);
        comm->exchange(a.tensor(), b.tensor(), stream.raw());
        same("exchange", b.get(), exchanged(rank, n));
        comm->gather(a.part(rank, 2), b.tensor(), stream.raw());
        same("gather", b.get(), gathered(n));
        comm->gather(a.part(rank, 2), a.tensor(), stream.raw());
        same("gather in place", a.get(), gathered(n));
        const auto beside = [&](const auto& call) {  // where copies carry smaller calls too
          lane->follow(stream.raw()), call(lane->stream()), lane->mark(0), lane->wait(0, stream.raw());
        };
        a.set(mine), b.set(std::vector<std::uint32_t>(n, 7));
        beside([&](void* s) { comm->exchange(a.tensor(), b.tensor(), s); });
        same("exchange beside", b.get(), exchanged(rank, n));
        beside([&](void* s) { comm->gather(a.part(rank, 2), b.tensor(), s); });
        same("gather beside", b.get(), gathered(n));
        beside([&](void* s) { comm->gather(a.part(rank, 2), a.tensor(), s); });
        same("gather in place beside", a.get(), gathered(n));
        for (int root = 0; root < 2; ++root) {
          a.set(mine);
          comm->broadcast(a.tensor(), root, stream.raw());
          same("broadcast", a.get(), words(root, n));
        }
        comm->barrier(stream.raw());
        stream.wait();
      }
      return wrong.empty() ? fmt::format("right; {}: exchange by {}, gather by {}, NCCL's own {} MB", names_of<Route>.of(route),
                                         comm->route(Call::exchange), comm->route(Call::gather), comm->own_bytes() / 1000000)
                           : wrong;
    });
    SKIP_WITHOUT_TWO_CARDS(all);
    if (route == Route::copy_engines && all[0].said.find("copy engines:") != std::string::npos) {
      say_routes(all[0].said);  // an NCCL, or a link, that cannot: refused, not silently something else
      continue;
    }
    for (const auto& o : all) EXPECT_TRUE(o.said.starts_with("right")) << o.said;
    say_routes(all[0].said);
  }
}

// Three exchanges a replay, each turning the parts about and back: after an even number every word is home, after an odd one exchanged. A call that
// reads what the one before left is seen. The gather is on a lane, a second branch of the graph.
TEST(NcclComm, AThousandReplaysOfAnOddNumberOfCallsInAGraph) {
  for (const Route route : {Route::kernels, Route::automatic, Route::copy_engines})
    for (const std::size_t n : {std::size_t(1) << 12, std::size_t(1) << 20, std::size_t(20) << 20}) {
      const auto all = on_two_cards([&](Rendezvous& r, int rank) -> std::string {
        const Stream stream(rank);
        const auto comm = make_nccl_comm(r, rank, route);
        const auto memory = comm->take(3 * n * 4);
        char* const at = static_cast<char*>(memory.get());
        const OnCard a{at, n, stream}, b{at + n * 4, n, stream}, c{at + 2 * n * 4, n, stream};
        a.set(words(rank, n));
        const auto lane = comm->make_lane(1);
        const Graph graph(stream, [&] {
          lane->follow(stream.raw());
          comm->gather(a.part(rank, 2), c.tensor(), lane->stream());
          lane->mark(0);
          lane->wait(0, stream.raw());
          for (int k = 0; k < 3; ++k) {
            comm->exchange(a.tensor(), b.tensor(), stream.raw());
            copy_on_device(a.at, b.at, n * 4, stream);
          }
        });
        const auto home = words(rank, n), away = exchanged(rank, n);
        for (int k = 1; k <= 1001; ++k) {
          graph.launch(stream);
          if (k != 1 && k != 2 && k != 999 && k < 1000) continue;
          if (a.get() != (k % 2 == 0 ? home : away)) return fmt::format("wrong after {} replays", k);
        }
        // The gather of the last replay, the 1001st, saw every word at home.
        if (c.get() != gathered(n)) return "the gather beside is wrong";
        comm->check_alive();
        return "right";
      });
      SKIP_WITHOUT_TWO_CARDS(all);
      if (route == Route::copy_engines && all[0].said.find("copy engines:") != std::string::npos) continue;
      for (const auto& o : all) EXPECT_EQ(o.said, "right") << names_of<Route>.of(route) << ", " << n << " words";
    }
}

TEST(NcclComm, AKilledRankEndsWhatWaitsOnTheCard) {
  for (const int killed : {0, 1}) {
    const auto all = on_two_cards([&](Rendezvous& r, int rank) -> std::string {
      const Stream stream(rank);
      const auto comm = make_nccl_comm(r, rank);
      const auto memory = comm->take(1 << 20);
      const OnCard a{static_cast<char*>(memory.get()), 1 << 10, stream}, b{static_cast<char*>(memory.get()) + (1 << 19), 1 << 10, stream};
      for (int k = 0; k < 200; ++k) {
        if (rank == killed && k == 100) ::raise(SIGKILL);
        comm->exchange(a.tensor(), b.tensor(), stream.raw());
        try {
          stream.wait();
        } catch (const Error&) { comm->check_alive(); }
        comm->check_alive();
      }
      return "went on";
    });
    SKIP_WITHOUT_TWO_CARDS(all);
    const auto& left = all[std::size_t(1 - killed)];
    EXPECT_NE(left.said.find(fmt::format("rank {} ended", killed)), std::string::npos) << left.said;
    EXPECT_LT(left.seconds, all[std::size_t(killed)].seconds + 10);
  }
}

TEST(NcclComm, EndsInEveryOrderOfTheRanks) {
  for (const int late : {0, 1}) {
    const auto all = on_two_cards([&](Rendezvous& r, int rank) -> std::string {
      const Stream stream(rank);
      {
        const auto comm = make_nccl_comm(r, rank);
        const auto memory = comm->take(1 << 20);
        const OnCard a{static_cast<char*>(memory.get()), 1 << 10, stream}, b{static_cast<char*>(memory.get()) + (1 << 19), 1 << 10, stream};
        {
          const Graph graph(stream, [&] { comm->exchange(a.tensor(), b.tensor(), stream.raw()); });
          graph.launch(stream);
          stream.wait();
        }
        if (rank == late) ::usleep(500000);
      }
      return "right";
    });
    SKIP_WITHOUT_TWO_CARDS(all);
    for (const auto& o : all) {
      EXPECT_EQ(o.said, "right");
      EXPECT_LT(o.seconds, 60);
    }
  }
}

}  // namespace
}  // namespace headroom::dist
