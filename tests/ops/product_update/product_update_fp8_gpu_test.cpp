// The product of 8-bit factors that updates its weight, on a card: its gradient against Hopper's sums as emulated on a CPU, its update against adamw's.
#include "tests/ops/product_update/updated_on_card.h"

namespace headroom::product_update::of_eight_bits {
namespace {

using namespace on_card;

using Size = UpdateSize;
struct Kind {
  DType dy;
  ScaleKind of_dy, of_x;
};
constexpr Kind kinds[] = {
    {DType::e5m2, ScaleKind::one, ScaleKind::one},  // what --scales tensor, row and block ask for, and the other type of each
    {DType::e4m3, ScaleKind::row, ScaleKind::row},  {DType::e4m3, ScaleKind::block, ScaleKind::run},
    {DType::e4m3, ScaleKind::one, ScaleKind::one},  {DType::e5m2, ScaleKind::row, ScaleKind::row},
    {DType::e5m2, ScaleKind::block, ScaleKind::run}};

enum class Values { whole, normal };  // whole: small whole numbers and powers of two as scales, so that every sum is exact in any order

struct Weight {
  Size size;
  Kind kind;
  Twin dy{kind.dy, {size.out, size.tokens}}, x{DType::e4m3, {size.in, size.tokens}};
  Twin dy_scale{DType::f32, scale_shape(kind.of_dy, size.out, size.tokens)},
      x_scale{DType::f32, scale_shape(kind.of_x, size.in, size.tokens)};
  Updated updated{size};

