#include "tests/ops/product_update/updated_on_card.h"

namespace headroom::product_update {
namespace {

using namespace on_card;

using Size = UpdateSize;

struct Weight {
  Size size;
  Twin dy{DType::bf16, {size.tokens, size.out}}, x{DType::bf16, {size.tokens, size.in}};
  Updated updated{size};

  Weight(const Size& s, std::uint64_t seed) : size(s) {
    dy.normal(seed), x.normal(seed + 1);
    const Random random = Random{7}.stream(seed + 4);
    for (std::int64_t i = 0; i < s.out * s.in; ++i) {
      const auto n = std::uint64_t(i);
      updated.set(i, random.normal(n), random.stream(1).normal(n), std::fabs(random.stream(2).normal(n)));
    }
  }
  std::vector<Twin*> inputs() { return {&dy, &x}; }
  template <class Of>
  Item item(Of&& of) {
    return {of(dy), of(x), updated.update(of)};
  }
};

using Weights = std::vector<Weight>;
Weights weights_of(const std::vector<Size>& sizes) {
  Weights all;
  for (const Size& s : sizes) all.emplace_back(s, 10 * all.size());
  return all;
}
class ProductUpdateGpu : public UpdatedOnCard<Weight> {
 protected:
  std::vector<float> product(Tensor dy, Tensor x) {
    std::vector<float> c(std::size_t(dy.shape[1] * x.shape[1]));
    on_cpu([&](Context& ctx) { matmul::multiply({matmul::transposed(dy), x, {c.data(), DType::f32, {dy.shape[1], x.shape[1]}}}, ctx); });
    return c;
  }
  void compare(Weight& before, Weight& cpu, Weight& gpu);
  void the_update_is_adamws(const std::vector<Size>&, DType moments = DType::f32);
  void repeats(const std::vector<Size>&);
  void check(const std::vector<Size>& sizes) {
    Weights before = weights_of(sizes), cpu = before, gpu = before;
    Twin cpu_state = state;
    on_cpu([&](Context& ctx) {
      auto scope = ctx.arena.scope();
      std::vector<Item> items;
      for (Weight& w : cpu) items.push_back(w.item(here));
      advance(items, product_update::begin(cpu_state.here(), hyper, ctx), ctx);
    });
    run(gpu);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Size& s = sizes[i];
      SCOPED_TRACE(fmt::format("weight {} of {}: {} x {}, {} tokens", i, sizes.size(), s.out, s.in, s.tokens));
      compare(before[i], cpu[i], gpu[i]);
    }
  }
};

// How far a moment may lie from the CPU's follows from how far the gradient g may: the two sums over n tokens in other orders (a tensor core cuts
// where a CPU rounds) differ by at most s = 3·n·2⁻²⁴·Σ|dy·x|, their bf16 by at most 2⁻⁷·(|g| + s) more. Those are seldom two, though: all but
// 2 % of the moments agree within FP32's own roundings, at most four on either side. The weight is held to the moments that lie beside it.
void ProductUpdateGpu::compare(Weight& before, Weight& cpu, Weight& gpu) {
  const adamw::Numbers k = first_update();
  Twin dy = before.dy, x = before.x;
  const auto g = product(dy.here(), x.here());
  for (Twin* t : {&dy, &x})
    for (auto* p = t->here().as<bf16>(); p < t->here().as<bf16>() + t->here().count(); ++p) p->bits &= 0x7fff;
  const auto sizes = product(dy.here(), x.here());
  constexpr double unit = 0x1p-24;
  std::int64_t apart = 0, outside = 0;
  const std::int64_t count = before.size.out * before.size.in;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = [i](Twin& t) { return double(t.here().as<float>()[i]); };
    const double in_sum = 3 * double(before.size.tokens) * unit * double(sizes[std::size_t(i)]);
    const double gradient = std::fabs(double(g[std::size_t(i)])) * double(k.factor);
    const double change = in_sum * double(k.factor) + 0x1p-7 * (gradient + in_sum * double(k.factor));
    const double m_unit = 8 * unit * (std::fabs(k.beta1 * at(before.updated.m)) + k.rest1 * (gradient + change));
    const double v_unit = 8 * unit * (k.beta2 * at(before.updated.v) + k.rest2 * (gradient + change) * (gradient + change));
    const double m_error = std::fabs(at(gpu.updated.m) - at(cpu.updated.m)), v_error = std::fabs(at(gpu.updated.v) - at(cpu.updated.v));
    const double step = k.step * at(gpu.updated.m) / (std::sqrt(at(gpu.updated.v)) * double(k.root2) + double(k.eps));
    const double kept = k.keep * double(before.updated.value(i)), w_error = std::fabs(double(gpu.updated.value(i)) - (kept - step));
    apart += m_error > m_unit || v_error > v_unit;
    outside += !(m_error <= m_unit + k.rest1 * change) || !(v_error <= v_unit + k.rest2 * (2 * gradient + change) * change) ||
               !(w_error <= 8 * unit * (std::fabs(kept) + std::fabs(step)));
  }
  EXPECT_EQ(outside, 0) << "of " << count;
  EXPECT_LE(double(apart), 0.02 * double(count));
}

