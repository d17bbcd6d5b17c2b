// Collectives that only move bytes: right values for any number of ranks, sums in rank order to the bit, and an end that is heard.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "dist/dry.h"
#include "dist/threads.h"

namespace headroom::dist {
namespace {

Tensor view(std::vector<float>& x) { return {x.data(), DType::f32, {std::int64_t(x.size())}}; }

std::vector<float> partial(int which, std::size_t n) {  // a micro-batch's gradient
  std::vector<float> g(n);
  const Random random{std::uint64_t(which) + 1};
  for (std::size_t i = 0; i < n; ++i) g[i] = random.normal(i);
  return g;
}

TEST(Comm, AnAllReduceOfExchangeSumAndGatherHasTheBitsOfOneRankWithAsManyMicroBatches) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::size_t n = 12 * 1000;
    std::vector<float> alone = partial(0, n);
    for (int k = 1; k < ranks; ++k) {
      const auto g = partial(k, n);
      for (std::size_t i = 0; i < n; ++i) alone[i] += g[i];
    }
    std::vector<std::vector<float>> whole{std::size_t(ranks), std::vector<float>(n)};
    as_threads(ranks, [&](Comm& comm) {
      auto mine = partial(comm.rank(), n);
      std::vector<float> parts(n), shard(n / std::size_t(ranks));
      comm.exchange(view(mine), view(parts), nullptr);
      for (std::size_t i = 0; i < shard.size(); ++i) {
        shard[i] = parts[i];
        for (int k = 1; k < ranks; ++k) shard[i] += parts[std::size_t(k) * shard.size() + i];
      }
      comm.gather(view(shard), view(whole[std::size_t(comm.rank())]), nullptr);
    });
    for (const auto& w : whole) EXPECT_EQ(std::memcmp(w.data(), alone.data(), n * sizeof(float)), 0) << ranks << " ranks";
  }
}

TEST(Comm, GatherInPlaceBroadcastFromEveryRootAndEmptyShards) {
  as_threads(3, [](Comm& comm) {
    std::vector<float> whole(9, -1);
    for (int i = 0; i < 3; ++i) whole[std::size_t(3 * comm.rank() + i)] = float(10 * comm.rank() + i);
    comm.gather({whole.data() + 3 * comm.rank(), DType::f32, {3}}, view(whole), nullptr);
    for (int i = 0; i < 9; ++i) EXPECT_EQ(whole[std::size_t(i)], float(10 * (i / 3) + i % 3));
    for (int root = 0; root < 3; ++root) {
      std::vector<float> x(5, float(comm.rank()));
      comm.broadcast(view(x), root, nullptr);
      for (const float v : x) EXPECT_EQ(v, float(root));
    }
    const Tensor nothing(nullptr, DType::bf16, {0});
    comm.exchange(nothing, nothing, nullptr);
    comm.gather(nothing, nothing, nullptr);
    comm.broadcast(nothing, 1, nullptr);
    comm.barrier(nullptr);
  });
}

std::string failure(const auto& body) {
  try {
    body();
  } catch (const Error& e) { return e.what(); }
  return "";
}

TEST(Comm, ARankThatEndsIsNamedWithItsReasonInEveryCall) {
  for (const Call call : {Call::exchange, Call::gather, Call::broadcast, Call::barrier}) {
    std::string heard[3];
    EXPECT_THROW(as_threads(3,
                            [&](Comm& comm) {
                              if (comm.rank() == 2) throw Error(Code::out_of_memory, "no place for block 3 attention.qkv");
                              std::vector<float> x(3), y(3), z(1);
                              heard[comm.rank()] = failure([&] {
                                if (call == Call::exchange) comm.exchange(view(x), view(y), nullptr);
                                if (call == Call::gather) comm.gather(view(z), view(x), nullptr);
                                if (call == Call::broadcast) comm.broadcast(view(x), 0, nullptr);
                                if (call == Call::barrier) comm.barrier(nullptr);
                              });
                            }),
                 Error);
    for (const int r : {0, 1})
      EXPECT_EQ(heard[r], fmt::format("{}: rank 2 ended: no place for block 3 attention.qkv", names_of<Call>.of(call)));
  }
}

