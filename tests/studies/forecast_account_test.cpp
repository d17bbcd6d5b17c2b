// The account of a record whose bytes are known: peaks, steps, phases, what each byte is, and what is not known.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "studies/forecast/forecast.h"
#include "tests/studies/recorded_program.h"

namespace headroom::studies {
namespace {

using ForecastAccount = RecordedProgram;

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

// A card skips the first steps, while the scale is too large: a program that has no more of them makes no moments.
TEST_F(ForecastAccount, WhereAScalerMaySkipEveryStepTheIntervalBeginsBeforeTheFirstUpdate) {
  const auto told = [&](std::int64_t skips, const char* end) {
    dry::ProgramRecord w = two_steps();
    w.mark("scaled", "", skips);
    if (*end) w.mark("end", end, 0);
    Told t;
    t.device = device_described("h200");
    t.room = room_of_program(t.device, std::nullopt, 1);
    t.row.memory_bytes = t.room.memory_bytes;
    fill(t, {story(w)});
    return t;
  };
  const auto least = [](const Told& t) { return *t.row.low_bytes - t.room.overhead_bytes; };
  const Told skipped = told(16, "");
  ASSERT_TRUE(skipped.accounts[0].before_update);
  EXPECT_EQ(skipped.accounts[0].before_update->allocated, std::uint64_t(26 * mebibyte)) << "weights, saved, gradients, a temporary";
  EXPECT_EQ(least(skipped), std::uint64_t(26 * mebibyte));
  EXPECT_EQ(least_of(skipped) - skipped.room.overhead_bytes, std::uint64_t(26 * mebibyte));
  EXPECT_EQ(skipped.row.needed_bytes, told(0, "").row.needed_bytes);
  EXPECT_EQ(skipped.row.high_bytes, told(0, "").row.high_bytes);
  EXPECT_EQ(least(told(0, "")), std::uint64_t(46 * mebibyte)) << "there is no scaler";
  EXPECT_EQ(least(told(1, "")), std::uint64_t(46 * mebibyte)) << "the second step is made";
  EXPECT_EQ(least(told(16, "the peaks of two optimizer steps agree")), std::uint64_t(46 * mebibyte)) << "it goes on";
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
  for (const auto& [at, bytes] : {std::pair(a, 12 * mib), std::pair(b, 30 * mib)}) {
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
  const auto whole = std::filesystem::file_size(file);
  for (const auto size : {whole - 70, whole * 3 / 4}) {
    std::filesystem::resize_file(file, size);
    const ProcessStory s = story_of(dry::Process(file));
    ASSERT_EQ(s.cards.size(), 1u);
    EXPECT_GT(s.cards[0].peak_allocated_bytes, 0u);
  }
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

}  // namespace
}  // namespace headroom::studies