TEST_F(ProductUpdateGpu, IsTheCpusForOneWeight) {
  for (const Size& s : {Size{64, 256, 256}, {192, 512, 768}, {1024, 768, 256}, {192, 256, 1536}, {1, 256, 256}, {100, 512, 256}})
    check({s});
}

// The last tile's rows and columns past the weight are neither read nor written.
TEST_F(ProductUpdateGpu, IsTheCpusWhereATileIsCut) {
  for (const Size& s : {Size{64, 8, 8}, {192, 264, 248}, {1, 504, 256}, {100, 256, 328}, {320, 376, 1360}, {64, 1144, 136}}) check({s});
  check({{192, 512, 256}, {64, 680, 264}, {320, 264, 680}});  // beside one that is whole
}

TEST_F(ProductUpdateGpu, IsTheCpusForSeveralWeightsOfUnlikeDepth) {
  check({{64, 768, 256}, {192, 512, 256}});                                           // five tiles
  check({{1024, 256, 256}, {64, 256, 1280}, {192, 256, 256}});                        // each of its own depth
  check({{1024, 1536, 1536}, {64, 1280, 1536}, {192, 256, 256}, {1024, 512, 1536}});  // 79 tiles: more than clusters on any card
}

// Tiles that several clusters share: all of a launch, or those of its last round; by two, three and four.
TEST_F(ProductUpdateGpu, IsTheCpusWhereTilesAreShared) {
  check({{1216, 768, 512}});
  check({{1300, 520, 776}, {1300, 264, 248}});
  check({{1216, 2048, 2048}, {1216, 512, 1024}});  // 72 tiles, of which six are shared
  check({{2048, 768, 3072}});                      // 36 tiles by 66 clusters
}

TEST_F(ProductUpdateGpu, BitsDoNotDependOnHowManyBlocksThereAre) {
  for (const std::vector<Size>& sizes : {std::vector<Size>{{192, 768, 512}, {64, 256, 768}, {320, 512, 512}},
                                         {{192, 776, 504}, {64, 136, 768}, {320, 512, 520}},
                                         {{1216, 768, 512}, {1216, 256, 520}},
                                         {{1216, 2048, 2048}, {1216, 512, 1024}}})
    expect_bits_of_any_number_of_blocks([&] { return weights_of(sizes); }, {2, 3, 5, 8, 14});
}

// Factors are small whole numbers, so that every sum is exact in any order and the gradient is one for all: then the update has the bits of
// adamw's kernel, also where nothing is usual: no gradient and no moments, second moments that are denormal or next to FP32's largest.
TEST_F(ProductUpdateGpu, TheUpdateIsAdamwsToTheBit) {
  the_update_is_adamws({{192, 512, 768}, {1024, 256, 256}});
  the_update_is_adamws({{192, 520, 760}, {1024, 136, 256}});
  the_update_is_adamws({{1216, 512, 768}, {1216, 136, 256}});
}