TEST(Comm, ARankThatDoesNotComeIsNamedWithinTheLimit) {
  std::string heard;
  as_threads(
      3,
      [&](Comm& comm) {
        if (comm.rank() == 0) heard = failure([&] { comm.barrier(nullptr); });
      },
      std::chrono::milliseconds(200));
  EXPECT_EQ(heard, "barrier: rank 0 waited 0.2 s, and rank 1 and 2 did not come");
}

TEST(Comm, RanksThatDisagreeAreToldWhere) {
  std::string heard[2];
  const auto both = [&](const auto& body) { as_threads(2, [&](Comm& comm) { heard[comm.rank()] = failure([&] { body(comm); }); }); };
  both([](Comm& comm) {
    std::vector<float> x(comm.rank() == 0 ? 4 : 6), y(x.size());
    comm.exchange(view(x), view(y), nullptr);
  });
  for (const auto& h : heard) EXPECT_EQ(h, "exchange: rank 0 brings 16 bytes, rank 1 brings 24");
  both([](Comm& comm) {
    std::vector<float> x(4);
    if (comm.rank() == 0) return comm.barrier(nullptr);
    comm.broadcast(view(x), 0, nullptr);
  });
  for (const auto& h : heard) EXPECT_EQ(h, "rank 0 calls barrier, rank 1 calls broadcast");
  both([](Comm& comm) {
    std::vector<float> x(4);
    comm.broadcast(view(x), comm.rank(), nullptr);
  });
  for (const auto& h : heard) EXPECT_EQ(h, "broadcast: rank 0 names rank 0 as the root, rank 1 names 1");
}

TEST(Comm, WhatCannotBeMeantIsRefusedWithItsName) {
  DryComm comm(1, 3);
  std::vector<float> x(12);
  const auto part = [&](std::size_t from, std::int64_t n) { return Tensor(x.data() + from, DType::f32, {n}); };
  comm.carries({"gradients", 2});
  EXPECT_EQ(failure([&] { comm.exchange(part(0, 4), part(4, 4), nullptr); }),
            "exchange of block 2 gradients: 4 values do not divide into 3 parts");
  EXPECT_EQ(failure([&] { comm.exchange(part(0, 6), part(3, 6), nullptr); }),
            "exchange of block 2 gradients: what is sent and what is received overlap");
  EXPECT_EQ(failure([&] { comm.exchange(part(0, 3), part(6, 6), nullptr); }),
            "exchange of block 2 gradients: sends 3 of fp32 and receives 6 of fp32");
  EXPECT_EQ(failure([&] { comm.gather(part(0, 3), part(3, 6), nullptr); }),
            "gather of block 2 gradients: 3 parts of 3 of fp32 do not make 6 of fp32");
  EXPECT_EQ(failure([&] { comm.gather(part(0, 2), part(0, 6), nullptr); }),
            "gather of block 2 gradients: rank 1's part overlaps the whole, and is not at its place in it");
  EXPECT_EQ(failure([&] { comm.broadcast(part(0, 2), 3, nullptr); }), "broadcast of block 2 gradients: there is no rank 3 among 3");
  Tensor strided = part(0, 6);
  strided.stride[0] = 2;
  EXPECT_EQ(failure([&] { comm.broadcast(strided, 0, nullptr); }), "broadcast of block 2 gradients: the tensor must be contiguous");
  EXPECT_EQ(failure([&] { DryComm(3, 3); }), "rank 3 of 3: ranks are counted from 0");
  EXPECT_TRUE(comm.log().empty());
}

Tensor at(std::size_t offset, DType type, std::int64_t n) { return {reinterpret_cast<void*>(offset), type, {n}}; }

