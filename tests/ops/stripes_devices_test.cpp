// Rows of tokens by rank and in order: every row goes where it belongs, and sums are made in FP32 in one order.
#include "ops/stripes/stripes.h"

#include "tests/ops/on_devices.h"

namespace headroom {
namespace stripes_tests {  // a name: what is used here stays here, where a folder is one source

using namespace on_card;
using stripes::Stripes;

class StripesOf : public OnDevices {};
HEADROOM_ON_DEVICES(StripesOf);

constexpr Stripes shapes[] = {{1, 1, 1}, {2, 2, 3}, {3, 3, 1}, {1, 4, 65}, {2, 3, 40}};
constexpr std::int64_t widths[] = {1, 12, 16, 40};

struct Place {
  std::int64_t rank, which, row;
};
Place place_of(const Stripes& s, std::int64_t token) {  // by looking for it
  for (int rank = 0; rank < int(s.ranks); ++rank)
    for (int which : {0, 1})
      if (const auto first = s.first_token(rank, which); token >= first && token < first + s.rows) return {rank, which, token - first};
  ADD_FAILURE() << "token " << token << " is nobody's";
  return {};
}
std::int64_t row_of(const Stripes& s, std::int64_t sequence, const Place& p) {
  return p.rank * s.rows_of_rank() + (sequence * 2 + p.which) * s.rows + p.row;
}

TEST(Stripes, EveryTokenHasOnePlaceAndCausalWorkIsEven) {
  for (const Stripes& s : shapes) {
    std::vector<int> taken(std::size_t(s.batch * s.len()), 0);
    std::vector<std::int64_t> seen(std::size_t(s.ranks), 0);  // keys, by a rank's rows
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t token = 0; token < s.len(); ++token) {
        const Place p = place_of(s, token);
        EXPECT_EQ(s.by_rank(b, token), row_of(s, b, p));
        ++taken[std::size_t(s.by_rank(b, token))];
        seen[std::size_t(p.rank)] += token + 1;
      }
    for (int n : taken) EXPECT_EQ(n, 1);
    for (auto n : seen) EXPECT_EQ(n, seen[0]);
  }
}

TEST_P(StripesOf, RowsArePackedFromBetweenOthers) {
  for (Where where : devices())
    for (DType type : float_types)
      for (const auto width : widths) {
        Twin from(type, {77, width}, 0, width + 24), to(type, {77, width}, 0, width == 40 ? 0 : 2 * width);
        from.normal(1);
        run(where, {&from, &to}, [&](Context& ctx, const On& at) { stripes::pack(at(from), at(to), ctx); });
        EXPECT_EQ(from.values(), to.values());
      }
}

TEST_P(StripesOf, ArePutInTheOrderOfTheSequence) {
  for (Where where : devices())
    for (const Stripes& s : shapes)
      for (DType type : float_types)
        for (const auto width : widths) {
          const auto rows = s.batch * s.len();
          Twin by_rank(type, {rows, width}), to(type, {rows, width});
          by_rank.normal(2);
          run(where, {&by_rank, &to}, [&](Context& ctx, const On& at) { stripes::in_order(s, at(by_rank), at(to), ctx); });
          const auto before = by_rank.values(), after = to.values();
          for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t i = 0; i < width; ++i)
              ASSERT_EQ(after[std::size_t(row * width + i)],
                        before[std::size_t(row_of(s, row / s.len(), place_of(s, row % s.len())) * width + i)]);
        }
}

TEST_P(StripesOf, TheFirstTokensOfSequencesAreAddedWhereTheirRanksLook) {
  for (Where where : devices())
    for (const Stripes& s : shapes)
      for (DType type : float_types)
        for (const auto width : widths)
          for (const auto stripes_of_it : {std::int64_t(1), s.ranks, 2 * s.ranks}) {
            const auto tokens = stripes_of_it * s.rows;
            Twin first(type, {s.batch * tokens, width}), more(type, {s.batch * tokens, width}),
                sums(DType::f32, {s.batch * s.len(), width});
            first.normal(3), more.normal(4);
            run(where, {&first, &more, &sums}, [&](Context& ctx, const On& at) {
              stripes::add_by_rank(s, at(first), at(sums), Gradient::overwrite, ctx);
              stripes::add_by_rank(s, at(more), at(sums), Gradient::accumulate, ctx);
            });
            const auto a = first.values(), b = more.values(), got = sums.values();
            for (std::int64_t sequence = 0; sequence < s.batch; ++sequence)
              for (std::int64_t token = 0; token < s.len(); ++token)
                for (std::int64_t i = 0; i < width; ++i) {
                  const auto from = std::size_t((sequence * tokens + token) * width + i);
                  const double expected = token < tokens ? double(float(a[from]) + float(b[from])) : 0.0;
                  ASSERT_EQ(got[std::size_t(s.by_rank(sequence, token) * width + i)], expected);
                }
          }
}

TEST_P(StripesOf, PartsAreAddedInTheirOrderAndRoundedOnce) {
  for (Where where : devices())
    for (int count : {1, 2, 5})
      for (DType type : float_types)
        for (const auto width : widths) {
          constexpr std::int64_t rows = 33;
          Twin parts(DType::f32, {count * rows, width}), to(type, {rows, width}, 0, width + 16);
          parts.normal(5, 100);
          run(where, {&parts, &to}, [&](Context& ctx, const On& at) { stripes::add_up(at(parts), count, at(to), ctx); });
          const auto each = parts.values(), got = to.values();
          for (std::size_t i = 0; i < std::size_t(rows * width); ++i) {
            float sum = float(each[i]);
            for (int p = 1; p < count; ++p) sum += float(each[std::size_t(p * rows * width) + i]);
            ASSERT_EQ(got[i], stored_as(type, double(sum)));
          }
        }
}

TEST(Stripes, WhatDoesNotFitTogetherIsRefused) {
  Arena arena;
  const Device cpu;
  Context ctx{arena, cpu};
  const auto rows = [&](std::int64_t n, DType type = DType::f32) { return arena.make("rows", type, {n, 8}); };
  EXPECT_THROW(stripes::pack(rows(3), rows(4), ctx), Error);
  EXPECT_THROW(stripes::pack(rows(3), rows(3, DType::bf16), ctx), Error);
  EXPECT_THROW(stripes::in_order({1, 2, 2}, rows(8), rows(7), ctx), Error);
  EXPECT_THROW(stripes::add_by_rank({1, 2, 2}, rows(9), rows(8), Gradient::overwrite, ctx), Error);
  EXPECT_THROW(stripes::add_by_rank({1, 2, 2}, rows(4), rows(8, DType::bf16), Gradient::overwrite, ctx), Error);
  EXPECT_THROW(stripes::add_up(rows(8), 3, rows(4), ctx), Error);
}

}  // namespace stripes_tests
}  // namespace headroom
