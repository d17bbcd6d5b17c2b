// What a forecast says of a record whose bytes are known, and how it reads its settings.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/device_names.h"
#include "base/error.h"
#include "gpu/architecture.h"
#include "report/render.h"
#include "studies/forecast/forecast.h"
#include "studies/forecast/run.h"
#include "studies/forecast/verdict.h"
#include "tests/studies/dry_record.h"

namespace headroom::studies {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t mebibyte = 1 << 20;

class ForecastAccount : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("headroom_forecast_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  ProcessStory story(const dry::ProgramRecord& w) const {
    const std::string file = (folder_ / "1.dry").string();
    w.save(file);
    return story_of(dry::Process(file));
  }
  fs::path folder_;
};

// Weights of 10 MiB; two steps: forward keeps 4 MiB and takes 3 MiB for a moment, backward makes 10 MiB of gradients while 2 MiB come and go,
// the first update makes 20 MiB of moments.
dry::ProgramRecord two_steps() {
  dry::ProgramRecord w;
  const auto model = w.stack({"/x/lib/python3.12/site-packages/torch/nn/linear.py:10", "/home/me/train.py:5"});
  const auto layer = w.stack({"/x/lib/python3.12/site-packages/torch/nn/functional.py:7",
                              "/x/lib/python3.12/site-packages/transformers/models/llama.py:77", "/home/me/train.py:20"});
  const auto update = w.stack({"/x/lib/python3.12/site-packages/torch/optim/adamw.py:90", "/home/me/train.py:22"});
  w.mark("scope", "model.layers.3.mlp", 7);
  w.take(1, 10 * mebibyte, model);
  for (int step = 1; step <= 2; ++step) {
    w.mark("phase", "forward", 0);
    w.take(2, 4 * mebibyte, layer, 7);
    w.take(3, 3 * mebibyte, layer, 7);
    w.give(3);
    w.mark("phase", "backward", 0);
    w.thread = 9;  // autograd's, which has no marks of its own
    w.take(4, 10 * mebibyte);
    w.take(5, 2 * mebibyte);
    w.give(5);
    w.give(2);
    w.thread = 1;
    w.mark("phase", "optimizer", 0);
    if (step == 1) w.take(6, 20 * mebibyte, update);
    w.mark("phase", "", 0);
    w.mark("step", "", step);
    w.give(4);
  }
  return w;
}

TEST_F(ForecastAccount, PeaksStepsAndPhasesAreThoseOfTheAllocator) {
  const ProcessStory s = story(two_steps());
  ASSERT_EQ(s.cards.size(), 1u);
  const ProgramAccount& a = s.cards[0];
  EXPECT_EQ(a.peak_allocated_bytes, std::uint64_t(46 * mebibyte)) << "weights, moments, saved, gradients, a temporary";
  EXPECT_EQ(a.peak_reserved_bytes, std::uint64_t(46 * mebibyte));
  EXPECT_EQ(a.peak_step, 2);
  EXPECT_EQ(a.peak_phase, "backward");
  ASSERT_EQ(a.steps.size(), 2u);
  EXPECT_EQ(a.steps[0].peak_allocated_bytes, std::uint64_t(40 * mebibyte));
  EXPECT_EQ(a.steps[1].peak_allocated_bytes, std::uint64_t(46 * mebibyte));
  std::map<std::string, ForecastPhaseRow> phases;
  for (const auto& p : a.phases) phases[p.phase] = p;
  EXPECT_EQ(phases["forward"].count, 2);
  EXPECT_EQ(phases["forward"].peak_allocated_bytes, std::uint64_t(37 * mebibyte));
  EXPECT_EQ(phases["backward"].peak_allocated_bytes, std::uint64_t(46 * mebibyte));
  EXPECT_EQ(phases["optimizer"].count, 2) << "the second allocated nothing";
  EXPECT_EQ(phases["optimizer"].peak_allocated_bytes, std::uint64_t(40 * mebibyte));
}

