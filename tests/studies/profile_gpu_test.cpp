// Profiles of a GPU: kernels lead back to the ops that launched them, one by one or within a graph.
#include <gtest/gtest.h>

#include <set>

#include "gpu/device.h"
#include "studies/profile/profile.h"

namespace headroom::studies {
namespace {

attention::Problem small_problem() {
  attention::Problem p;
  p.batch = 2, p.heads = p.kv_heads = 4, p.len_q = p.len_k = 256, p.head_dim = 64;
  return p;
}

class ProfileGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "this machine has no CUDA device";
    device_ = cuda_device(0);
    device_.memory_bytes = free_memory_bytes(device_);
  }
  Device device_;
};

std::set<std::string> parts_of(const profile::Timeline& t) {
  const auto places = places_of(t.marks);
  std::set<std::string> parts;
  for (const auto& s : t.slices) parts.insert(s.mark < 0 ? "nobody: " + s.kernel : places[std::size_t(s.mark)].part);
  return parts;
}

TEST_F(ProfileGpu, EveryKernelOfPlainAttentionKnowsItsPart) {
  ProfileOptions o;
  const auto result = profile_attention({small_problem(), {"plain_cuda"}, Passes::both}, device_, o);
  const auto& t = result.profiles.at(0).timeline;
  EXPECT_EQ(parts_of(t), (std::set<std::string>{"scores", "softmax", "values"}));
  EXPECT_EQ(t.steps.size(), 6u) << "three forward, three backward";
  std::int64_t covered = 0, idle = 0, all = 0;
  for (const auto& s : t.slices) covered += s.ns();
  for (const auto& g : gaps_of(t)) idle += g.span.ns();
  for (const auto& s : t.steps) all += s.ns();
  EXPECT_EQ(covered + idle, all) << "one stream: what is not idle is a kernel";
  EXPECT_FALSE(t.memory.empty());
}

TEST_F(ProfileGpu, KernelsOfAGraphKnowTheOpThatWasRecorded) {
  const attention::Problem p = small_problem();
  const attention::Variant& v = attention::choose(p, device_, "plain_cuda");
  Place place(device_);
  const PlaceMemory memory = place.take(256u << 20);
  Ledger ledger;
  Arena arena(memory.data(), memory.bytes(), &ledger);
  Context ctx{.arena = arena, .device = device_, .threads = &place.threads(), .stream = place.stream()};
  attention::Forward t;
  t.q = arena.make("q", DType::f32, p.q_shape()), t.k = arena.make("k", DType::f32, p.k_shape());
  t.v = arena.make("v", DType::f32, p.k_shape()), t.o = arena.make("o", DType::f32, p.q_shape());
  t.lse = arena.make("lse", DType::f32, p.lse_shape()), t.saved = attention::make_saved(v, p, ctx);
  for (const Tensor& x : {t.q, t.k, t.v}) place.fill_normal(x, Random{1});
  const auto call = [&] {
    const auto scope = arena.scope();
    attention::forward(v, p, t, ctx);
  };
  call(), place.wait();

  const auto recording = recording_of(place, ledger, nullptr);
  ctx.listener = recording->listener();
  const Graph graph(place.queue(), call);
  for (int i = 0; i < 2; ++i) recording->step([&] { graph.launch(place.queue()); });
  const auto timeline = recording->timeline();
  EXPECT_EQ(parts_of(timeline), (std::set<std::string>{"scores", "softmax", "values"}));
  std::size_t of_first = 0;
  for (const auto& s : timeline.slices) of_first += s.step == 0;
  EXPECT_EQ(2 * of_first, timeline.slices.size()) << "both launches did the same";
}

TEST_F(ProfileGpu, CountersCountOrSayWhyNot) {
  ProfileOptions o;
  o.counters = true;
  attention::Problem p = small_problem();
  p.precision = {DType::bf16};
  const auto counted = profile_attention({p, {"plain_cuda"}, Passes::forward}, device_, o).profiles.at(0).counted;
  ASSERT_TRUE(counted.has_value());
  if (!counted->why.empty()) GTEST_SKIP() << counted->why;
  EXPECT_GT(counted->tensor_share, 0);
  EXPECT_LT(counted->tensor_share, 1);
  EXPECT_GT(counted->sm_hz, 1e8);
}

}  // namespace
}  // namespace headroom::studies
