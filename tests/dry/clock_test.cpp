// The clock: streams, events, the host, graphs, and what a launch moves.
#include "dry/clock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/studies/dry_record.h"

namespace headroom::dry {
namespace {

namespace fs = std::filesystem;

// Round numbers: a byte takes a nanosecond, and so does a floating-point operation; a launch costs the host 10 us where nothing else was counted of it.
Rates round_rates() {
  Rates r;
  r.units = 100;
  for (KernelRate* k : {&r.pointwise, &r.strided, &r.converting, &r.reducing, &r.norm, &r.norm_backward, &r.norm_weights, &r.softmax,
                        &r.lists, &r.joining, &r.other, &r.generated, &r.generated_sums, &r.single_channels})
    k->bytes_per_s = k->cached_bytes_per_s = 1e9;
  r.unit_bytes_per_s = r.strided_per_s = r.strided_converting_per_s = r.long_row_bytes_per_s = 1e9;
  r.link_bytes_per_s = r.host_bytes_per_s = 1e9;
  for (ProductRate* p : {&r.half, &r.tf32, &r.single, &r.eight, &r.twice}) p->large = p->middle = p->small = p->least = 1e9;
  for (AttentionRate* a : {&r.cudnn, &r.flash, &r.efficient, &r.efficient_single})
    a->of_64 = a->of_64_backward = a->of_128 = a->of_128_backward = a->of_256 = a->of_256_backward = 1e9;
  r.bare_launch_s = 10e-6;
  return r;
}

class Clockwork : public testing::Test {
 protected:
  void kernel(std::uint64_t bytes, std::uint32_t stream = 0, std::uint32_t graph = 0) {
    Launch l{};
    l.stream = stream;
    l.graph = graph;
    l.name = w.name("_Z3addPf");
    l.grid[0] = 100;
    l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
    l.block[0] = 1024;
    l.reached_bytes = bytes;
    w.add(l);
  }
  void event(EventDone done, std::uint32_t stream, std::uint32_t number) { w.add(EventEntry{done, 0, stream, number}); }
  void wait() { w.add(Wait{WaitsFor::device, 0, 0, 0, 0}); }
  void step() { w.mark("step", "AdamW", ++steps); }
  template <class Body>
  StepTimed timed(Body&& body, int times = 4) {
    for (int i = 0; i < times; ++i) {
      body();
      step();
    }
    const std::string file = (fs::temp_directory_path() / ("headroom_clock_" + std::to_string(getpid()))).string();
    w.save(file);
    const StepTimed t = step_time(Process(file), rates);
    fs::remove(file);
    return t;
  }
  static double us(const StepTimed& t) { return t.step ? t.step->s * 1e6 : -1; }

