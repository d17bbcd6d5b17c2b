// The time of PyTorch's step: what the account gives to the card is what a dry run of the same program gives to it.
#include "pytorch/step_time.h"

#include <gtest/gtest.h>

#include "dry/clock.h"
#include "pytorch/rates.h"

namespace headroom::pytorch {
namespace {

LanguageModel small(std::int64_t layers, std::int64_t batch, std::int64_t len, DType precision, bool fused, Adam adam) {
  LanguageModel m;
  m.width = 768, m.ffn = 3072, m.layers = layers, m.heads = 12;
  m.batch = batch, m.len = len, m.precision = {precision}, m.fused_attention = fused, m.adam = adam;
  return m;
}

double launches(const LanguageModel& m, const Device& device) {
  double count = 0;
  const auto timed = dry::step_time(dry::Process::of(launches_of(m, device.sm).written().record()), *rates_of(device));
  for (const dry::PartTime& p : timed.step->parts) count += p.count;
  return count;
}

// `headroom forecast --device D --steps 4 -- python3` of bench/peers/pytorch_memory.py's LM with its loss and AdamW (PyTorch 2.11, 2026-11-24):
// launches of a step, and its milliseconds. Small kernels that sort the tokens for the embedding's gradient are not in the account.
TEST(PyTorchStepTime, IsThatOfADryRunOfTheProgram) {
  struct Seen {
    LanguageModel model;
    const char* device;
    double launches, ms;
  };
  const Seen all[] = {{small(1, 4, 256, DType::bf16, true, Adam::foreach), "h200", 213, 5.751},
                      {small(1, 4, 256, DType::bf16, false, Adam::foreach), "h200", 235, 6.345},
                      {small(1, 4, 256, DType::f32, true, Adam::fused), "h200", 159, 4.293},
                      {small(2, 16, 1024, DType::bf16, true, Adam::fused), "h200", 387, 13.746},
                      {small(2, 8, 1024, DType::f32, false, Adam::foreach), "a100", 354, 96.888},
                      {small(2, 16, 1024, DType::bf16, true, Adam::foreach), "rtx4090", 406, 53.536}};
  for (const Seen& seen : all) {
    const Device device = device_described(seen.device);
    const StepTime t = step_time(seen.model, device);
    ASSERT_TRUE(t.ms) << t.ms_by;
    EXPECT_NEAR(*t.ms / seen.ms, 1, 0.05) << seen.device << " " << seen.launches << " launches";
    EXPECT_NEAR(launches(seen.model, device) / seen.launches, 1, 0.13) << seen.device;
    EXPECT_LT(*t.ms_low, *t.ms);
    EXPECT_GT(*t.ms_high, *t.ms);
  }
}

// A ceiling is a bound: no end of an interval has more operations a second in products alone.
TEST(PyTorchStepTime, NothingIsPromisedAboveACeiling) {
  LanguageModel m = small(2, 2, 2048, DType::bf16, true, Adam::fused);
  m.width = 4096, m.ffn = 14336, m.heads = 32, m.kv_heads = 8;
  int cards = 0;
  for (const Device& device : known_devices()) {
    if (device.key == "h200" || !rates_of(device)) continue;  // this card's products were measured above what was kept as its ceiling
    ++cards;
    for (const Precision precision : {Precision{DType::bf16}, Precision{DType::f16}, Precision{}})
      for (const std::int64_t accumulate : {1, 2, 5}) {
        m.precision = precision, m.accumulate = 1;
        const dry::StepTimed one = dry::step_time(dry::Process::of(launches_of(m, device.sm).written().record()), *rates_of(device));
        const double flops = double(accumulate) * one.step->parts[std::size_t(dry::Part::products)].flops;
        m.accumulate = accumulate;
        const StepTime t = step_time(m, device);
        const double ceiling = device.ceilings.of(precision) > 0 ? device.ceilings.of(precision) : device.ceilings.fp32_flops;
        EXPECT_LE(flops / *t.ms_low * 1e3, 1.001 * ceiling) << device.key << " " << name_of(precision) << " x " << accumulate;
        EXPECT_LE(*t.ms_low, *t.ms);
        EXPECT_LE(*t.ms, *t.ms_high);
      }
  }
  EXPECT_GE(cards, 15);
}

TEST(PyTorchStepTime, OfAStepThatIsNotKnownThereIsAReason) {
  const Device h200 = device_described("h200");
  const auto why = [&](auto change) {
    LanguageModel m = small(1, 4, 256, DType::bf16, true, Adam::fused);
    change(m);
    const StepTime t = step_time(m, h200);
    EXPECT_FALSE(t.ms);
    EXPECT_NE(in_words(m, t).find("No time is forecast: "), std::string::npos);
    return t.ms_by;
  };
  EXPECT_EQ(why([](LanguageModel& m) { m.gpus = 2, m.shard = engine::Sharding::optimizer; }),
            "what ZeroRedundancyOptimizer sends after an update is not timed here; headroom forecast -- CMD times a program");
  EXPECT_EQ(why([](LanguageModel& m) { m.gpus = 9; }),
            "ranks on several hosts are not timed here: what their network takes was not measured");
  EXPECT_EQ(why([](LanguageModel& m) { m.adam = Adam::offloaded; }),
            "an update on the host is not timed here: how fast a host computes is not known");
  EXPECT_EQ(why([](LanguageModel& m) { m.adam = Adam::muon; }),
            "the many small kernels of Muon and Adafactor are not timed here; headroom forecast -- CMD times a program");
  EXPECT_EQ(why([](LanguageModel& m) { m.until = Until::backward; }), "a part of a step is not timed");
  Device unknown = h200;
  unknown.name = "a card", unknown.ceilings = {};
  EXPECT_NE(step_time(small(1, 4, 256, DType::bf16, true, Adam::fused), unknown).ms_by.find("headroom device --save"), std::string::npos);
}

LanguageModel course(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  LanguageModel m;
  m.layers = layers, m.width = width, m.heads = heads, m.ffn = 4 * width;
  m.precision = {DType::bf16}, m.fused_attention = true, m.adam = Adam::fused;
  return m;
}

void expect_inside(const LanguageModel& m, double ms, double error) {
  const StepTime t = step_time(m, device_described("h200"));
  ASSERT_TRUE(t.ms) << t.ms_by;
  EXPECT_LE(*t.ms_low, ms) << m.width;
  EXPECT_GE(*t.ms_high, ms) << m.width;
  EXPECT_NEAR(*t.ms / ms, 1, error) << m.width;
}

// torch.compile of the whole model, measured on an H200 (docs/performance.md); nothing was fitted to it.
TEST(PyTorchStepTime, OfCompiledStepsIsNearWhatACardTook) {
  const auto compiled = [](LanguageModel m) {
    m.compile = Compile::model;
    return m;
  };
  expect_inside(compiled(course(12, 768, 12)), 14.65, 0.2);
  expect_inside(compiled(course(36, 1280, 20)), 65.89, 0.1);
  expect_inside(compiled(course(32, 2560, 32)), 192.07, 0.1);
}

// The same on two H200, with DDP and FSDP2 (docs/several-gpus.md). The step of "large" waits for its host, which is known less well.
TEST(PyTorchStepTime, OfTwoRanksEnclosesWhatTwoCardsTook) {
  const auto of = [](LanguageModel m, engine::Sharding shard) {
    m.gpus = 2, m.shard = shard, m.compile = Compile::blocks;
    return m;
  };
  using engine::Sharding;
  expect_inside(of(course(32, 2560, 32), Sharding::none), 222.3, 0.15);
  expect_inside(of(course(32, 2560, 32), Sharding::everything), 220.4, 0.2);
  expect_inside(of(course(36, 1280, 20), Sharding::none), 113.1, 0.4);
  expect_inside(of(course(36, 1280, 20), Sharding::everything), 176.6, 0.65);
}

// Gradients go to the other ranks beside backward: a slower link makes a step longer only where it has no time left.
TEST(PyTorchStepTime, CollectivesRunBesideTheWork) {
  LanguageModel m = course(8, 2560, 32);
  m.batch = 8;
  const auto ms = [&](std::int64_t gpus, engine::Sharding shard, double link) {
    Device d = device_described("h200");
    d.ceilings.link_bytes_per_s *= link, d.name = "an H200 with another link", d.ceilings.source = "measured";
    m.gpus = gpus, m.shard = shard;
    return *step_time(m, d).ms;
  };
  for (const auto shard : {engine::Sharding::none, engine::Sharding::gradients, engine::Sharding::everything}) {
    const double quick = ms(2, shard, 1), slow = ms(2, shard, 0.02);
    EXPECT_LT(quick, 1.25 * ms(1, engine::Sharding::none, 1));
    EXPECT_GT(slow, 1.5 * quick);
  }
  EXPECT_GT(ms(8, engine::Sharding::everything, 0.02), ms(2, engine::Sharding::everything, 0.02))
      << "a rank receives 7 of 8 parts, not 1 of 2";
  EXPECT_GT(ms(2, engine::Sharding::everything, 0.02), ms(2, engine::Sharding::gradients, 0.02)) << "weights are gathered twice";
}

// More work takes longer; a checkpoint costs a forward pass; adapters save the weights' gradients.
TEST(PyTorchStepTime, FollowsTheWork) {
  const Device h200 = device_described("h200");
  LanguageModel m = small(4, 16, 1024, DType::bf16, true, Adam::fused);
  const auto ms = [&](const LanguageModel& one) { return *step_time(one, h200).ms; };
  const double whole = ms(m);
  LanguageModel other = m;
  other.keep = {engine::Keep::input};
  EXPECT_GT(ms(other), 1.15 * whole);
  EXPECT_LT(ms(other), 1.4 * whole);
  other = m, other.accumulate = 2;
  const double two = ms(other);
  EXPECT_GT(two, 1.8 * whole);
  other.accumulate = 1000;
  EXPECT_NEAR(ms(other), two + 998 * (two - whole), 0.01 * ms(other)) << "and is not walked a thousand times";
  other = m, other.lora = 16;
  EXPECT_LT(ms(other), 1.1 * whole);
  other = m, other.adam = Adam::foreach;
  EXPECT_GT(ms(other), whole);
  EXPECT_NEAR(tokens_per_s(m, 100), 163840, 1e-6);
}

}  // namespace
}  // namespace headroom::pytorch