// As on a real card, where Python's frames are not read.
TEST_F(ForecastAccount, WhereForwardIsNotSaidTheFirstOneIsBeforeTheFirstBackwardPass) {
  dry::ProgramRecord w;
  w.mark("torch", "2.11", 1);
  w.take(1, 10 * mebibyte);
  for (int step = 1; step <= 2; ++step) {
    w.take(2, 4 * mebibyte);
    w.mark("phase", "backward", 0);
    w.take(3, 2 * mebibyte);
    w.give(2);
    w.give(3);
    w.mark("phase", "", 0);
    w.mark("step", "", step);
  }
  std::map<std::string, std::uint64_t> peaks;
  const ProcessStory s = story(w);
  for (const auto& p : s.cards.at(0).phases) peaks[p.phase] = p.peak_allocated_bytes;
  const std::map<std::string, std::uint64_t> expected{{"before the first backward pass", std::uint64_t(14 * mebibyte)},
                                                      {"forward", std::uint64_t(14 * mebibyte)},
                                                      {"backward", std::uint64_t(16 * mebibyte)}};
  EXPECT_EQ(peaks, expected);
}

TEST_F(ForecastAccount, EveryByteOfThePeakIsNamed) {
  const ProgramAccount a = story(two_steps()).cards.at(0);
  std::map<std::string, std::uint64_t> by_what;
  std::uint64_t sum = 0;
  for (const auto& row : a.at_peak) {
    by_what[row.what] += row.bytes;
    sum += row.bytes;
  }
  EXPECT_EQ(sum, a.peak_allocated_bytes);
  EXPECT_EQ(by_what["optimizer state"], std::uint64_t(20 * mebibyte));
  EXPECT_EQ(by_what["weights, and what else was made before the first step"], std::uint64_t(10 * mebibyte));
  EXPECT_EQ(by_what["gradients"], std::uint64_t(10 * mebibyte));
  EXPECT_EQ(by_what["saved for backward"], std::uint64_t(4 * mebibyte));
  EXPECT_EQ(by_what["temporaries of backward"], std::uint64_t(2 * mebibyte));
  ASSERT_EQ(a.saved.size(), 1u);
  EXPECT_EQ(a.saved[0].bytes, std::uint64_t(4 * mebibyte)) << "what lasted for a moment is not saved";
  EXPECT_EQ(a.saved[0].line, "transformers/models/llama.py:77") << "the innermost line that is not PyTorch's";
  EXPECT_EQ(a.saved[0].module, "model.layers.*.mlp");
  EXPECT_EQ(a.saved_bytes, std::uint64_t(4 * mebibyte));
}

// cuBLAS gets one of each thread, which PyTorch allocates at the thread's first product: that of autograd's thread in a backward pass.
TEST_F(ForecastAccount, AWorkspaceIsNoGradientAndNotSaved) {
  dry::ProgramRecord w;
  w.mark("torch", "2.11", 1);
  w.take(1, 10 * mebibyte);
  w.mark("phase", "forward", 0);
  w.take(2, 32 * mebibyte);
  w.mark("workspace", "", 2);
  w.take(3, 4 * mebibyte);
  w.mark("phase", "backward", 0);
  w.take(4, 32 * mebibyte);
  w.mark("workspace", "", 4);
  w.give(3);
  w.take(5, 10 * mebibyte);
  w.mark("phase", "optimizer", 0);
  w.take(6, mebibyte);
  w.mark("phase", "", 0);
  w.mark("step", "", 1);
  const ProgramAccount a = story(w).cards.at(0);
  std::map<std::string, std::uint64_t> by_what;
  for (const auto& row : a.at_peak) by_what[row.what] += row.bytes;
  EXPECT_EQ(by_what["workspaces of cuBLAS"], std::uint64_t(64 * mebibyte));
  EXPECT_EQ(by_what["gradients"], std::uint64_t(10 * mebibyte));
  EXPECT_EQ(a.saved_bytes, std::uint64_t(4 * mebibyte));
}

