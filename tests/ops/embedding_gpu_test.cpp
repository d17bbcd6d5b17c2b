#include "ops/embedding/embedding.h"

#include "tests/ops/on_card.h"

namespace headroom::embedding {
namespace {

using namespace on_card;

enum class Tokens { any, few, one };  // any word; three words; always the last

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

class EmbeddingGpu : public OnCard {
 protected:
  // Copies and sums in one order: the bits are the CPU's.
  void check(DType from, DType type, std::int64_t rows, std::int64_t width, std::int64_t vocab, Tokens how, Gradient into,
             std::int64_t shift = 0) {
    SCOPED_TRACE(fmt::format("{} to {} rows {} width {} vocab {} tokens {} {} shift {}", name_of(from), name_of(type), rows, width, vocab,
                             int(how), int(into), shift));
    Twin table(from, {vocab, width}, shift), x(type, {rows, width}), dx(type, {rows, width}), dtable(DType::f32, {vocab, width});
    Twin tokens = tokens_of(how, rows, vocab);
    table.normal(1), dx.normal(2);
    if (into == Gradient::accumulate) dtable.normal(3);
    Twin gpu_x = x, gpu_dtable = dtable;
    on_cpu([&](Context& ctx) {
      forward(table.here(), tokens.here(), x.here(), ctx);
      backward(tokens.here(), dx.here(), dtable.here(), into, ctx);
    });
    up({&table, &tokens, &gpu_x, &dx, &gpu_dtable});
    on_gpu([&](Context& ctx) {
      forward(table.there(), tokens.there(), gpu_x.there(), ctx);
      backward(tokens.there(), dx.there(), gpu_dtable.there(), into, ctx);
    });
    down({&gpu_x, &gpu_dtable});
    EXPECT_TRUE(gpu_x.bytes() == x.bytes()) << "x";
    EXPECT_TRUE(gpu_dtable.bytes() == dtable.bytes()) << "dtable";
  }
};

TEST_F(EmbeddingGpu, BitsAreTheCpus) {
  for (DType from : {DType::f32, DType::bf16, DType::f16})
    for (DType type : float_types)
      for (Gradient into : {Gradient::overwrite, Gradient::accumulate})
        for (std::int64_t width : {1, 7, 100, 1000}) {
          for (std::int64_t rows : {0, 1, 5, 300}) check(from, type, rows, width, 50, Tokens::any, into);
          check(from, type, 70, width, 4, Tokens::few, into);
        }
}

TEST_F(EmbeddingGpu, LargeVocabulariesAndWideRows) {
  for (Gradient into : {Gradient::overwrite, Gradient::accumulate}) {
    check(DType::f32, DType::bf16, 4096, 64, 10000, Tokens::any, into);
    check(DType::f32, DType::f32, 1111, 8, 151936, Tokens::any, into);
    check(DType::f32, DType::f32, 70, 8, 12288, Tokens::any, into);  // all of the shared memory that needs no asking
    check(DType::bf16, DType::bf16, 33, 8192, 1023, Tokens::any, into);
    check(DType::f32, DType::f16, 64, 1280, 1025, Tokens::any, into, 1);
  }
}

TEST_F(EmbeddingGpu, WordsThatComeAgainAndAgain) {
  for (Tokens how : {Tokens::few, Tokens::one})
    for (Gradient into : {Gradient::overwrite, Gradient::accumulate}) {
      check(DType::f32, DType::bf16, 5000, 24, 10000, how, into);
      check(DType::f32, DType::f32, 1029, 7, 1, how, into);
    }
}

TEST_F(EmbeddingGpu, SameBitsEveryTimeAndInAGraph) {
  Twin tokens = tokens_of(Tokens::few, 3000, 1000), dx(DType::bf16, {3000, 64}), dtable(DType::f32, {1000, 64});
  dx.normal(1);
  expect_same_bits([&](Context& ctx) { backward(tokens.there(), dx.there(), dtable.there(), Gradient::overwrite, ctx); },
                   [&] {
                     up({&tokens, &dx, &dtable});
                   },
                   {&dtable});
}

}  // namespace
}  // namespace headroom::embedding
