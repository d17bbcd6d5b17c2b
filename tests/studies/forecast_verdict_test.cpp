// The answer of a forecast, whether a program fits, and the sentences that say so.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "studies/forecast/forecast.h"
#include "studies/forecast/run.h"
#include "studies/forecast/verdict.h"
#include "tests/studies/recorded_program.h"

namespace headroom::studies {
namespace {

using ForecastVerdict = RecordedProgram;

std::string answered(Told& t, const ProcessStory& story) {
  t.row = ForecastRow{};
  t.row.memory_bytes = t.room.memory_bytes;
  t.row.device = t.device.name;
  fill(t, {story});
  t.row.fits = t.ranks[0].fits;
  t.row.status = *t.row.fits ? Status::ok : Status::oom;
  return verdict(t);
}

// Two free blocks of 12 MiB, one of them beside 20 free: which is taken decides whether 32 MiB are there in one piece (tests/dry/replay_test.cpp).
dry::ProgramRecord one_of_two_blocks(bool whole) {
  constexpr std::uint64_t mib = mebibyte, a = 1024 * mib, b = 2048 * mib;
  dry::ProgramRecord w;
  std::vector<dry::Request> all;
  const auto ask = [&](dry::RequestIs what, std::uint64_t at, std::uint64_t bytes) { all.push_back({at, bytes, std::uint32_t(what), 0}); };
  const auto take = [&](std::uint64_t at, std::uint64_t bytes) {
    ask(dry::RequestIs::taken, at, bytes);
    w.take(at, std::int64_t(bytes));
  };
  const auto segment = [&](std::uint64_t at, std::uint64_t bytes) {
    ask(dry::RequestIs::segment_taken, at, bytes);
    take(at, bytes);
  };
  const auto give = [&](std::uint64_t at) {
    ask(dry::RequestIs::unused, at, 0);
    ask(dry::RequestIs::given, at, 0);
    w.give(at);
  };
  w.mark("torch", "2.11.0", 1);
  segment(a, 12 * mib);
  w.reserve(44 * mib);
  segment(b, 32 * mib);
  give(b);
  take(b, 12 * mib);
  take(b + 12 * mib, 20 * mib);
  give(b);
  give(a);
  take(a, 12 * mib);
  give(b + 12 * mib);
  take(b, 32 * mib);
  w.requests(all, whole);
  return w;
}

TEST_F(ForecastVerdict, AddressesMakeTheAnswerAnInterval) {
  Told t;
  t.device = device_described("h100");
  const auto answer = [&](std::int64_t mib, bool whole = true) {
    t.room = room_of_program(t.device, std::nullopt, 1);
    t.room.memory_bytes = t.room.overhead_bytes + std::uint64_t(mib * mebibyte);
    return answered(t, story(one_of_two_blocks(whole)));
  };
  EXPECT_TRUE(answer(90).starts_with("Fits on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_EQ(t.row.needed_bytes, t.room.overhead_bytes + 44 * mebibyte);
  EXPECT_EQ(*t.row.high_bytes, t.room.overhead_bytes + 80 * mebibyte) << "76 MiB, and an eighth of the range";
  EXPECT_TRUE(answer(60).starts_with("May not fit on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_EQ(t.row.fits, false);
  EXPECT_TRUE(answer(30).starts_with("Does not fit on NVIDIA H100 SXM: it needs ")) << verdict(t);
  answer(90, false);  // requests are missing: what addresses decide is not known
  EXPECT_FALSE(t.row.high_bytes);
  EXPECT_NE(verdict(t).find("it needs at least "), std::string::npos) << verdict(t);
  ProcessStory guessing = story(one_of_two_blocks(true));  // a card may take more than the formula says
  guessing.functions.push_back({"cuDNN LSTM", workspace_by_a_formula, "train.py:3", 1});
  t.row.high_bytes = 1;
  fill(t, {guessing});
  EXPECT_FALSE(t.row.high_bytes);
  ProcessStory measured = story(one_of_two_blocks(true));  // or as much as a card took, give or take what is named
  measured.functions.push_back({"cuDNN LSTM", workspace_as_measured, "train.py:3", 1, std::uint64_t(6 * mebibyte)});
  for (ProgramAccount& a : measured.cards) a.unsure_bytes = std::uint64_t(6 * mebibyte);
  fill(t, {measured});
  EXPECT_EQ(*t.row.high_bytes, t.room.overhead_bytes + 86 * mebibyte);
}

TEST_F(ForecastVerdict, WhatAProgramLetsPyTorchReserveBoundsItsNeedIfItCatchesTheError) {
  Told t;
  t.device = device_described("h100");
  t.room = room_of_program(t.device, std::nullopt, 1);
  const auto answer = [&](bool caught, double mib = 60) {
    ProcessStory s = story(one_of_two_blocks(true));  // 44 MiB as it ran, 76 at other addresses
    ProgramAccount& a = s.cards[0];
    a.fraction = Fraction{mib * mebibyte / double(t.room.memory_bytes), "train.py:3"};
    t.ran_out.reset();
    if (caught) t.ran_out = a.ran_out = RanOut{.bytes = 1, .step = 1, .raised = true};
    t.went_on = caught;
    return answered(t, s);
  };
  EXPECT_TRUE(answer(true).starts_with("Fits on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_NEAR(double(*t.row.high_bytes), double(t.room.overhead_bytes + 60 * mebibyte), 1);
  EXPECT_TRUE(answer(false).starts_with("May not fit on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_NE(verdict(t).find("train.py:3 lets PyTorch reserve 60.0 MiB"), std::string::npos) << verdict(t);
  EXPECT_TRUE(answer(true, 43).starts_with("Fits on NVIDIA H100 SXM: it needs "))
      << verdict(t) << ": PyTorch reserved more than it was let";
}

TEST_F(ForecastVerdict, APoolNeedsWhatIsLiveAtLeast) {
  dry::ProgramRecord w;
  w.mark("torch", "2.11.0", 1);
  dry::Driver d{};
  d.used = 96 * std::uint64_t(mebibyte);
  w.add(d);
  w.add(dry::Pool{41 * std::uint64_t(mebibyte) + 4, 64 * std::uint64_t(mebibyte), 0, 0});
  Told t;
  t.device = device_described("h100");
  const auto answer = [&](std::int64_t mib) {
    t.room = room_of_program(t.device, std::nullopt, 1);
    t.room.memory_bytes = t.room.overhead_bytes + std::uint64_t(mib * mebibyte);
    return answered(t, story(w));
  };
  EXPECT_TRUE(answer(97).starts_with("Fits as far as is known on NVIDIA H100 SXM: ")) << verdict(t);
  EXPECT_EQ(t.row.peak_allocated_bytes, 41 * std::uint64_t(mebibyte) + 4);
  EXPECT_EQ(t.row.peak_reserved_bytes, 64 * std::uint64_t(mebibyte));
  EXPECT_EQ(t.row.needed_bytes, t.room.overhead_bytes + 96 * std::uint64_t(mebibyte)) << "with 32 MiB past the pool";
  EXPECT_EQ(t.row.low_bytes, t.room.overhead_bytes / 2 + 74 * std::uint64_t(mebibyte)) << "42 live, in pages; half of the reserve";
  EXPECT_FALSE(t.row.high_bytes);
  EXPECT_TRUE(answer(75).starts_with("May not fit on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_NE(verdict(t).find(" or more of "), std::string::npos) << verdict(t);
  EXPECT_TRUE(answer(73).starts_with("Does not fit on NVIDIA H100 SXM: it needs at least ")) << verdict(t);
}

TEST_F(ForecastVerdict, WhatLibrariesTakeIsBesideWhatTheProgramDoes) {
  constexpr std::uint64_t mib = mebibyte;
  dry::ProgramRecord w;
  const auto changes = [&](std::uint64_t address, std::int64_t bytes, std::uint64_t used) {
    w.add(dry::Driver{address, bytes, used, 0, 0, 0});
  };
  changes(0x1000, 20 * mebibyte, 20 * mib);
  changes(0, 64 * mebibyte, 84 * mib);
  changes(0x1000, -20 * mebibyte, 64 * mib);
  changes(0, 8 * mebibyte, 72 * mib);
  const ProgramAccount a = story(w).cards.at(0);
  EXPECT_EQ(a.peak_allocated_bytes, 20 * mib) << "a program without PyTorch";
  EXPECT_EQ(a.libraries_bytes, 72 * mib);
  EXPECT_EQ(a.elsewhere_bytes, 64 * mib) << "with the 20 it had 84, which is the most";
  Told t;
  t.device = device_described("h200");
  EXPECT_EQ(overhead_of(t, 1).beside.libraries_bytes, 0u) << "a dry run has counted them";
  t.row.source = "measured";
  EXPECT_EQ(overhead_of(t, 1).beside.libraries_bytes, pytorch_libraries_bytes) << "a real run does not tell them";
}

TEST_F(ForecastVerdict, EqualRanksAreInTheirOrder) {
  dry::ProgramRecord w;
  w.mark("torch", "2.15.0", 1);
  w.take(0x1000, 20 * std::int64_t(mebibyte));
  std::vector<ProcessStory> stories;
  for (const int rank : {3, 0, 2, 1}) {
    stories.push_back(story(w));
    stories.back().cards[0].rank = rank;
    stories.back().cards[0].peak_reserved_bytes += rank == 2 ? std::uint64_t(mebibyte) : 0;
  }
  Told t;
  t.device = device_described("h100");
  t.room = room_of_program(t.device, std::nullopt, 4);
  fill(t, stories);
  std::vector<std::int64_t> ranks;
  for (const ForecastRankRow& row : t.ranks) ranks.push_back(row.rank);
  EXPECT_EQ(ranks, (std::vector<std::int64_t>{2, 0, 1, 3}));
}

TEST_F(ForecastVerdict, ProcessesOnOneCardNeedTheirSum) {
  dry::ProgramRecord w;
  w.mark("torch", "2.11.0", 1);
  dry::Driver d{};
  d.used = 20 * std::uint64_t(mebibyte);
  w.add(d);
  w.take(0x1000, 20 * std::int64_t(mebibyte));
  d.others = 600 * std::uint64_t(mebibyte);
  w.add(d);
  Told t;
  t.device = device_described("h100");
  t.room = room_of_program(t.device, std::nullopt, 1);
  t.row.memory_bytes = t.room.memory_bytes;
  t.row.status = Status::ok;
  ProcessStory alone = story(w);
  alone.cards[0].others_bytes = 0;
  alone.cards[0].pid = 7;
  fill(t, {alone, story(w)});
  EXPECT_EQ(t.row.needed_bytes, t.room.overhead_bytes + 620 * std::uint64_t(mebibyte));
  EXPECT_EQ(t.row.ranks, 1);
  EXPECT_NE(verdict(t).find("its processes together need"), std::string::npos) << verdict(t);
  fill(t, {alone, alone});
  EXPECT_EQ(t.row.needed_bytes, t.room.overhead_bytes + t.row.peak_reserved_bytes);
}

TEST(ForecastSentence, TheReasonOfAFailureIsARanksOwnErrorAndNotItsLaunchers) {
  DryRun run;
  run.tail =
      "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: too few\nE1127 api.py:984] failed (exitcode: 1)\n"
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n";
  EXPECT_EQ(run.last_line(), "ValueError: too few");
  EXPECT_TRUE(run.shows_exception());
  run.tail = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\n";
  EXPECT_EQ(run.last_line(), "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED");
  run.tail = "ImportError: \nIt requires the SciPy library, which was not found.\nPlease note that\n";
  EXPECT_EQ(run.last_line(), "ImportError: It requires the SciPy library, which was not found.");
  run.tail = "[rank0]: KeyboardInterrupt\n[ranks]: none\n";
  EXPECT_EQ(run.last_line(), "KeyboardInterrupt");
}

TEST(ForecastSentence, APlaceBeforeTheFirstStepHasNoStep) {
  EXPECT_EQ(where({.step = 1, .phase = "before the first step", .line = "train.py:5"}), "before the first step, train.py:5");
  EXPECT_EQ(where({.step = 3, .phase = "before the first step", .line = "train.py:5"}), "in step 3, train.py:5");
  EXPECT_EQ(where({.step = 2, .phase = "forward", .own_line = "train.py:9"}), "in step 2, forward, train.py:9");
  EXPECT_EQ(where({.step = 2}), "in step 2");
}

}  // namespace
}  // namespace headroom::studies