TEST_F(ForecastAccount, WhatIsNotKnownIsCountedByLine) {
  dry::ProgramRecord w = two_steps();
  const auto line = w.stack({"/x/lib/python3.12/site-packages/torch/_tensor.py:3", "/home/me/train.py:40"});
  for (int i = 0; i < 3; ++i) w.read(4, false, line);
  w.read(4, true, line);
  w.note(dry::Said::accepted, "cudaSomething");
  w.note(dry::Said::no_workspace, "cudnnConvolution", 0, line);
  const ProcessStory s = story(w);
  EXPECT_EQ(s.unknown_values(), 3);
  ASSERT_EQ(s.values.size(), 1u);
  EXPECT_EQ(s.values[0].line, "/home/me/train.py:40");
  ASSERT_EQ(s.functions.size(), 2u);
}

TEST_F(ForecastAccount, WhatALibrarySaysWithoutACardMayBeMoreAndIsBounded) {
  dry::ProgramRecord w = two_steps();
  w.note(dry::Said::by_library, "cuDNN convolutions", std::uint64_t(8 * mebibyte));
  const ProcessStory s = story(w);
  ASSERT_EQ(s.functions.size(), 1u);
  EXPECT_EQ(s.functions[0].what, workspace_by_the_library);
  EXPECT_EQ(s.functions[0].bytes, std::uint64_t(8 * mebibyte));
  EXPECT_FALSE(s.functions[0].may_take_more());
  EXPECT_EQ(s.cards.at(0).unsure_bytes, std::uint64_t(8 * mebibyte));
}

TEST_F(ForecastAccount, WhatAnotherVersionOfALibraryTakesIsBoundedToo) {
  dry::ProgramRecord w = two_steps();
  w.note(dry::Said::by_another_version, "cuDNN convolutions", std::uint64_t(2 * mebibyte));
  const ProcessStory s = story(w);
  ASSERT_EQ(s.functions.size(), 1u);
  EXPECT_EQ(s.functions[0].what, workspace_of_another_version);
  EXPECT_FALSE(s.functions[0].may_take_more());
  EXPECT_EQ(s.cards.at(0).unsure_bytes, std::uint64_t(2 * mebibyte));
}

// A convolution of 1 x 1 has a workspace here, and on a card perhaps none: "does not fit" must not follow from it.
TEST_F(ForecastAccount, AWorkspaceThatACardMayNotNeedIsNotInTheLowerEnd) {
  constexpr std::uint64_t mib = 1 << 20, a = 1024 * mib, b = 2048 * mib;
  dry::ProgramRecord w;
  w.mark("torch", "2.11.0", 1);
  w.take(a, 12 * mib);
  w.take(b, 30 * mib);
  w.mark("workspace on a card", fmt::format("0 {}", 30 * mib), std::int64_t(b));
  w.give(b);
  w.mark("step", "", 1);
  std::vector<dry::Request> all;
  for (const auto [at, bytes] : {std::pair(a, 12 * mib), std::pair(b, 30 * mib)}) {
    all.push_back({at, bytes, std::uint32_t(dry::RequestIs::segment_taken), 0});
    all.push_back({at, bytes, std::uint32_t(dry::RequestIs::taken), 0});
  }
  all.push_back({b, 0, std::uint32_t(dry::RequestIs::unused), 0});
  all.push_back({b, 0, std::uint32_t(dry::RequestIs::given), 0});
  w.requests(all);
  const ProgramAccount account = story(w).cards.at(0);
  EXPECT_EQ(account.peak_reserved_bytes, 42 * mib);
  ASSERT_TRUE(account.spread);
  EXPECT_EQ(account.spread->low.reserved, 12 * mib);
  EXPECT_EQ(account.spread->low.allocated, 12 * mib);
  EXPECT_EQ(account.spread->high.reserved, 42 * mib);
  ASSERT_EQ(account.steps.size(), 1u);
  EXPECT_LE(account.steps[0].reserved_low_bytes, 12 * mib);
  EXPECT_EQ(account.steps[0].reserved_high_bytes, 46 * mib) << "and an eighth of the range, in segments";
}