  Weight(const Size& s, const Kind& k, Values values, std::uint64_t seed) : size(s), kind(k) {
    const auto number = [&](std::uint64_t stream, std::int64_t i) {
      const Random random = Random{seed}.stream(stream);
      return values == Values::whole ? float(random.below(std::uint64_t(i), 9)) - 4 : 8 * random.normal(std::uint64_t(i));
    };
    for (std::int64_t i = 0; i < s.out * s.tokens; ++i)
      dy.here().as<std::uint8_t>()[i] =
          k.dy == DType::e4m3 ? narrow_saturating<e4m3>(number(1, i)).bits : narrow_saturating<e5m2>(number(1, i)).bits;
    for (std::int64_t i = 0; i < s.in * s.tokens; ++i) x.here().as<std::uint8_t>()[i] = narrow_saturating<e4m3>(number(2, i)).bits;
    for (Twin* t : {&dy_scale, &x_scale})  // no two alike, so that one read from a wrong place shows
      for (std::int64_t i = 0; i < t->here().count(); ++i) {
        const Random random = Random{seed}.stream(t == &x_scale ? 3 : 4);
        t->set(i, values == Values::whole ? std::exp2(float(random.below(std::uint64_t(i), 4)))
                                          : float(0.5 + random.uniform(std::uint64_t(i))));
      }
    for (std::int64_t i = 0; i < s.out * s.in; ++i) {
      const bool fresh = values == Values::normal;  // then the gradient is read from m
      const Random random = Random{seed}.stream(5);
      updated.set(i, random.stream(7).normal(std::uint64_t(i)), fresh ? 0 : random.normal(std::uint64_t(i)),
                  fresh ? 1 : std::fabs(random.stream(6).normal(std::uint64_t(i))));
    }
  }
  std::vector<Twin*> inputs() { return {&dy, &x, &dy_scale, &x_scale}; }
  template <class Of>
  Item item(Of&& of) {
    Item i;
    i.weight = updated.update(of);
    i.dy_transposed = {of(dy), of(dy_scale), kind.of_dy}, i.x_transposed = {of(x), of(x_scale), kind.of_x};
    i.sums = matmul::Sums::two_level;
    return i;
  }
};

class ProductUpdateFp8Gpu : public UpdatedOnCard<Weight> {
 protected:
  static std::vector<Weight> made(const std::vector<Size>& sizes, const Kind& kind, Values values) {
    std::vector<Weight> all;
    for (const Size& s : sizes) all.emplace_back(s, kind, values, 100 + all.size());
    return all;
  }
  std::vector<bf16> gradient(Weight& w, matmul::Adder adder) {  // the CPU's
    std::vector<bf16> c(std::size_t(w.size.out * w.size.in));
    const Item i = w.item(here);
    on_cpu([&](Context& ctx) {
      matmul::multiply({.a = i.dy_transposed,
                        .b = matmul::transposed(i.x_transposed),
                        .c = {c.data(), DType::bf16, {w.size.out, w.size.in}},
                        .sums = matmul::Sums::two_level,
                        .adder = adder},
                       ctx);
    });
    return c;
  }
};

// The gradient of fresh moments can be read from m. It is the emulation's but for FP32's last places, which seldom move a bf16, and then to its neighbour.
TEST_F(ProductUpdateFp8Gpu, ItsGradientIsHoppersSumOfScaledParts) {
  for (const Kind& kind : kinds)
    for (const Size& s : {Size{128, 256, 256}, {400, 512, 256}, {16, 256, 512}, {1040, 256, 768}}) {
      SCOPED_TRACE(fmt::format("{} by {}, x by {}: {} x {}, {} tokens", name_of(kind.dy), name_of(kind.of_dy), name_of(kind.of_x), s.out,
                               s.in, s.tokens));
      std::vector<Weight> all = made({s}, kind, Values::normal);
      const auto expected = gradient(all[0], matmul::Adder::hopper);
      double size = 0;
      for (const bf16 x : expected) size = std::max(size, std::fabs(double(widen(x))));
      run(all);
      const adamw::Numbers k = first_update();
      std::int64_t apart = 0, outside = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double got = double(all[0].updated.m.here().as<float>()[i]) / (k.rest1 * double(k.factor)),
                     should = double(widen(expected[i]));
        const double error = std::fabs(got - should);
        apart += !(error <= 0x1p-20 * std::fabs(should));
        outside += !(error <= 0x1.1p-7 * std::fabs(should) + 0x1p-20 * size);
      }
      EXPECT_EQ(outside, 0) << "of " << expected.size();
      EXPECT_LE(double(apart), 0.01 * double(expected.size()));
    }
}

TEST_F(ProductUpdateFp8Gpu, TheUpdateIsAdamwsToTheBitAndEveryScaleIsItsOwn) {
  for (const auto& [kind, moments] : [] {
         std::vector<std::pair<Kind, DType>> all;
         for (const Kind& k : kinds) all.emplace_back(k, DType::f32), all.emplace_back(k, DType::bf16);
         return all;
       }()) {
    SCOPED_TRACE(fmt::format("{} by {}, x by {}, moments {}", name_of(kind.dy), name_of(kind.of_dy), name_of(kind.of_x), name_of(moments)));
    std::vector<Weight> all = made({{400, 512, 768}, {1024, 256, 256}, {16, 1280, 256}, {128, 256, 512}}, kind, Values::whole);
    for (Weight& w : all)
      if (moments != DType::f32) w.updated.narrow_to(moments);
    expect_adamws(all, [&](Weight& w) {
      std::vector<float> wide;
      for (const bf16 x : gradient(w, matmul::Adder::fp32)) wide.push_back(widen(x));
      return wide;
    });
  }
}

TEST_F(ProductUpdateFp8Gpu, BitsDependNeitherOnTheRunNorOnHowManyBlocksThereAre) {
  const std::vector<Size> sizes{
      {1040, 1536, 1536}, {64, 1280, 1536}, {320, 512, 512}};  // 72, 60 and 8 tiles of a cluster: more than clusters on any card
  for (const Kind& kind : {kinds[0], kinds[2]}) {
    expect_bits_of_any_number_of_blocks([&] { return made(sizes, kind, Values::normal); }, {device.units, 2, 5, 14, 66});
  }
}

}  // namespace
}  // namespace headroom::product_update::of_eight_bits