  ProgramRecord w;
  Rates rates = round_rates();
  int steps = 0;
};

TEST_F(Clockwork, WorkOfOneStreamAddsUp) {
  const StepTimed t = timed([&] {
    kernel(30'000);
    kernel(50'000);
  });
  EXPECT_NEAR(us(t), 80, 1e-6);
  EXPECT_NEAR(t.step->idle_s, 0, 1e-12) << "the host is ahead";
  EXPECT_EQ(t.step->parts[std::size_t(Part::kernels)].count, 2);
  EXPECT_EQ(t.step->steps, 2) << "the first two are left out";
}

TEST_F(Clockwork, StepsThatTakeMuchLongerAreToldOfAndLeftOut) {
  int i = 0;
  const StepTimed t = timed([&] { kernel(++i == 4 ? 500'000 : 20'000 + 1000 * std::uint64_t(i)); }, 6);
  EXPECT_NEAR(us(t), (23 + 25 + 26) / 3.0, 1e-6) << "steps of 23, 500, 25 and 26 us after the first two";
  EXPECT_EQ(t.step->steps, 3);
  EXPECT_EQ(t.step->left_out, 1);
  EXPECT_NEAR(t.step->with_them_s * 1e6, (23 + 500 + 25 + 26) / 4.0, 1e-6);
  EXPECT_LE(t.low_s, t.step->s);
  EXPECT_GE(t.high_s, t.step->s);
}

TEST_F(Clockwork, WhatComesAfterEnoughStepsIsNotTimed) {
  const auto body = [&] { kernel(30'000); };
  const StepTimed short_run = timed(body);
  w.mark("settled", "enough", 0);
  const StepTimed whole = timed([&] { kernel(500'000); });  // the time of both
  EXPECT_EQ(whole.step->steps, short_run.step->steps);
  EXPECT_EQ(us(whole), us(short_run));
}

TEST_F(Clockwork, TwoStreamsRunBesideEachOtherUnlessAnEventSaysOtherwise) {
  const auto beside = timed([&] {
    kernel(100'000, 0);
    kernel(100'000, 1);
    wait();
  });
  EXPECT_NEAR(us(beside), 120, 1e-6) << "the host issues two launches first";
  w = ProgramRecord();
  const auto behind = timed([&] {
    kernel(100'000, 0);
    event(EventDone::record, 0, 5);
    event(EventDone::stream_waits, 1, 5);
    kernel(100'000, 1);
    wait();
  });
  EXPECT_NEAR(us(behind), 210, 1e-6) << "the host issues one launch, the other meanwhile";
}

// Of four ranks: an all-reduce of 100 KB sends three quarters of it twice, a scatter of sums once; a gather of parts of 25 KB sends three parts.
TEST_F(Clockwork, ACollectiveTakesWhatARankSends) {
  const auto us_of = [&](const char* name, std::uint64_t bytes) {
    w = ProgramRecord();
    return us(timed([&] {
      Collective c{};
      c.name = w.name(name);
      c.ranks = 4;
      c.bytes = bytes;
      w.add(c);
      wait();
    }));
  };
  EXPECT_NEAR(us_of("ncclAllReduce", 100'000), 10 + 150, 1e-6);
  EXPECT_NEAR(us_of("ncclReduceScatter", 100'000), 10 + 75, 1e-6);
  EXPECT_NEAR(us_of("ncclAllGather", 25'000), 10 + 75, 1e-6);
  EXPECT_NEAR(us_of("ncclBroadcast", 100'000), 10 + 100, 1e-6);
}

TEST_F(Clockwork, SmallWorkIsLimitedByTheHost) {
  const auto t = timed([&] {
    for (int i = 0; i < 10; ++i) kernel(1000);
  });
  EXPECT_NEAR(us(t), 100, 1e-6) << "ten launches of 10 us each";
  EXPECT_NEAR(t.step->idle_s * 1e6, 90, 1e-6);
  EXPECT_NEAR(t.step->host_s * 1e6, 100, 1e-6);
}

TEST_F(Clockwork, TheIntervalIsTheHostsWhereTheHostLimits) {
  rates.low = 0.9;
  rates.high = 1.1;
  rates.bare_low = 0.5;
  rates.bare_high = 3;
  const auto host = timed([&] { kernel(1000); });
  EXPECT_NEAR(host.low_s * 1e6, 0.9 * 5, 1e-6);
  EXPECT_NEAR(host.high_s * 1e6, 1.1 * 30, 1e-6);
  w = ProgramRecord();
  const auto card = timed([&] { kernel(100'000); });
  EXPECT_NEAR(card.low_s * 1e6, 0.9 * 100, 1e-6);
  EXPECT_NEAR(card.high_s * 1e6, 1.1 * 100, 1e-6);
}

// Two products of 2e5 operations, at 1e9 a second by the rates: the card's most is a little above, so no step is shorter than 2 x 160 us.
TEST_F(Clockwork, NoStepPassesTheMostOfTheCard) {
  rates.low = 0.5;
  rates.brain = rates.half;
  rates.brain.most = 1.25e9;
  rates.units = 1;
  const auto product = [&](const char* name, std::uint32_t stream) {
    Product p{};
    p.name = w.name(name);
    p.stream = stream;
    p.m = p.k = 50, p.n = 40, p.batch = 1;
    p.type_a = p.type_b = p.type_c = 14;
    w.add(p);
  };
  const auto two = [&](const char* name, std::uint32_t second_stream) {
    w = ProgramRecord();
    return timed([&] {
      product(name, 0);
      product(name, second_stream);
      wait();
    });
  };
  const auto behind = two("cublasGemmEx", 0), beside = two("cublasGemmEx", 1);
  EXPECT_NEAR(behind.step->least_s * 1e6, 320, 1e-6);
  EXPECT_NEAR(behind.low_s * 1e6, std::max(320.0, 0.5 * us(behind)), 1e-6);
  EXPECT_GE(us(beside), 320 - 1e-6) << "two streams have one card";
  EXPECT_GE(beside.low_s * 1e6, 320 - 1e-6);
  EXPECT_EQ(two("cuDNN convolution", 0).step->least_s, 0) << "which may take fewer operations than its sides say";
}

TEST_F(Clockwork, WhatWasCountedOfTheHostIsItsTime) {
  rates.host = {.function_s = 1e-6,
                .builtin_s = 2e-6,
                .operation_s = 3e-6,
                .node_s = 4e-6,
                .block_s = 5e-6,
                .byte_s = 1e-6,
                .launch_s = 100e-6,
                .copy_s = 200e-6,
                .wait_s = 300e-6};
  const auto t = timed([&] {
    w.add(HostWork{1, 1, 1, 1, 4});
    kernel(10);
    w.take(0x1000, 512);
    w.give(0x1000);
    w.add(Copy{0, 0, Way::to_device, 0, 8});
    wait();
    w.add(HostWork{0, 0, 7, 0, 0});
  });
  EXPECT_NEAR(t.step->host_s * 1e6, 10 + 4 + 100 + 5 + 200 + 300 + 7, 1e-6);
}

TEST_F(Clockwork, WithoutPythonsCallsEveryLaunchCostsTheSame) {
  rates.host = {.function_s = 1, .builtin_s = 1, .operation_s = 1, .node_s = 1, .block_s = 1, .launch_s = 1};
  rates.bare_wait_s = 5e-6;
  const auto t = timed([&] {
    w.add(HostWork{9, 9, 0, 0, 9});
    kernel(10);
    w.take(0x1000, 512);
    w.give(0x1000);
    wait();
  });
  EXPECT_NEAR(t.step->host_s * 1e6, 15, 1e-6) << "a profiler of the program's own was in the way";
}

TEST_F(Clockwork, WhatTheHostDoesWhileTheCardIsBusyCostsNothing) {
  rates.host = {.operation_s = 1e-6, .launch_s = 1e-6};
  const auto t = timed([&] {
    w.add(HostWork{10, 0, 1, 0, 0});
    kernel(100'000);
  });
  EXPECT_NEAR(us(t), 100, 1e-6);
}

TEST_F(Clockwork, AGraphCostsTheHostOneCall) {
  rates.host.graph_s = 5e-6;
  const auto graph = [&](GraphDone done) { w.add(Graph{done, 0, 0, 3}); };
  graph(GraphDone::begin);
  for (int i = 0; i < 50; ++i) kernel(1000, 0, 3);
  graph(GraphDone::end);
  const auto t = timed([&] {
    graph(GraphDone::launch);
    wait();
  });
  EXPECT_NEAR(us(t), 55, 1e-6);
  EXPECT_EQ(t.step->parts[std::size_t(Part::kernels)].count, 50);
}

TEST_F(Clockwork, WithoutALikelyStepThereIsAReason) {
  EXPECT_NE(timed([&] { kernel(1); }, 0).why.find("no optimizer step"), std::string::npos);
  EXPECT_NE(timed([] {}).why.find("no work"), std::string::npos);
  w = ProgramRecord();
  EXPECT_NE(timed([&] { kernel(1); }, 1).why.find("--steps"), std::string::npos);
  w = ProgramRecord();
  const auto offloaded = timed([&] {
    w.mark("host update", "CPUAdam", 8 << 20);
    kernel(1);
  });
  EXPECT_FALSE(offloaded.step.has_value());
  EXPECT_NE(offloaded.why.find("CPUAdam updates 8.00 MiB"), std::string::npos) << offloaded.why;
  w = ProgramRecord();
  const auto captures = timed([&] {
    w.add(Graph{GraphDone::begin, 0, 0, 3});
    kernel(1, 0, 3);
  });
  EXPECT_FALSE(captures.step.has_value());
  EXPECT_NE(captures.why.find("captures"), std::string::npos);
}

TEST_F(Clockwork, ListsOfTensorsMoveWhatTheirFunctorReadsAndWrites) {
  Launch l{};
  l.grid[0] = 10;
  l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
  l.block[0] = 512;
  l.reached_bytes = 4'000'000;
  const auto bytes = [&](const char* name) { return work_of(l, name, rates).bytes; };
  constexpr double piece = 65536 * 4;
  EXPECT_EQ(bytes("_Z25multi_tensor_apply_kernelI...FusedAdamMathFunctorIfLi4E"), 7e6) << "four lists, seven streams of bytes";
  EXPECT_EQ(bytes("_Z25multi_tensor_apply_kernelI...13LpNormFunctorIf"), 10 * piece) << "no more than ten pieces";
  EXPECT_EQ(bytes("_Z25multi_tensor_apply_kernelI...21BinaryOpScalarFunctorIfLi1ELi1ELi0EE"), 2 * 10 * piece);
  EXPECT_EQ(bytes("_Z3addPf"), 4e6);
}

TEST_F(Clockwork, FlashKernelsAreAttention) {
  Launch l{};
  l.grid[0] = 8;  // tiles of 128 rows
  l.grid[1] = 2;
  l.grid[2] = 4;
  const auto named = [](const std::string& kernel, const std::string& flags) {
    return "_ZN13pytorch_flash" + kernel +
           "I23Flash_fwd_kernel_traitsILi64ELi128ELi128ELi4ELb0ELb0EN7cutlass6half_tE19Flash_kernel_traits" +
           "ILi64ELi128ELi128ELi4ES3_EE" + flags + "EEvNS_16Flash_fwd_paramsE";
  };
  const double flops = 4.0 * 8 * 1024 * 1024 * 64;
  const LaunchWork causal = work_of(l, named("16flash_fwd_kernel", "Lb0ELb1ELb0ELb0ELb1ELb1ELb0ELb0E"), rates);
  EXPECT_EQ(causal.part, Part::attention);
  EXPECT_EQ(causal.flops, flops / 2);
  EXPECT_EQ(work_of(l, named("16flash_fwd_kernel", "Lb0ELb0ELb0ELb0ELb1ELb1ELb0ELb0E"), rates).flops, flops);
  EXPECT_EQ(work_of(l, named("24flash_fwd_splitkv_kernel", "Lb0ELb0ELb0ELb1ELb1ELb0ELb1ELb0E"), rates).flops, flops / 2)
      << "two parts of the keys";
  EXPECT_EQ(work_of(l, named("44flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "Lb0ELb0ELb0E"), rates).flops, 2.5 * flops);
  l.reached_bytes = 1ull << 40;  // all that the pointers among its parameters reach
  const double blocks = double(l.grid[0]) * l.grid[1] * l.grid[2];
  EXPECT_EQ(work_of(l, named("25flash_bwd_dot_do_o_kernel", ""), rates).bytes, blocks * 128 * 64 * (2 + 2)) << "dO and O";
  EXPECT_EQ(work_of(l, named("27flash_bwd_convert_dq_kernel", ""), rates).bytes, blocks * 128 * 64 * (4 + 2)) << "FP32 to 16 bits";
}

TEST_F(Clockwork, MemoryEfficientKernelsAreAttention) {
  Launch l{};
  l.grid[0] = 16;
  l.grid[1] = 8;
  l.grid[2] = 2;
  const LaunchWork forward = work_of(l, "_Z41fmha_cutlassF_bf16_aligned_64x128_rf_sm80N22PyTorchMemEffAttention", rates);
  EXPECT_EQ(forward.part, Part::attention);
  EXPECT_EQ(forward.flops, 4.0 * 16 * 1024 * 1024 * 128 / 2);
  const LaunchWork backward = work_of(l, "_Z42fmha_cutlassB_f32_aligned_128x64_k128_sm80N22PyTorchMemEffAttentio", rates);
  EXPECT_EQ(backward.flops, 10.0 * 16 * 1024 * 1024 * 128 / 2);
}

TEST_F(Clockwork, StridedOperandsCostByTheElement) {
  Launch l{};
  l.grid[0] = 1000;
  l.grid[1] = l.grid[2] = l.block[1] = l.block[2] = 1;
  l.block[0] = 128;
  l.reached_bytes = 1ull << 40;  // an expanded operand reaches far
  const LaunchWork work = work_of(l, "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastI", rates);
  EXPECT_EQ(work.bytes, 1000 * 128 * 2 * 12.0);
}

Product in_bf16(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  Product p{};
  p.m = m, p.n = n, p.k = k, p.batch = batch;
  p.type_a = p.type_b = p.type_c = 14;
  return p;
}

TEST_F(Clockwork, AnOddSideMakesA16BitProductSlow) {
  Product p = in_bf16(50'256, 2048, 768);
  const Rates r = rates_of_h200();
  const double even = seconds_of(p, r);
  p.m = 50'257;
  EXPECT_GT(seconds_of(p, r), 3 * even);
}

TEST_F(Clockwork, AConvolutionOfSingleChannelsTakesAsLongAsMemory) {
  Product p = in_bf16(49'152, 1, 9, 128);
  const Rates r = rates_of_h200();
  const double bytes = 2.0 * double(p.m) * double(p.batch) * 2;
  const double s = seconds_of(p, "cuDNN convolution, forward", r);
  EXPECT_NEAR(s, r.single_channels.start_s + bytes / r.single_channels.bytes_per_s, 1e-9);
  EXPECT_LT(14e-6, s) << "an H200 took 14 us forward and 22 us for the gradient of the input";
  EXPECT_LT(s, 22e-6);
  EXPECT_EQ(seconds_of(p, "cublasGemmStridedBatchedEx", r), seconds_of(p, r)) << "a product of that shape is one";
  p.n = 2;
  EXPECT_EQ(seconds_of(p, "cuDNN convolution, forward", r), seconds_of(p, r));
}

TEST_F(Clockwork, PlacesOfASequenceCostTheHostALaunchEach) {
  rates.host.launch_s = 10e-6;
  rates.host.convolution_s = 500e-6;
  const auto product = [&](const char* name) {
    Product p{};
    p.name = w.name(name);
    p.m = p.n = p.k = p.batch = 1;
    w.add(p);
  };
  const StepTimed t = timed([&] {
    w.add(HostWork{1, 1, 1, 1, 0});
    product("cuDNN recurrent layers, forward");
    for (int place = 0; place < 20; ++place) product("cuDNN recurrent layers, state");
  });
  EXPECT_NEAR(t.step->host_s, 500e-6 + 20 * 10e-6, 1e-9);
}

TEST_F(Clockwork, AProductTakesLongerWithMoreOfAnything) {
  const auto seconds = [](std::int64_t m, std::int64_t n, std::int64_t k) { return seconds_of(in_bf16(m, n, k), rates_of_h200()); };
  for (const std::int64_t size : {64, 768, 1000, 4096, 16384}) {
    EXPECT_LE(seconds(size, size, size), seconds(2 * size, size, size)) << "a wave may have room for more";
    EXPECT_LE(seconds(size, size, size), seconds(size, 2 * size, size));
    EXPECT_LT(seconds(size, size, size), seconds(size, size, 2 * size));
  }
  EXPECT_GT(seconds(8192, 4096, 4096), 1.8 * seconds(4096, 4096, 4096));
}

}  // namespace
}  // namespace headroom::dry
