// A machine without a GPU, or without GPU kernels beside the program, forecasts a GPU's scratch exactly: each op's is ordinary arithmetic in its door.
#include <gtest/gtest.h>

#include <functional>

#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/bias/bias.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/head_norm/head_norm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/swiglu/swiglu.h"

namespace headroom {
namespace {

std::size_t scratch_on(const Device& d, const std::function<void(Context&)>& op) {
  Arena dry;
  Context ctx{dry, d};
  op(ctx);
  return dry.peak();
}
Tensor shaped(DType t, Shape s) { return {nullptr, t, s}; }

const Device& h200() {
  static const Device d = device_described("h200");
  return d;
}

TEST(GpuScratch, IsKnownWithoutOne) {
  const Tensor x = shaped(DType::bf16, {4096, 1280}), w = shaped(DType::f32, {1280}), rstd = shaped(DType::f32, {4096});
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { rmsnorm::forward({x, w, x, rstd}, c); }), 0);
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { rmsnorm::backward({x, w, rstd, x, x, w}, c); }), 512 * 1280 * 4);
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { bias::backward(x, w, Gradient::overwrite, c); }), 512 * 1280 * 4);
  const Tensor tokens = shaped(DType::i32, {4096}), table = shaped(DType::f32, {10000, 1280});
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { embedding::backward(tokens, x, table, Gradient::overwrite, c); }),
            Arena::rounded(10001 * 4) + 2 * 4096 * 4);
  const Tensor gate_up = shaped(DType::bf16, {4096, 2560});
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { swiglu::backward({gate_up, x, gate_up}, c); }), 0);
  const Tensor heads = shaped(DType::bf16, {4, 1024, 20, 64}), turns = shaped(DType::f32, {1024, 64}), head = shaped(DType::f32, {64});
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { rope::rotate(heads, turns, rope::Turn::forward, c); }), 0);
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { head_norm::backward({heads, head, turns, heads, head}, c); }), 512 * 64 * 4);
  const Tensor logits = shaped(DType::f32, {512, 10000}), some = shaped(DType::i32, {512}), losses = shaped(DType::f32, {512});
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { cross_entropy::run({logits, some, losses, logits}, c); }), 0);
  const std::vector<adamw::Update> all(3, adamw::Update{table, table, table, table, shaped(DType::bf16, {10000, 1280})});
  EXPECT_EQ(scratch_on(h200(), [&](Context& c) { adamw::update(all, shaped(DType::f64, {adamw::state_size}), {}, c); }),
            256 + 256);  // an exact sum, and the numbers
}

TEST(GpuScratch, IsNotTheCpus) {
  const Tensor x = shaped(DType::bf16, {4096, 1280}), w = shaped(DType::f32, {1280}), rstd = shaped(DType::f32, {4096});
  EXPECT_EQ(scratch_on(Device(), [&](Context& c) { rmsnorm::backward({x, w, rstd, x, x, w}, c); }), 64 * 1280 * 4);
}

// Few new positions against a cache: which problems, by whom, and what of scratch, on cards that are described only.
TEST(GpuScratch, OfDecodingIsTwoPartsOfAClusterWhereUnitsAreCut) {
  using namespace attention;
  const Variant* decode = variant_named("flash_decode");
  ASSERT_NE(decode, nullptr);
  Problem p;
  p.batch = 4, p.heads = 32, p.kv_heads = 8, p.len_q = 1, p.len_k = 8192, p.head_dim = 128, p.mask = Mask::causal();
  p.precision = {DType::bf16};
  const Support s = decode->supports(p, h200(), Pass::forward);
  ASSERT_TRUE(s) << s.why;
  const auto bytes_of = [&](std::int64_t clusters, std::int64_t rows, std::int64_t dim) {
    return Arena::rounded(std::size_t(2 * clusters * rows * (dim / 2 + 1) * 16));
  };
  const auto bytes = [&] { return workspace_bytes(*decode, p, h200(), Pass::forward, 1); };
  const auto chosen = [&](const Device& d) { return choose(p, d).name; };
  EXPECT_EQ(chosen(h200()), "flash_decode");
  EXPECT_EQ(chosen(device_described("a100")), "flash_decode");
  EXPECT_EQ(chosen(device_described("rtx4090")), "flash_sm80");  // too little shared memory a block
  EXPECT_EQ(bytes(), bytes_of(128, 4, 128));
  p.documents = 1;  // lengths that differ: the same scratch whatever they are
  EXPECT_EQ(bytes(), bytes_of(128, 4, 128));
  p.len_q = 5;
  EXPECT_EQ(bytes(), bytes_of(128, 20, 128));
  p.len_k = 1024;  // a cluster for each unit
  EXPECT_EQ(bytes(), bytes_of(32, 20, 128));
  p.documents = 0, p.batch = 1, p.len_k = 300, p.len_q = 1, p.head_dim = 64;
  EXPECT_EQ(bytes(), bytes_of(24, 4, 64));  // a dense cache: 3 blocks a unit
  p.head_dim = 128;
  EXPECT_EQ(bytes(), 0u);  // each unit is one cluster's alone
  p.head_dim = 64, p.len_k = 65536;
  EXPECT_EQ(bytes(), bytes_of(128, 4, 64));
  p.mask = Mask::sliding(100);
  EXPECT_EQ(bytes(), 0u);
  p.len_k = 304;
  p.page = 16, p.pages = 19;
  EXPECT_EQ(choose(p, h200(), "", Pass::forward).name, "flash_decode");
  EXPECT_FALSE(decode->supports(p, h200(), Pass::backward));
  p.page = 0, p.len_q = 17;
  EXPECT_NE(chosen(h200()), "flash_decode");
  p.len_q = 1, p.precision = {DType::f32};
  EXPECT_EQ(chosen(h200()), "flash_sm80_fp32");
  p.precision = {DType::f16}, p.heads = 96, p.kv_heads = 1;  // 96 rows: enough to be bound by products
  EXPECT_EQ(chosen(h200()), "flash_sm90");
  p.page = 16;  // which flash_sm90 does not serve
  EXPECT_EQ(choose(p, h200(), "", Pass::forward).name, "flash_decode");
  EXPECT_EQ(bytes(), 0u);
}

