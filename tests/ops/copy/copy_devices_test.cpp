#include "ops/copy/copy.h"

#include "ops/copy/split.h"
#include "ops/fill/fill.h"
#include "tests/ops/on_devices.h"

namespace headroom {
namespace {

using namespace on_card;

constexpr float limits[] = {65519.0f, 65520.0f, -1e-7f, INFINITY, 1.00390625f, -0.0f, NAN, 3.4e38f, 1e-40f};

Twin numbers_with_limits(DType type, std::int64_t count) {  // overflow, subnormals, infinities, ties among others
  Twin t(type, {count});
  t.normal(1, 1e-3);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, std::size(limits)); ++i) t.set(i, limits[i]);
  return t;
}

class Copy : public OnDevices {};
class Fill : public OnDevices {};
HEADROOM_ON_DEVICES(Copy);
HEADROOM_ON_DEVICES(Fill);

TEST_P(Copy, EveryPairOfTypesRoundsToTheNearest) {
  for (Where where : devices())
    for (DType from : float_types)
      for (DType to : float_types)
        for (std::int64_t count : {0, 1, 8, 1001, 65536, 65537}) {
          SCOPED_TRACE(fmt::format("{} to {} {}", name_of(from), name_of(to), count));
          Twin source = numbers_with_limits(from, count), copied(to, {count});
          run(where, {&source, &copied}, [&](Context& ctx, const On& at) { copy::copy(at(source), at(copied), ctx); });
          const auto before = source.values(), after = copied.values();
          for (std::size_t i = 0; i < before.size(); ++i)
            if (std::isnan(before[i]))
              ASSERT_TRUE(std::isnan(after[i])) << i;
            else
              ASSERT_EQ(after[i], stored_as(to, before[i])) << i;
        }
}

TEST_P(Copy, OfOneTypeKeepsEveryByte) {
  for (Where where : devices())
    for (DType type : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::u8}) {
      Twin source(type, {70001}), copied(type, {70001});
      for (std::size_t i = 0; i < 70001 * size_of(type); ++i)
        source.here().as<unsigned char>()[i] = static_cast<unsigned char>(i * 37 % 251);
      run(where, {&source, &copied}, [&](Context& ctx, const On& at) { copy::copy(at(source), at(copied), ctx); });
      EXPECT_TRUE(source.bytes() == copied.bytes()) << name_of(type);
    }
}

TEST_P(Copy, TwoHalvesHoldTheWholeValue) {
  for (Where where : devices())
    for (std::int64_t count : {0, 1, 70001}) {
      Twin source = numbers_with_limits(DType::f32, count), upper(DType::bf16, {count}), rest(DType::u16, {count});
      run(where, {&source, &upper, &rest}, [&](Context& ctx, const On& at) { copy::split(at(source), at(upper), at(rest), ctx); });
      for (std::int64_t i = 0; i < count; ++i) {
        const copy::Halves h{upper.here().as<bf16>()[i], rest.here().as<std::uint16_t>()[i]};
        ASSERT_EQ(bits_of(copy::join(h)), bits_of(source.here().as<float>()[i])) << i;
      }
    }
}

TEST_P(Fill, NormalNumbersAreTheStreamsOnEveryDevice) {
  const Random random = Random{11}.stream(3);
  for (Where where : devices())
    for (std::int64_t count : {0, 1, 77, 16384, 16385, 500011}) {
      Twin t(DType::f32, {count});
      run(where, {&t}, [&](Context& ctx, const On& at) { fill::normal(at(t), random, 0.25, 0.02, ctx); });
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(t.here().as<float>()[i], float(0.25 + 0.02 * double(random.normal(std::uint64_t(i))))) << i;
    }
}

TEST_P(Fill, Constants) {
  for (Where where : devices())
    for (std::int64_t count : {0, 1, 1001, 20000}) {
      Twin t(DType::f32, {count});
      run(where, {&t}, [&](Context& ctx, const On& at) { fill::constant(at(t), 0.1, ctx); });
      for (double x : t.values()) ASSERT_EQ(x, double(0.1f));
    }
}

}  // namespace
}  // namespace headroom