// A card may not list an engine that others were seen to list: of the largest workspaces in which kernels are tried two may be smaller, not all.
TEST_F(ForecastAccount, TwoOfTheLargestWorkspacesInWhichKernelsAreTriedMayNotBeAskedFor) {
  constexpr std::uint64_t mib = 1 << 20;
  dry::ProgramRecord w;
  w.mark("torch", "2.11.0", 1);
  std::vector<dry::Request> all;
  for (const std::uint64_t size : {50, 40, 30}) {
    const std::uint64_t at = 1024 * mib * size, bytes = size * mib;
    w.take(at, bytes);
    w.mark("workspace on a card", fmt::format("0 {} {}", bytes, bytes), std::int64_t(at));
    w.give(at);
    using enum dry::RequestIs;
    for (const auto what : {segment_taken, taken, unused, given, segment_free})
      all.push_back({at, what == segment_taken || what == taken || what == segment_free ? bytes : 0, std::uint32_t(what), 0});
  }
  w.requests(all);
  const ProgramAccount account = story(w).cards.at(0);
  ASSERT_TRUE(account.spread);
  EXPECT_EQ(account.spread->run.allocated, 50 * mib);
  EXPECT_EQ(account.spread->low.allocated, 30 * mib);
  EXPECT_EQ(account.spread->high.allocated, 50 * mib);
}

TEST_F(ForecastAccount, TheLinesThatReadValuesSinceTheLastStepAreKept) {
  dry::ProgramRecord w = two_steps();
  EXPECT_TRUE(story(w).unknown_lines.empty());
  const auto read_at = [&](const std::string& line) {
    w.read(4, false, w.stack({"/x/lib/python3.12/site-packages/torch/_tensor.py:3", line}));
  };
  read_at("/home/me/train.py:40");
  read_at("/home/me/train.py:41");
  read_at("/home/me/train.py:40");
  EXPECT_EQ(story(w).unknown_lines, (std::vector<std::string>{"/home/me/train.py:40", "/home/me/train.py:41"}));
  w.mark("step", "", 3);
  EXPECT_TRUE(story(w).unknown_lines.empty());
}

TEST_F(ForecastAccount, RunningOutHasItsStepPhaseAndLine) {
  dry::ProgramRecord w;
  w.take(1, mebibyte);
  w.mark("phase", "forward", 0);
  const auto line = w.stack({"/x/lib/python3.12/site-packages/torch/nn/linear.py:10", "/home/me/train.py:31"});
  w.note(dry::Said::out_of_memory, "out of memory", 5 * mebibyte, line);
  const ProgramAccount a = story(w).cards.at(0);
  ASSERT_TRUE(a.ran_out);
  EXPECT_EQ(a.ran_out->step, 1);
  EXPECT_EQ(a.ran_out->phase, "forward");
  EXPECT_EQ(a.ran_out->own_line, "/home/me/train.py:31");
  EXPECT_EQ(a.ran_out->bytes, std::uint64_t(5 * mebibyte));
}