TEST(DryComm, CountsWhatARankSendsAndHowLong) {
  std::size_t steps = 7;
  DryComm comm(1, 4, 100e9, [&] { return steps; });
  comm.carries({"gradients", 0});
  comm.exchange(at(0, DType::f32, 4000), at(16000, DType::f32, 4000), nullptr);
  comm.carries("weights");
  steps = 9;
  comm.gather(at(16000, DType::bf16, 1000), at(0, DType::bf16, 4000), nullptr);
  comm.broadcast(at(0, DType::f32, 100), 2, nullptr);
  comm.barrier(nullptr);
  ASSERT_EQ(comm.log().size(), 4u);
  EXPECT_EQ(comm.log()[0].link_bytes, 12000);
  EXPECT_EQ(comm.log()[1].link_bytes, 6000);
  EXPECT_EQ(comm.log()[2].link_bytes, 400);
  EXPECT_EQ(comm.link_bytes(), 18400);
  EXPECT_DOUBLE_EQ(comm.link_ms(), 18400 / 100e9 * 1e3);
  EXPECT_EQ(comm.log()[0].step, 7u);
  EXPECT_EQ(comm.log()[1].step, 9u);
  EXPECT_EQ(in_words(comm.log()[0]), "exchange of block 0 gradients, 16000 bytes of fp32 from 0 to 16000");
}

TEST(DryComm, LayoutsOfTwoRanksDifferFirstWhereTheirCallsDo) {
  const auto log_of = [](int rank, std::size_t shifted) {
    DryComm comm(rank, 2);
    comm.exchange(at(0, DType::f32, 64), at(256, DType::f32, 64), nullptr);
    comm.gather(at(512 + std::size_t(rank) * 128, DType::f32, 32), at(512, DType::f32, 64), nullptr);  // in place: the same layout
    comm.gather(at(1024 + shifted, DType::f32, 32), at(2048, DType::f32, 64), nullptr);
    comm.barrier(nullptr);
    return comm.log();
  };
  EXPECT_EQ(hashes(log_of(0, 0)), hashes(log_of(1, 0)));
  EXPECT_EQ(log_of(0, 0), log_of(1, 0));
  const auto a = hashes(log_of(0, 0)), b = hashes(log_of(1, 256));
  ASSERT_EQ(a.size(), 4u);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  EXPECT_NE(a[3], b[3]);
}

TEST(DryComm, ALaneHidesWhatIsDoneBeforeItIsWaitedFor) {
  std::size_t steps = 0;
  DryComm comm(0, 2, 1e6, [&] { return steps; });  // 1000 bytes of this rank's take 1 ms
  const auto gather = [&](std::int64_t bytes, void* stream) {
    comm.gather(at(0, DType::u8, bytes), at(1 << 20, DType::u8, 2 * bytes), stream);
  };
  const auto lane = comm.make_lane(2);
  EXPECT_NE(lane->stream(), nullptr);
  gather(1000, nullptr);  // 1 ms in line
  lane->follow(nullptr);
  gather(5000, lane->stream());  // 5 ms beside
  lane->mark(0);
  gather(2000, lane->stream());  // done at 8 ms
  lane->mark(1);
  steps = 3;  // 3 ms of work
  lane->wait(0, nullptr);
  steps = 5;  // 2 ms more: at 8 ms
  lane->wait(1, nullptr);
  const std::vector<double> ms(5, 1.0);
  EXPECT_DOUBLE_EQ(exposed_ms(comm.log(), comm.joints(), ms).link_ms, 1 + 2);
  EXPECT_DOUBLE_EQ(exposed_ms(comm.log(), comm.joints(), std::vector<double>(5, 10.0)).link_ms, 1);
  EXPECT_DOUBLE_EQ(exposed_ms(comm.log(), comm.joints(), std::vector<double>(5, 0.0)).link_ms, 8);
  EXPECT_DOUBLE_EQ(comm.link_ms(), 8);
}

}  // namespace
}  // namespace headroom::dist
