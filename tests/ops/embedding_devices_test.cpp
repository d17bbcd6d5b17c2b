#include "ops/embedding/embedding.h"

#include "tests/ops/on_devices.h"

namespace headroom::embedding {
namespace {

using namespace on_card;

enum class Tokens : std::uint8_t { any, few, one };  // any word; three words; always the last

Twin tokens_of(Tokens how, std::int64_t rows, std::int64_t vocab) {
  Twin t(DType::i32, {rows});
  const Random random{3};
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto any = std::int32_t(random.below(std::uint64_t(i), std::uint64_t(vocab)));
    t.here().as<std::int32_t>()[i] = how == Tokens::any   ? any
                                     : how == Tokens::few ? any % std::int32_t(std::min<std::int64_t>(3, vocab))
                                                          : std::int32_t(vocab - 1);
  }
  return t;
}

class Embedding : public OnDevices {
 protected:
  // Copies, and sums in one order: the bits are those of the loop below on every device.
  void check(DType from, DType type, std::int64_t rows, std::int64_t width, std::int64_t vocab, Tokens how, Gradient into,
             std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} to {} rows {} width {} vocab {} tokens {} {} shift {}", name_of(from), name_of(type), rows, width, vocab,
                             int(how), int(into), shift));
    Twin table(from, {vocab, width}, shift), dx(type, {rows, width}), dtable(DType::f32, {vocab, width}),
        tokens = tokens_of(how, rows, vocab);
    table.normal(1);
    dx.normal(2);
    if (into == Gradient::accumulate) dtable.normal(3);
    const auto words = table.values(), slopes = dx.values();
    std::vector<double> picked(slopes.size()), added(slopes.size()),
        sums = into == Gradient::accumulate ? dtable.values() : std::vector<double>(words.size());
    for (std::size_t row = 0; row < std::size_t(rows); ++row)
      for (std::size_t i = 0; i < std::size_t(width); ++i) {
        const auto at = row * std::size_t(width) + i, word = std::size_t(tokens.here().as<std::int32_t>()[row]) * std::size_t(width) + i;
        picked[at] = stored_as(type, words[word]);
        added[at] = stored_as(type, double(float(slopes[at]) + float(words[word])));
        sums[word] = double(float(sums[word]) + float(slopes[at]));
      }
    for (Where where : devices()) {
      Twin x(type, {rows, width}), d = dtable;
      run(where, {&table, &tokens, &x, &dx, &d}, [&](Context& ctx, const On& at) {
        forward(at(table), at(tokens), at(x), ctx);
        backward(at(tokens), at(dx), at(d), into, ctx);
      });
      EXPECT_TRUE(x.values() == picked) << "x";
      Twin y = dx;
      run(where, {&table, &tokens, &y}, [&](Context& ctx, const On& at) { add(at(table), at(tokens), at(y), ctx); });
      EXPECT_TRUE(y.values() == added) << "x += a row";
      EXPECT_TRUE(d.values() == sums) << "dtable";
    }
  }
};
HEADROOM_ON_DEVICES(Embedding);

TEST_P(Embedding, EveryTypeWidthAndMode) {
  for (DType from : float_types)
    for (DType type : float_types)
      for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
        for (std::int64_t width : {1, 7, 64, 65, 100, 1000}) {
          for (std::int64_t rows : {0, 1, 5, 300}) check(from, type, rows, width, 50, Tokens::any, into);
          check(from, type, 70, width, 4, Tokens::few, into);
        }
}

TEST_P(Embedding, LargeVocabulariesAndWideRows) {
  for (Gradient into : {Gradient::overwrite, Gradient::accumulate}) {
    check(DType::f32, DType::bf16, 4096, 64, 10000, Tokens::any, into);
    check(DType::f32, DType::f32, 1111, 8, 151936, Tokens::any, into);
    check(DType::f32, DType::f32, 70, 8, 12288, Tokens::any, into);  // all of the shared memory that needs no asking
    check(DType::bf16, DType::bf16, 33, 8192, 1023, Tokens::any, into);
    check(DType::f32, DType::f16, 64, 1280, 1025, Tokens::any, into, 1);
  }
}

TEST_P(Embedding, WordsThatComeAgainAndAgain) {
  for (Tokens how : {Tokens::few, Tokens::one})
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate}) {
      check(DType::f32, DType::bf16, 5000, 24, 10000, how, into);
      check(DType::f32, DType::f32, 1029, 7, 1, how, into);
    }
}

TEST_P(Embedding, SameBitsEveryTime) {
  Twin tokens = tokens_of(Tokens::few, 3000, 1000), dx(DType::bf16, {3000, 64}), dtable(DType::f32, {1000, 64});
  dx.normal(1);
  expect_same_bits({&tokens, &dx, &dtable},
                   [&](Context& ctx, const On& at) { backward(at(tokens), at(dx), at(dtable), Gradient::overwrite, ctx); });
}

}  // namespace
}  // namespace headroom::embedding
