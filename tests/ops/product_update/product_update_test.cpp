#include "ops/product_update/product_update.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "memory/block.h"
#include "ops/copy/split.h"
#include "ops/matmul/matmul.h"
#include "ops/product_update/deal.h"

namespace headroom::product_update {
namespace {

const Device cpu;
constexpr adamw::Hyper hyper{.clip = 0};

Tensor shaped(DType t, Shape s) { return {nullptr, t, s}; }

// The tensors of one weight, in an arena or, when that is dry, only their shapes.
Item made(Arena& arena, std::int64_t tokens, std::int64_t out, std::int64_t in, std::uint64_t seed = 0) {
  Item i;
  i.dy = arena.make("dy", DType::bf16, {tokens, out}), i.x = arena.make("x", DType::bf16, {tokens, in});
  i.weight.m = arena.make("m", DType::f32, {out, in}), i.weight.v = arena.make("v", DType::f32, {out, in});
  i.weight.copy = arena.make("copy", DType::bf16, {out, in}), i.weight.rest = arena.make("rest", DType::u16, {out, in});
  if (arena.dry()) return i;
  const Random random{seed};
  for (const Tensor* t : {&i.dy, &i.x})
    for (std::int64_t e = 0; e < t->count(); ++e) t->as<bf16>()[e] = narrow<bf16>(random.stream(t == &i.x).normal(std::uint64_t(e)));
  for (std::int64_t e = 0; e < out * in; ++e) {
    const auto [upper, rest] = copy::split(random.stream(2).normal(std::uint64_t(e)));
    i.weight.copy.as<bf16>()[e] = upper, i.weight.rest.as<std::uint16_t>()[e] = rest;
    i.weight.m.as<float>()[e] = random.stream(3).normal(std::uint64_t(e));
    i.weight.v.as<float>()[e] = std::abs(random.stream(4).normal(std::uint64_t(e)));
  }
  return i;
}

TEST(ProductUpdate, IsAProductAndAnUpdateToTheBit) {
  Block block(64 << 20);
  Arena arena(block.data(), block.bytes());
  Threads pool(2);
  Context ctx{arena, cpu, &pool};
  const Tensor state = arena.make("state", DType::f64, {adamw::state_size});
  adamw::start(state, 8, ctx), adamw::set_rate(state, 1e-2, ctx);
  const Tensor numbers = adamw::begin(state, hyper, ctx);
  struct {
    std::int64_t tokens, out, in;
  } const shapes[] = {{17, 24, 40}, {64, 256, 512}, {1, 1, 3}};
  std::vector<Item> items, apart;
  for (const auto& s : shapes) {
    const std::uint64_t seed = items.size();
    items.push_back(made(arena, s.tokens, s.out, s.in, seed)), apart.push_back(made(arena, s.tokens, s.out, s.in, seed));
  }
  advance(items, numbers, ctx);
  for (std::size_t i = 0; i < items.size(); ++i) {
    adamw::Update w = apart[i].weight;
    w.grad = arena.make("grad", DType::bf16, w.copy.shape);
    ASSERT_EQ(0, std::memcmp(items[i].dy.data, apart[i].dy.data, apart[i].dy.bytes())) << "both start from the same";
    matmul::multiply({matmul::transposed(apart[i].dy), apart[i].x, w.grad}, ctx);
    const std::vector<float> before(w.m.as<float>(), w.m.as<float>() + w.m.count());
    adamw::advance({&w, 1}, numbers, ctx);
    EXPECT_NE(0, std::memcmp(before.data(), w.m.data, w.m.bytes()));
    const adamw::Update& got = items[i].weight;
    for (const auto& [a, b] : {std::pair{got.m, w.m}, std::pair{got.v, w.v}, std::pair{got.copy, w.copy}, std::pair{got.rest, w.rest}})
      EXPECT_EQ(0, std::memcmp(a.data, b.data, a.bytes())) << "weight " << i;
  }
}

Tensor numbers_on(const Device& d) {
  Arena dry;
  Context ctx{dry, d};
  return product_update::begin(shaped(DType::f64, {adamw::state_size}), hyper, ctx);
}

std::size_t scratch_on(const Device& d, const std::vector<Item>& items) {
  Arena dry;
  Context ctx{dry, d};
  advance(items, numbers_on(d), ctx);
  return dry.peak();
}

TEST(ProductUpdate, ADryRunNeedsOneGradientOnACpuAndSumsOfSharedTilesOnAGpu) {
  Arena shapes;
  const std::vector<Item> items{made(shapes, 192, 256, 512), made(shapes, 192, 768, 1024), made(shapes, 64, 512, 512)};
  EXPECT_EQ(scratch_on(device_described("h200"), items), 0);
  Arena product;
  Context ctx{product, cpu};
  const Tensor grad = product.make("grad", DType::bf16, {768, 1024});
  matmul::multiply({matmul::transposed(items[1].dy), items[1].x, grad}, ctx);
  EXPECT_EQ(scratch_on(cpu, items), product.peak());

  const std::size_t sum = 256 * 256 * sizeof(float);
  EXPECT_EQ(scratch_on(device_described("h200"), {made(shapes, 4096, 2304, 768), made(shapes, 4096, 768, 768)}), 66 * sum);  // 36 tiles
  EXPECT_EQ(scratch_on(device_described("h200"), {made(shapes, 4096, 20480, 2560), made(shapes, 4096, 2560, 10240)}),
            48 * sum);                                                                          // 12 more than 1188
  EXPECT_EQ(scratch_on(device_described("h200"), {made(shapes, 4096, 256 * 11, 256 * 6)}), 0);  // 66 tiles
  EXPECT_EQ(scratch_on(device_described("h200"), {made(shapes, 4096, 256 * 10, 256 * 6)}), 0);  // 60: six clusters that idle are no loss
}

// Every step of every tile is summed once; what a turn waits for comes from earlier turns, and is the first that these do.
TEST(ProductUpdate, SharersHaveEveryStepOnceAndWaitForEarlierOnesAlone) {
  for (const auto& [shared, sharers, steps] :
       {std::tuple{1, 4, 16}, {1, 4, 17}, {5, 20, 9}, {17, 66, 64}, {36, 66, 64}, {36, 66, 1}, {55, 66, 63}, {65, 66, 4096}, {3, 3, 8}}) {
    SCOPED_TRACE(fmt::format("{} tiles, {} sharers, {} steps", shared, sharers, steps));
    const Deal d{.whole = 132, .shared = shared, .sharers = sharers, .steps = steps};
    std::vector<int> next(std::size_t(shared), 0), first(std::size_t(shared), -1), completed(std::size_t(shared), 0);
    for (int turn = d.whole; turn < d.turns(); ++turn) {
      const Part parts[] = {d.part(turn, 0), d.part(turn, 1)};
      int completes = -1;
      for (const Part* p : {&parts[1], &parts[0]}) {  // in the order of the steps
        if (!p->any()) continue;
        const auto tile = std::size_t(p->tile - d.whole);
        ASSERT_LT(tile, next.size());
        EXPECT_EQ(p->begin, std::exchange(next[tile], p->end));
        if (first[tile] < 0) first[tile] = turn - d.whole;
        EXPECT_EQ(d.first_sharer(p->tile), first[tile]);
        if (!d.last_of_tile(*p)) continue;
        completes = p->tile;
        EXPECT_TRUE(p == &parts[1] || !parts[1].any()) << "others wait for the second part";
        ++completed[tile];
      }
      EXPECT_EQ(d.completed(turn), completes);
    }
    EXPECT_EQ(next, std::vector<int>(std::size_t(shared), steps));
    EXPECT_EQ(completed, std::vector<int>(std::size_t(shared), 1));
  }
}

TEST(ProductUpdate, WantsItsOwnNumbersWhereTilesAreShared) {
  Arena dry;
  Context ctx{dry, device_described("h200")};
  const std::vector<Item> items{made(dry, 4096, 768, 768)};
  const Tensor of_adamw = adamw::begin(shaped(DType::f64, {adamw::state_size}), hyper, ctx);
  EXPECT_THROW(advance(items, of_adamw, ctx), Error);
  EXPECT_NO_THROW(advance(items, numbers_on(ctx.device), ctx));
}

TEST(ProductUpdate, IsOneOpOnAGpu) {
  const Device h200 = device_described("h200");
  Arena dry;
  Walk walk;
  Context ctx{.arena = dry, .device = h200, .walk = &walk};
  const std::vector<Item> items{made(dry, 192, 256, 512), made(dry, 64, 768, 1024)};
  advance(items, numbers_on(h200), ctx);
  ASSERT_EQ(walk.steps.size(), 1u);
  EXPECT_EQ(walk.steps[0].cost.flops, 256 * 512 * (2. * 192 + 15) + 768 * 1024 * (2. * 64 + 15));
  EXPECT_EQ(walk.steps[0].cost.bytes, 2. * 192 * (256 + 512) + 2. * 64 * (768 + 1024) + 24. * (256 * 512 + 768 * 1024));
}

std::string refusal(const Device& d, const std::vector<Item>& items) {
  try {
    scratch_on(d, items);
  } catch (const Error& e) { return e.what(); }
  return "";
}
void expect_refusal(const Device& d, const std::vector<Item>& items, const std::string& part) {
  EXPECT_NE(refusal(d, items).find(part), std::string::npos) << "'" << part << "' is not in '" << refusal(d, items) << "'";
}

TEST(ProductUpdate, RefusesWhatItDoesNotServe) {
  const Device h200 = device_described("h200");
  Arena shapes;
  const Item good = made(shapes, 192, 256, 512);
  EXPECT_EQ(refusal(h200, {good}), "");
  EXPECT_EQ(refusal(h200, {good, good, good, good}), "");
  expect_refusal(h200, {good, good, good, good, good}, "5 weights; a launch takes 4");

  expect_refusal(h200, {made(shapes, 192, 256, 500)}, "8 must divide the sides of a weight");
  expect_refusal(h200, {good, made(shapes, 192, 100, 512)}, "one is 100 x 512");
  expect_refusal(h200, {made(shapes, 0, 256, 512)}, "is no gradient of a weight of 256x512");
  EXPECT_EQ(refusal(cpu, {made(shapes, 100, 24, 500)}), "");
  Device ampere = h200;
  ampere.sm = 80, ampere.name = "A100";
  expect_refusal(ampere, {good}, "A100 is sm_80");

  const auto with = [&](auto change) {
    Item i = good;
    change(i);
    return std::vector{i};
  };
  for (const Device& d : {cpu, h200}) {
    expect_refusal(d, with([](Item& i) { i.dy = shaped(DType::bf16, {192, 512}); }), "is no gradient of a weight of 256x512");
    expect_refusal(d, with([](Item& i) { i.x = shaped(DType::bf16, {64, 512}); }), "is no gradient of a weight of 256x512");
    expect_refusal(d, with([](Item& i) { i.x = matmul::transposed(shaped(DType::bf16, {512, 192})); }), "all contiguous");
    expect_refusal(d, with([](Item& i) { i.x = shaped(DType::f16, {192, 512}); }), "factors are bf16 and fp16");
    expect_refusal(d, with([](Item& i) { i.weight.copy = shaped(DType::f16, {256, 512}); }), "the weight fp16; bf16 is served");
    expect_refusal(d, with([](Item& i) { i.weight.master = i.weight.m, i.weight.rest = {}; }), "a weight must be in halves");
    expect_refusal(d, with([](Item& i) { i.weight.decay = false; }), "and decay");
    expect_refusal(d, with([](Item& i) { i.weight.m = shaped(DType::f32, {256, 511}); }), "each of the weight's 131072 elements");
    expect_refusal(d, with([](Item& i) { i.weight.rest = shaped(DType::f32, {256, 512}); }), "a rest 16 bits");
  }
}

Item in_fp8(std::int64_t tokens, std::int64_t out, std::int64_t in, ScaleKind of_dy, ScaleKind of_x, DType dy = DType::e4m3,
            DType x = DType::e4m3) {
  Arena shapes;
  Item i = made(shapes, 1, out, in);
  i.dy = i.x = {};
  i.dy_transposed = {shaped(dy, {out, tokens}), shaped(DType::f32, scale_shape(of_dy, out, tokens)), of_dy};
  i.x_transposed = {shaped(x, {in, tokens}), shaped(DType::f32, scale_shape(of_x, in, tokens)), of_x};
  i.sums = matmul::Sums::two_level;
  return i;
}

TEST(ProductUpdate, OfEightBitsAGpuTakesWhatAStepMakes) {
  using enum ScaleKind;
  const Device h200 = device_described("h200");
  for (const auto& [of_dy, of_x] : {std::pair{one, one}, {row, row}, {block, run}})
    for (const DType dy : {DType::e4m3, DType::e5m2}) {
      const Item i = in_fp8(192, 256, 512, of_dy, of_x, dy);
      EXPECT_EQ(refusal(h200, {i, i}), "");
      EXPECT_EQ(scratch_on(h200, {i}), 0);
    }
  const Item good = in_fp8(192, 256, 512, block, run);
  expect_refusal(h200, {in_fp8(192, 256, 512, run, run)}, "scales by 1x128 with scales by 1x128");
  expect_refusal(h200, {in_fp8(192, 256, 512, row, one)}, "scales by row with scales by tensor");
  expect_refusal(h200, {in_fp8(192, 256, 512, block, run, DType::e4m3, DType::e5m2)}, "on a GPU x is e4m3, it is e5m2");
  expect_refusal(h200, {in_fp8(200, 256, 512, block, run)}, "there are 200 tokens");
  expect_refusal(h200, {in_fp8(192, 256, 500, block, run)}, "256 must divide the sides of a weight");
  expect_refusal(h200, {good, in_fp8(192, 256, 512, row, row)}, "one type and kind of scale");
  Arena shapes;
  expect_refusal(h200, {good, made(shapes, 192, 256, 512)}, "one type and kind of scale");
  for (const Device& d : {cpu, h200}) {
    Item i = good;
    i.x_transposed.scale = {};
    expect_refusal(d, {i}, "x has scales by 1x128, which are 1024 fp32 values");
    i = good, i.dy_transposed.scale = shaped(DType::f32, {3});
    expect_refusal(d, {i}, "dy has scales by 128x128, which are 8 fp32 values");
  }
}

}  // namespace
}  // namespace headroom::product_update