// fp32 by three products of tf32, where tf32 is known to be fast; by flash_simt on other cards, and where dropout or a scale below 0 is asked.
TEST(GpuScratch, OfFp32IsTheSameByEitherKernel) {
  using namespace attention;
  Problem p;
  p.batch = 2, p.heads = 4, p.kv_heads = 2, p.len_q = 300, p.len_k = 500, p.head_dim = 128, p.mask = Mask::causal();
  p.precision = {DType::f32};
  const auto chosen = [&](const char* card, Pass last = Pass::forward) { return choose(p, device_described(card), "flash", last).name; };
  for (const char* card : {"a100", "h100", "h200"}) EXPECT_EQ(chosen(card), "flash_sm80_fp32") << card;
  for (const char* card : {"rtx4090", "h20"}) EXPECT_EQ(chosen(card), "flash_simt") << card;
  for (const std::int64_t dim : {32, 64, 128, 256}) {
    p.head_dim = dim;
    EXPECT_EQ(chosen("h200", Pass::backward), "flash_sm80_fp32") << dim;
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const char* card : {"a100", "h200"})
        EXPECT_EQ(workspace_bytes(*variant_named("flash_sm80_fp32"), p, device_described(card), pass, 1),
                  workspace_bytes(*variant_named("flash_simt"), p, device_described(card), pass, 1));
  }
  p.scale = -1.0f;
  EXPECT_EQ(chosen("h200"), "flash_simt");
  p.scale = std::nullopt, p.dropout = 0.1f;
  EXPECT_EQ(chosen("h200"), "flash_simt");
  p.dropout = 0, p.precision.math = Math::tf32;
  EXPECT_EQ(chosen("h200"), "flash_sm80");
}

TEST(Doors, RefuseTensorsThatDoNotFitTogether) {
  const Tensor x = shaped(DType::bf16, {8, 16}), wrong = shaped(DType::bf16, {8, 15}), w = shaped(DType::f32, {16}),
               rstd = shaped(DType::f32, {8}), tokens = shaped(DType::i32, {7});
  const auto refused = [&](const std::function<void(Context&)>& op) {
    try {
      scratch_on(Device(), op);
    } catch (const Error& e) { return e.at.code == Code::bad_argument; }
    return false;
  };
  EXPECT_TRUE(refused([&](Context& c) { rmsnorm::forward({x, w, wrong, rstd}, c); }));
  EXPECT_TRUE(refused([&](Context& c) { rmsnorm::forward({x, rstd, x, rstd}, c); }));
  EXPECT_TRUE(refused([&](Context& c) { swiglu::forward({x, wrong}, c); }));
  EXPECT_TRUE(refused([&](Context& c) { bias::add(x, rstd, c); }));
  EXPECT_TRUE(refused([&](Context& c) { embedding::forward(x, tokens, x, c); }));
  EXPECT_TRUE(refused([&](Context& c) { cross_entropy::run({x, tokens, rstd, {}}, c); }));
  EXPECT_TRUE(refused([&](Context& c) { adamw::update(std::vector{adamw::Update{w, w, w, rstd, {}}}, rstd, {}, c); }));
}

}  // namespace
}  // namespace headroom