TEST_F(ProductUpdateGpu, OfSmallerMomentsItIsAdamwsToTheBit) {
  for (const DType moments : {DType::bf16, DType::u8}) {
    SCOPED_TRACE(name_of(moments));
    the_update_is_adamws({{192, 512, 768}, {1024, 256, 256}}, moments);
    the_update_is_adamws({{192, 520, 768}, {1024, 136, 256}}, moments);
    the_update_is_adamws({{1216, 520, 768}, {1216, 136, 256}}, moments);
  }
  the_update_is_adamws({{192, 520, 760}, {1024, 136, 256}}, DType::bf16);
}

TEST_F(ProductUpdateGpu, OfSmallerMomentsBitsDoNotDependOnHowManyBlocksThereAre) {
  for (const DType moments : {DType::bf16, DType::u8}) {
    const auto make = [&] {
      Weights all = weights_of({{192, 768, 512}, {64, 264, 768}, {320, 512, 512}});
      for (Weight& w : all) w.updated.narrow_to(moments);
      return all;
    };
    expect_bits_of_any_number_of_blocks(make, {2, 3, 5, 8, 14});
  }
}

void ProductUpdateGpu::the_update_is_adamws(const std::vector<Size>& sizes, DType moments) {
  Weights all = weights_of(sizes);
  const Random random{19};
  for (Weight& w : all) {
    for (Twin* t : w.inputs())
      for (std::int64_t i = 0; i < t->here().count(); ++i)
        t->set(i, i % t->here().shape[1] < 40 ? 0.f : float(random.stream(std::uint64_t(t == &w.x)).below(std::uint64_t(i), 9)) - 4);
    for (std::int64_t i = 0; i < w.size.out * w.size.in; ++i) {
      if (i % 7 == 0) w.updated.m.set(i, 0), w.updated.v.set(i, 0);
      if (i % 11 == 0) w.updated.v.set(i, 1e-41f);
      if (i % 1013 == 0) w.updated.v.set(i, 3e38f), w.updated.m.set(i, 1e30f);
      if (i % 1019 == 0) w.updated.m.set(i, 1e-38f);
    }
    if (moments != DType::f32) w.updated.narrow_to(moments);
  }
  expect_adamws(all, [&](Weight& w) { return product(w.dy.here(), w.x.here()); });
}

TEST_F(ProductUpdateGpu, SameBitsEveryTimeAndInAGraph) {
  for (const std::vector<Size>& sizes : {std::vector<Size>{{192, 1536, 1536}, {64, 1536, 1536}},      // 72 tiles
                                         std::vector<Size>{{1216, 1536, 1536}, {1216, 1536, 1536}}})  // … of which six are shared
    repeats(sizes);
}

void ProductUpdateGpu::repeats(const std::vector<Size>& sizes) {
  Weights before = weights_of(sizes), all = before;
  std::vector<Twin*> start, outputs;
  for (std::size_t w = 0; w < all.size(); ++w)
    for (std::size_t i = 0; i < 4; ++i) start.push_back(before[w].updated.all()[i]), outputs.push_back(all[w].updated.all()[i]);
  up(all);
  const auto reset = [&] {
    state.up(*stream);
    for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i]->bytes() = start[i]->bytes(), outputs[i]->up(*stream);
  };
  expect_same_bits(fused(all), reset, outputs);
  const auto first = bits_of(all);
  for (int again = 0; again < 100; ++again) {
    reset();
    on_gpu(fused(all));
    for (Twin* t : outputs) t->down(*stream);
    ASSERT_TRUE(first == bits_of(all)) << "run " << again;
  }
}

}  // namespace
}  // namespace headroom::product_update
