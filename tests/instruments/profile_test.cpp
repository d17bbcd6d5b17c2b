// Marks, timelines, activity files and traces, from hand-made marks whose times are known.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "instruments/profile/activity_file.h"
#include "instruments/profile/record.h"
#include "instruments/profile/trace_timeline.h"
#include "memory/arena.h"

namespace headroom::profile {
namespace {

Region region(Region::Kind kind, Name name, Work work = Work::other, Phase phase = Phase::forward) {
  return {kind, name, phase, {DType::f32}, {10, 20}, work};
}
Mark mark(Region r, int parent, std::int64_t begin, std::int64_t end) { return {r, parent, begin, end, 0, 0}; }

// module [0, 100) with a matmul [10, 40) and an op [50, 90) that has a softmax [60, 70) in it
std::vector<Mark> example() {
  return {mark(region(Region::Kind::module, {"attention", 3}), -1, 0, 100),
          mark(region(Region::Kind::op, {"attention.qkv", 3}, Work::matmul), 0, 10, 40),
          mark(region(Region::Kind::op, "attention.plain.forward"), 0, 50, 90),
          mark(region(Region::Kind::part, "softmax", Work::softmax), 2, 60, 70)};
}

TEST(Timeline, EverySliceKnowsItsOpModuleLayerAndPhase) {
  const auto places = places_of(example());
  EXPECT_EQ(places[1].op, "attention.qkv");
  EXPECT_EQ(places[1].module, "attention");
  EXPECT_EQ(places[1].layer, 3);
  EXPECT_EQ(places[1].work, Work::matmul);
  EXPECT_EQ(places[1].place_name(), "projections");
  EXPECT_EQ(places[3].op, "attention.plain.forward");
  EXPECT_EQ(places[3].part, "softmax");
  EXPECT_EQ(places[3].layer, 3);
  EXPECT_EQ(places[3].work, Work::softmax);
  EXPECT_EQ(places[3].cost_of, 3);
  EXPECT_EQ(places[2].cost_of, -1) << "an op with parts leaves its cost to them";
}

TEST(Timeline, AnOpIsCutIntoItsPartsAndWhatIsLeft) {
  const auto slices = host_slices(example(), places_of(example()), {{0, 100}}, 0);
  ASSERT_EQ(slices.size(), 4u);
  std::int64_t sum = 0;
  for (const Slice& s : slices) sum += s.ns();
  EXPECT_EQ(sum, 30 + 40);
  EXPECT_EQ(slices[1].kernel, "attention.plain.forward");
  EXPECT_EQ(slices[1].start_ns, 50);
  EXPECT_EQ(slices[1].end_ns, 60);
  EXPECT_EQ(slices[2].kernel, "attention.plain.forward: softmax");
  EXPECT_EQ(slices[3].end_ns, 90);
}

TEST(Timeline, SlicesAndGapsMakeUpTheStep) {
  Timeline t;
  t.marks = example();
  t.steps = {{0, 100}};
  t.slices = host_slices(t.marks, places_of(t.marks), t.steps, 0);
  std::int64_t covered = 0, idle = 0;
  for (const Slice& s : t.slices) covered += s.ns();
  const auto gaps = gaps_of(t);
  for (const Gap& g : gaps) idle += g.span.ns();
  EXPECT_EQ(covered + idle, 100);
  ASSERT_EQ(gaps.size(), 3u);
  EXPECT_EQ(gaps[0].after, -1);
  EXPECT_EQ(gaps[2].before, -1);
  EXPECT_EQ(gaps[1].span.start_ns, 40);
  EXPECT_EQ(gaps[1].span.end_ns, 50);
}

TEST(Timeline, SlicesThatRunTogetherLeaveNoGap) {
  Timeline t;
  t.steps = {{0, 100}};
  t.slices = {{"a", SliceKind::kernel, -1, 0, 0, 100, 7, 0}, {"b", SliceKind::kernel, -1, 0, 20, 30, 8, 0}};
  EXPECT_TRUE(gaps_of(t).empty());
}

TEST(Recording, TimesOnlyItsStepsAndTheBytesOfTheLast) {
  Ledger ledger;
  Arena arena(&ledger);
  Recording recording(&ledger);
  const auto call = [&] {
    const auto scope = arena.scope();
    const Running op(recording.listener(), region(Region::Kind::op, "op"));
    static_cast<void>(arena.make("x", DType::f32, {64}));
  };
  recording.step(call);
  recording.step(call);
  const Timeline t = recording.timeline();
  ASSERT_EQ(t.steps.size(), 2u);
  EXPECT_EQ(t.marks.size(), 2u);
  ASSERT_EQ(t.memory.size(), 2u);
  EXPECT_EQ(t.memory[0].live_bytes, 256);
  EXPECT_EQ(t.memory[0].name, "x");
  EXPECT_EQ(t.memory[1].live_bytes, 0);
  EXPECT_GE(t.memory[0].at_ns, t.steps[1].start_ns);
  EXPECT_LE(t.memory[1].at_ns, t.steps[1].end_ns);
}

TEST(Recording, BeginsItsBytesWithThoseThatStood) {
  Ledger ledger;
  Arena arena(&ledger);
  Recording recording(&ledger);
  static_cast<void>(arena.make("weight", DType::f32, {64}));
  recording.step([&] {
    const auto scope = arena.scope();
    const Running op(recording.listener(), region(Region::Kind::op, "op"));
    static_cast<void>(arena.make("x", DType::f32, {64}));
  });
  const Timeline t = recording.timeline();
  ASSERT_EQ(t.memory.size(), 3u);
  EXPECT_EQ(t.memory[0].name, "weight");
  EXPECT_EQ(t.memory[0].at_ns, t.steps[0].start_ns);
  EXPECT_EQ(t.memory[1].live_bytes, 512);
}

TEST(ActivityLog, ReadsWhatTheLibraryWrites) {
  std::istringstream in(
      "V 1\nH 1000\nN 1 _ZN8headroom6kernelIfEEvPfi\nN 2 step\nN 3 cudaMalloc\nA 1100 4096 512 3\nB 1200 1 77 2\nL 1210 1220 77 5\n"
      "L 1225 1226 78 6\nE 1230 1 77 0\nK 1300 1400 0 7 1 5 0\nC 1250 1260 0 7 1 6 64\nR 1500 4096 0 3\nO 10 15\nZ 2000\n");
  const ActivityLog log = read_activity(in);
  ASSERT_EQ(log.slices.size(), 2u);
  EXPECT_EQ(log.slices[0].kind, SliceKind::copy) << "in order of their start";
  EXPECT_EQ(log.slices[1].kernel, "kernel<float>");
  ASSERT_EQ(log.ranges.size(), 1u);
  EXPECT_EQ(log.slices[1].mark, 0);
  EXPECT_EQ(log.slices[0].mark, 0) << "a thread without ranges is taken to work for the one that has";
  ASSERT_EQ(log.memory.size(), 2u);
  EXPECT_EQ(log.memory[0].live_bytes, 512);
  EXPECT_EQ(log.memory[1].live_bytes, 0) << "what is freed without its size was that large when it was taken";
  EXPECT_EQ(log.overhead_ns, 5);
  EXPECT_EQ(log.ended_ns, 2000);
  EXPECT_EQ(log.strange_lines, 0u);
}

TEST(ActivityLog, OfAProgramThatDiedIsReadUpToThere) {
  std::istringstream in("V 1\nH 1\nN 1 k\nK 5 9 0 7 1 3 0\nB 4 1 77 1\nK 10 2");
  const ActivityLog log = read_activity(in);
  EXPECT_EQ(log.slices.size(), 1u);
  EXPECT_EQ(log.ended_ns, 0);
  ASSERT_EQ(log.ranges.size(), 1u);
  EXPECT_EQ(log.ranges[0].end_ns, 9) << "what is still open ends with the last that is known";
}

TEST(ActivityLog, DoesNotBelieveStrangeLines) {
  std::istringstream in("V 9\nK\nK 9 5 0 0 0 0 0\nK a b\n?\nE 3 99 1 0\nN x\nA 1 1 -5 0\n");
  EXPECT_EQ(read_activity(in).strange_lines, 8u);
}

TEST(ActivityLog, NamesAreReadable) {
  EXPECT_EQ(readable("_ZN8headroom12_GLOBAL__N_16kernelIfEEvPfi"), "kernel<float>");
  EXPECT_EQ(readable("plain_name"), "plain_name");
  EXPECT_EQ(readable(""), "");
}

TEST(ActivityLog, ShortNamesKeepWhatTellsKernelsApart) {
  EXPECT_EQ(short_name("attention_fwd_sm90<attention::sm90::Forward64<__nv_bfloat16>, (attention::sm90::Reach)1>"),
            "attention_fwd_sm90<Forward64<__nv_bfloat16>, 1>");
  EXPECT_EQ(short_name("at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
                       "at::native::GeluType)::{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >"),
            "vectorized_elementwise_kernel<4, GeluCUDAKernelImpl, array<char*, 2ul>>");
  EXPECT_EQ(short_name("nvjet_sm90_tst_128x160_64x5_2x1_v_bz_NNT"), "nvjet_sm90_tst_128x160_64x5_2x1_v_bz_NNT");
  EXPECT_EQ(short_name("fill"), "fill");
  EXPECT_EQ(short_name("a<b>::c<d::e>"), "a<b>::c<e>");
  EXPECT_EQ(short_name("((("), "(((");
}

std::string unzipped(const std::string& file) {
  std::string text(1 << 20, '\0');
  gzFile f = gzopen(file.c_str(), "rb");
  text.resize(std::size_t(std::max(0, gzread(f, text.data(), unsigned(text.size())))));
  gzclose(f);
  return text;
}

class Trace : public testing::Test {
 protected:
  std::string file_ = (std::filesystem::temp_directory_path() / ("headroom_trace_" + std::to_string(getpid()) + ".json.gz")).string();
  void TearDown() override { std::filesystem::remove(file_); }
};

TEST_F(Trace, IsJsonWhateverTheNames) {
  Timeline t;
  t.marks = example();
  t.steps = {{0, 100}};
  t.slices = host_slices(t.marks, places_of(t.marks), t.steps, 0);
  t.slices[0].kernel = "\"</script>\\ \x01 \xff";
  t.slices[1].mark = -1;
  t.memory = {{5, 100, 100, "x", "2x3", Phase::forward}};
  TraceWriter w(file_);
  write_trace(w, t, 1, "a \"step\"");
  w.close();
  const auto events = nlohmann::json::parse(unzipped(file_));
  std::size_t slices = 0, counters = 0;
  for (const auto& e : events) slices += e["ph"] == "X" && e["tid"] >= 10, counters += e["ph"] == "C";
  EXPECT_EQ(slices, t.slices.size());
  EXPECT_EQ(counters, 1u);
}

TEST_F(Trace, CanBeReadBeforeItIsClosed) {
  TraceWriter w(file_);
  w.slice(1, 2, "name", "kernel", 1000, 500);
  w.flush();
  const std::string text = unzipped(file_);
  EXPECT_NE(text.find("\"name\":\"name\""), std::string::npos) << text;
}

TEST_F(Trace, AProgramThatIsKilledLeavesWhatItHadRecorded) {
  const pid_t child = fork();
  if (child == 0) {  // dies within the third op of its second step
    TraceWriter w(file_);
    TimelineTrace part(w, 1, "train");
    Ledger ledger;
    Arena arena(&ledger);
    Recording recording(&ledger, &part);
    const auto op = [&](const char* name) {
      const Running running(recording.listener(), region(Region::Kind::op, name));
      const auto scope = arena.scope();
      static_cast<void>(arena.make("x", DType::f32, {64}));
    };
    recording.step([&] { op("first"); });
    recording.step([&] {
      const Running module(recording.listener(), region(Region::Kind::module, "attention"));
      op("second");
      usleep(150'000);
      op("third");
      const Running open(recording.listener(), region(Region::Kind::op, "fourth"));
      raise(SIGKILL);
    });
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  std::string text(1 << 20, '\0');
  gzFile f = gzopen(file_.c_str(), "rb");
  const int bytes = gzread(f, text.data(), unsigned(text.size()));
  EXPECT_EQ(gzclose(f), Z_OK) << "whole members: Perfetto refuses one that is cut short";
  ASSERT_GT(bytes, 0);
  text.resize(std::size_t(bytes));
  std::vector<std::string> ops;
  std::size_t counters = 0;
  for (const auto& e : nlohmann::json::parse(text + "]")) {
    if (e["ph"] == "X" && e["tid"] >= 10) ops.push_back(e["name"]);
    counters += e["ph"] == "C";
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"first", "second", "third"}));
  EXPECT_EQ(counters, 6u);
}

TEST_F(Trace, SaysWhenItCannotBeWritten) { EXPECT_THROW(TraceWriter("/no/such/folder/t.json.gz"), Error); }

}  // namespace
}  // namespace headroom::profile