TEST_F(ForecastAccount, ARecordThatWasCutOffIsReadUpToThere) {
  const std::string file = (folder_ / "cut.dry").string();
  two_steps().save(file);
  const auto whole = fs::file_size(file);
  for (const auto size : {whole - 70, whole * 3 / 4}) {
    fs::resize_file(file, size);
    const ProcessStory s = story_of(dry::Process(file));
    ASSERT_EQ(s.cards.size(), 1u);
    EXPECT_GT(s.cards[0].peak_allocated_bytes, 0u);
  }
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

TEST_F(ForecastAccount, AddressesMakeTheAnswerAnInterval) {
  Told t;
  t.device = device_described("h100");
  const auto answer = [&](std::int64_t mib, bool whole = true) {
    t.room = room_of_program(t.device, std::nullopt, 1);
    t.room.memory_bytes = t.room.overhead_bytes + std::uint64_t(mib * mebibyte);
    t.row = ForecastRow{};
    t.row.memory_bytes = t.room.memory_bytes;
    t.row.device = t.device.name;
    fill(t, {story(one_of_two_blocks(whole))});
    t.row.fits = t.ranks[0].fits;
    t.row.status = *t.row.fits ? Status::ok : Status::oom;
    return verdict(t);
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

TEST_F(ForecastAccount, WhatAProgramLetsPyTorchReserveBoundsItsNeedIfItCatchesTheError) {
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
    t.row = ForecastRow{};
    t.row.memory_bytes = t.room.memory_bytes;
    t.row.device = t.device.name;
    fill(t, {s});
    t.row.fits = t.ranks[0].fits;
    t.row.status = *t.row.fits ? Status::ok : Status::oom;
    return verdict(t);
  };
  EXPECT_TRUE(answer(true).starts_with("Fits on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_NEAR(double(*t.row.high_bytes), double(t.room.overhead_bytes + 60 * mebibyte), 1);
  EXPECT_TRUE(answer(false).starts_with("May not fit on NVIDIA H100 SXM: it needs ")) << verdict(t);
  EXPECT_NE(verdict(t).find("train.py:3 lets PyTorch reserve 60.0 MiB"), std::string::npos) << verdict(t);
  EXPECT_TRUE(answer(true, 43).starts_with("Fits on NVIDIA H100 SXM: it needs "))
      << verdict(t) << ": PyTorch reserved more than it was let";
}

TEST_F(ForecastAccount, APoolNeedsWhatIsLiveAtLeast) {
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
    t.row = ForecastRow{};
    t.row.memory_bytes = t.room.memory_bytes;
    t.row.device = t.device.name;
    fill(t, {story(w)});
    t.row.fits = t.ranks[0].fits;
    t.row.status = *t.row.fits ? Status::ok : Status::oom;
    return verdict(t);
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

TEST_F(ForecastAccount, EqualRanksAreInTheirOrder) {
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

TEST_F(ForecastAccount, ProcessesOnOneCardNeedTheirSum) {
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

TEST(Forecast, TheReasonOfAFailureIsARanksOwnErrorAndNotItsLaunchers) {
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

TEST(Forecast, APlaceBeforeTheFirstStepHasNoStep) {
  EXPECT_EQ(where({.step = 1, .phase = "before the first step", .line = "train.py:5"}), "before the first step, train.py:5");
  EXPECT_EQ(where({.step = 3, .phase = "before the first step", .line = "train.py:5"}), "in step 3, train.py:5");
  EXPECT_EQ(where({.step = 2, .phase = "forward", .own_line = "train.py:9"}), "in step 2, forward, train.py:9");
  EXPECT_EQ(where({.step = 2}), "in step 2");
}

TEST_F(ForecastAccount, ConvolutionsThatAreChosenByTheirTimesAreSaid) {
  const auto with = [&](bool benchmark, bool convolutions) {
    dry::ProgramRecord w = two_steps();
    if (benchmark) w.mark("benchmark", "chosen by their times", 0);
    if (convolutions) w.note(dry::Said::by_library, "cuDNN convolutions");
    return story(w);
  };
  const ProcessStory s = with(true, true);
  EXPECT_TRUE(s.tuned);
  ASSERT_EQ(s.said.size(), 1u);
  EXPECT_EQ(s.said[0].text, "chosen by their times");
  EXPECT_FALSE(with(true, false).tuned) << "it has no convolutions";
  EXPECT_FALSE(with(false, true).tuned);
}

TEST_F(ForecastAccount, WhatTryingConvolutionsTakesIsCountedWhereItIsKnown) {
  dry::ProgramRecord w = two_steps();
  w.mark("benchmark", "chosen by their times", 0);
  w.note(dry::Said::by_library, "cuDNN convolutions");
  w.mark("tries are known", "", 0);
  const ProcessStory s = story(w);
  EXPECT_FALSE(s.tuned);
  ASSERT_EQ(s.said.size(), 1u);
  EXPECT_NE(s.said[0].text.find("in the largest workspace that one of them asks for"), std::string::npos) << s.said[0].text;
}

TEST(ForecastAsked, AValueTakesThePlaceOfItsName) {
  const std::vector<std::string> program{"python3", "t.py", "--batch", "{batch}", "--out=run-{batch}-{len}"};
  EXPECT_EQ(with_value(program, "batch", "16"), (std::vector<std::string>{"python3", "t.py", "--batch", "16", "--out=run-16-{len}"}));
  EXPECT_EQ(list_of_values("len=1024,4096", program).values, (std::vector<std::string>{"1024", "4096"}));
  EXPECT_EQ(range_of_values("batch=1..256", program).high, 256);
  EXPECT_THROW(range_of_values("batch=9..3", program), Error);
  EXPECT_THROW(range_of_values("batch=1,2", program), Error);
  EXPECT_THROW(list_of_values("batch", program), Error);
  try {
    list_of_values("bacth=1,2", program);
    FAIL();
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("did you mean 'batch'"), std::string::npos) << e.what(); }
}

TEST(ForecastAsked, AProgramIsRunForCardsThatRunCuda) {
  check(Forecast{.program = {"python3", "t.py"}, .device = device_described("t4")});
  try {
    check(Forecast{.program = {"python3", "t.py"}, .device = device_described("mi300x")});
    FAIL();
  } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("AMD Instinct MI300X runs no CUDA"), std::string::npos) << e.what(); }
}

TEST(ForecastAsked, ALaunchersProcessesAreCounted) {
  EXPECT_EQ(ranks_told({"torchrun", "--nproc-per-node", "8", "t.py"}), 8);
  EXPECT_EQ(ranks_told({"python3", "-m", "torch.distributed.run", "--nproc_per_node=4", "t.py"}), 4);
  EXPECT_EQ(ranks_told({"accelerate", "launch", "--num_processes=2", "t.py"}), 2);
  EXPECT_EQ(ranks_told({"torchrun", "--nproc-per-node", "gpu", "t.py"}), 1);
  EXPECT_EQ(ranks_told({"python3", "t.py"}), 1);
}

TEST(ForecastAsked, TheCardIsTheOneThatPlanAsksAbout) {
  const Device h100 = device_described("h100");
  const Room room = room_of_program(h100, std::nullopt, 1);
  const dry::Dry d = dry_of(h100, room, 2);
  EXPECT_EQ(d.card.memory_bytes, room_of(h100, std::nullopt).memory_bytes);
  EXPECT_EQ(d.card.context_bytes, room.overhead_bytes);
  EXPECT_EQ(d.card.name, name_by_driver(h100));
  EXPECT_EQ(d.cards, 2);
}

dry::StepTimed one_step(double s, double products_s, double idle_s) {
  dry::StepTimed t;
  t.step.emplace();
  t.step->s = s;
  t.low_s = 0.9 * s;
  t.high_s = 1.2 * s;
  t.step->idle_s = idle_s;
  t.step->host_s = 0.002;
  t.step->parts[0] = {products_s, 200, 1e12, 0};
  return t;
}

TEST(ForecastTime, HasAnIntervalPartsAndALimit) {
  const Device h200 = device_described("h200");
  const auto time = forecast_time(one_step(0.010, 0.008, 0.002), pytorch::rates_of(h200), h200);
  ASSERT_TRUE(time.ms);
  EXPECT_NEAR(*time.ms, 10, 1e-9);
  EXPECT_EQ(time.limit, "products");
  ASSERT_EQ(time.parts.size(), 2u);
  EXPECT_NEAR(time.parts[0].ms + time.parts[1].ms, *time.ms, 1e-9);
  EXPECT_NEAR(time.launch_us, 10, 1e-9);
  EXPECT_NEAR(time.tflops, 100, 1e-9);
  EXPECT_EQ(forecast_time(one_step(0.010, 0.001, 0.009), pytorch::rates_of(h200), h200).limit, "host");
}

TEST(ForecastTime, CollectivesAreNotMeasuredAndWidenTheInterval) {
  const Device h200 = device_described("h200");
  dry::StepTimed step = one_step(0.010, 0.005, 0);
  step.step->parts[std::size_t(dry::Part::collectives)] = {0.004, 10, 0, 1e9};
  const auto time = forecast_time(step, pytorch::rates_of(h200), h200);
  EXPECT_NEAR(*time.ms_low, 9 * 0.8, 1e-9);
  EXPECT_NEAR(*time.ms_high, 12 * 1.4, 1e-9);
  EXPECT_NE(time.source.find("collectives"), std::string::npos);
  step.step->least_s = 0.008;
  EXPECT_NEAR(*forecast_time(step, pytorch::rates_of(h200), h200).ms_low, 8, 1e-9) << "products take that at the card's most";
}

TEST(ForecastTime, ACardThatWasNotMeasuredHasAWiderIntervalThatSaysSo) {
  const auto measured = pytorch::rates_of(device_described("h200"));
  for (const Device& device : known_devices()) {
    if (device.key == "h200") continue;
    const auto rates = pytorch::rates_of(device);
    ASSERT_EQ(bool(rates), architecture_of(device.sm).runs_cuda) << device.key;
    if (!rates) {
      EXPECT_NE(pytorch::why_no_rates(device).find("runs no CUDA"), std::string::npos) << device.key;
      continue;
    }
    EXPECT_LT(rates->low, measured->low);
    EXPECT_GT(rates->high, measured->high);
    EXPECT_NE(rates->source.find("not measured"), std::string::npos);
  }
}

TEST(ForecastTime, AFasterHostTakesLessAndSaysSo) {
  const Device h200 = device_described("h200");
  const auto measured = pytorch::rates_of(h200), twice = pytorch::rates_of(h200, 2);
  ASSERT_TRUE(measured && twice);
  EXPECT_DOUBLE_EQ(twice->host.operation_s, measured->host.operation_s / 2);
  EXPECT_DOUBLE_EQ(twice->host.launch_s, measured->host.launch_s / 2);
  EXPECT_DOUBLE_EQ(twice->bare_launch_s, measured->bare_launch_s / 2);
  EXPECT_DOUBLE_EQ(twice->brain.large, measured->brain.large) << "the card is the same";
  EXPECT_NE(twice->source.find("2 times as fast"), std::string::npos) << twice->source;
}

TEST(ForecastTime, ACardWithoutTensorCoresForATypeMultipliesItAsFp32) {
  const Device t4 = device_described("t4");
  ASSERT_EQ(t4.ceilings.bf16_flops, 0);
  const auto rates = pytorch::rates_of(t4);
  ASSERT_TRUE(rates);
  EXPECT_DOUBLE_EQ(rates->brain.large, rates->single.large);
  EXPECT_DOUBLE_EQ(rates->tf32.large, rates->single.large);
  EXPECT_GT(rates->half.large, 4 * rates->single.large);
  const auto newer = pytorch::rates_of(device_described("a100"));
  EXPECT_DOUBLE_EQ(newer->brain.large, newer->half.large);
  EXPECT_GT(newer->tf32.large, 4 * newer->single.large);
}

TEST(ForecastTime, WithoutATimeThereIsAReason) {
  Device unknown = device_described("h200");
  unknown.name = "A card of tomorrow";
  unknown.ceilings = {};
  EXPECT_FALSE(pytorch::rates_of(unknown));
  const auto time = forecast_time(one_step(1, 1, 0), pytorch::rates_of(unknown), unknown);
  EXPECT_FALSE(time.ms);
  EXPECT_NE(time.why.find("headroom device"), std::string::npos);
  const Device h200 = device_described("h200");
  EXPECT_EQ(forecast_time({{}, "no step"}, pytorch::rates_of(h200), h200).why, "no step");
}

}  // namespace
}  // namespace headroom::studies
