// The same bits in every run: whatever else the card does, in a graph, and sums in a fixed order where that is asked for.
#include "ops/attention/sm90/bwd_kept.h"
#include "ops/attention/sm90/bwd_kept_documents.h"
#include "tests/ops/attention/on_gpu.h"

namespace headroom::attention {
namespace {

class SameBitsGpu : public OnGpu {};

TEST_F(SameBitsGpu, EveryTimeWhateverSharesTheCard) {
  for (const Variant& v : variants())
    for (Precision precision : precisions)
      for (auto [len, dim] : {std::pair{200, 64}, {1500, 64}, {300, 256}}) {  // 1500 keys are split where a variant does that
        const Case c{problem(2, 1, 130, len, dim, Mask::causal(), precision), Layout::rows, Values::normal, false, 12};
        if (v.deterministic && serves(v, c.problem, Pass::forward)) expect_same_bits(v, c, tensors_of(c), 1000);
      }
}

// Where blocks share a sum of dQ, they add to it one after another: the ways round (full), from the diagonal and back (causal), window.
TEST_F(SameBitsGpu, GradientsWhereAskedAndInAGraph) {
  for (const Variant& v : variants())
    for (Precision precision : {precisions[0], precisions[2], precisions[3]})
      for (std::int64_t dim : {64, 80, 96, 128, 256})
        for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(200)}) {
          Case c{problem(6, 2, 700, 900, dim, mask, precision), Layout::rows, Values::normal, false, 13};
          c.problem.deterministic = true;
          if (!serves(v, c.problem, Pass::backward)) continue;
          SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
          Tensors x = tensors_of(c);
          Wet wet(v, c, x, device, *stream);
          wet.forward(), wet.backward();
          wet.t.back();
          const auto dq = x.dq.bytes(), dk = x.dk.bytes(), dv = x.dv.bytes();
          const int times = dim == 64 && mask == Mask::full() ? 1000 : 100;
          for (int i = 0; i < times; ++i) {
            wet.backward();
            if (i % 50 && i != 1) continue;
            wet.t.back();
            ASSERT_TRUE(dq == x.dq.bytes() && dk == x.dk.bytes() && dv == x.dv.bytes()) << "run " << i;
          }
          const Graph graph(*stream, [&] { wet.backward(); });
          for (int i = 0; i < 3; ++i) {
            fill_bytes(wet.t(x.dq).data, 0xff, std::size_t(wet.t(x.dq).bytes()), *stream);
            graph.launch(*stream);
          }
          wet.t.back();
          EXPECT_TRUE(dq == x.dq.bytes() && dk == x.dk.bytes() && dv == x.dv.bytes()) << "the graph gives other bits";
        }
}

// So many causal heads that the first are dealt in turn and the last as blocks ask. A window over all keys sees the same, and is dealt in turn.
TEST_F(SameBitsGpu, TilesInTurnAndAsAsked) {
  constexpr std::int64_t len = 1100;
  for (const Variant& v : variants())
    for (std::int64_t dim : {64, 128}) {
      Case c{problem(50, 25, len, len, dim, Mask::causal()), Layout::rows, Values::normal, false, 15};
      if (!serves(v, c.problem, Pass::forward) || v.name != std::string_view("flash_sm90")) continue;
      SCOPED_TRACE(in_words(c));
      Tensors x = tensors_of(c);
      const auto o_when = [&](Mask mask) {
        c.problem.mask = mask;
        Wet wet(v, c, x, device, *stream);
        wet.forward();
        wet.t.back();
        return std::pair(x.o.values(), x.lse.values());
      };
      const auto [o, lse] = o_when(Mask::causal());
      const auto [o_in_turn, lse_in_turn] = o_when(Mask::sliding(len));
      double difference = 0, sum = 0;
      for (std::size_t i = 0; i < o.size(); ++i) difference += (o[i] - o_in_turn[i]) * (o[i] - o_in_turn[i]), sum += o[i] * o[i];
      EXPECT_LT(std::sqrt(difference / sum), 1e-3);
      for (std::size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(lse[i], lse_in_turn[i], 1e-4) << i;
    }
}

// More blocks than run at once: the last ones start when other blocks have taken all tiles, as where another stream's work holds multiprocessors. They
// would wait for ever without a tile of their own.
TEST_F(SameBitsGpu, BlocksThatStartWhenAllTilesAreTaken) {
  constexpr std::int64_t len = 1100;
  const int units = device.units;
  for (const Variant& v : variants())
    for (auto [dim, rows_of_tile] : {std::pair{64, 192}, {128, 128}, {256, 128}}) {
      const std::int64_t heads = 2 * units / ceil_div<std::int64_t>(len, rows_of_tile);  // batch 2: two tiles for each of 2 · units blocks
      const Case c{problem(heads, 1, len, len, dim, Mask::causal()), Layout::rows, Values::normal, false, 16};
      if (!serves(v, c.problem, Pass::forward) || v.name != std::string_view("flash_sm90")) continue;
      SCOPED_TRACE(in_words(c));
      Tensors x = tensors_of(c);
      const auto bits_with = [&](int seen) {
        device.units = seen;
        Wet wet(v, c, x, device, *stream);
        wet.forward();
        wet.t.back();
        return std::pair(x.o.bytes(), x.lse.bytes());
      };
      EXPECT_TRUE(bits_with(units) == bits_with(2 * units));
      device.units = units;
    }
}

// The same of documents, whose tiles are handed out as blocks ask for them: no queries, no keys, borders anywhere in a tile, more tiles than blocks.
TEST_F(SameBitsGpu, DocumentsInAFixedOrder) {
  const std::vector<int> borders = {257, 66, 0, 300, 31, 128}, keys = {90, 340, 12, 300, 200, 5};
  int served = 0;
  for (std::int64_t dim : {40, 64, 128, 256})
    for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(200, Align::bottom_right, 5)})
      for (bool equal : {true, false}) {
        Case c = packed(plain_case(2, 1, 0, 0, dim, mask, {equal ? DType::bf16 : DType::f16}, 87), borders, equal ? borders : keys, 70);
        c.problem.deterministic = true;
        check_case(c);
        c.problem.batch = 6, c.problem.heads = 8, c.problem.kv_heads = 4;
        for (const Variant& v : variants()) {
          if (!serves(v, c.problem, Pass::backward) || v.family == "plain" || dim == 40) continue;
          SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
          ++served;
          Tensors x = tensors_of(c);
          Wet wet(v, c, x, device, *stream);
          wet.forward(), wet.backward();
          wet.t.back();
          const auto dq = x.dq.bytes(), dk = x.dk.bytes(), dv = x.dv.bytes();
          for (int i = 0; i < 100; ++i) {
            wet.backward();
            if (i % 25) continue;
            wet.t.back();
            ASSERT_TRUE(dq == x.dq.bytes() && dk == x.dk.bytes() && dv == x.dv.bytes()) << "run " << i;
          }
        }
      }
  EXPECT_GE(served, only.empty() ? 18 : 0);
}

// Past head dim 128, more query heads on a key head than dS is kept of at a time: sums that go on in the next range are those of a single one, which a card of
// many multiprocessors would make.
TEST_F(SameBitsGpu, QueryHeadsInSeveralRanges) {
  const int units = device.units;
  for (const Variant& v : variants())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Case c{problem(40, 1, 2048, 2048, 256, Mask::full(), {dtype}), Layout::rows, Values::normal, false, 91};
      c.problem.batch = 1;
      if (v.name != std::string_view("flash_sm90") || !serves(v, c.problem, Pass::backward)) continue;
      SCOPED_TRACE(in_words(c));
      Tensors x = tensors_of(c);
      const auto bits_with = [&](int seen, int ranges, bool forward) {  // both from one forward's output, whose sums are cut as units ask
        device.units = seen;
        EXPECT_EQ(sm90::backward::kept_ranges(c.problem, seen).count, ranges);
        Wet wet(v, c, x, device, *stream);
        if (forward) wet.forward();
        wet.backward();
        wet.t.back();
        return std::tuple(x.dq.bytes(), x.dk.bytes(), x.dv.bytes());
      };
      const auto in_two = bits_with(132, 2, true);
      EXPECT_TRUE(bits_with(1100, 1, false) == in_two);
      device.units = units;
    }
}

// The same of one document as long as its row, which is summed as a row of the batch is: the dense gradients of a single range are its own.
TEST_F(SameBitsGpu, QueryHeadsOfDocumentsInSeveralRanges) {
  const int units = device.units;
  for (const Variant& v : variants())
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Case c = packed(plain_case(72, 1, 0, 0, 256, Mask::causal(), {dtype}, 92), {2048}, {2048});
      c.problem.batch = 1;
      if (v.name != std::string_view("flash_sm90") || !serves(v, c.problem, Pass::backward)) continue;
      SCOPED_TRACE(in_words(c));
      Tensors x = tensors_of(c);
      Case dense = c;
      dense.problem.documents = 0;
      const auto bits_of = [&](const Case& asked, bool forward) {  // both from one forward's output
        Wet wet(v, asked, x, device, *stream);
        if (forward) wet.forward();
        wet.backward();
        wet.t.back();
        return std::tuple(x.dq.bytes(), x.dk.bytes(), x.dv.bytes());
      };
      EXPECT_EQ(sm90::backward::kept_document_ranges(c.problem).count, 2);
      const auto packed_bits = bits_of(c, true);
      device.units = 1100;
      EXPECT_EQ(sm90::backward::kept_ranges(dense.problem, device.units).count, 1);
      EXPECT_TRUE(bits_of(dense, false) == packed_bits);
      device.units = units;
    }
}

// More heads than one round of the fixed order holds, and a head's key tiles in several rounds: dQ is the free order's sum, and repeats its bits.
TEST_F(SameBitsGpu, AFixedOrderOfManyRoundsIsTheSameSum) {
  for (const Variant& v : variants())
    for (std::int64_t dim : {64, 80, 128})
      for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(300)}) {
        const int heads = dim == 64                ? 21
                          : mask == Mask::causal() ? 9
                                                   : 4;  // 64: six key tiles for each block, whose K and V have two places
        Case c{problem(heads, heads, 2100, 2200, dim, mask), Layout::rows, Values::normal, false, 14};
        if (!serves(v, c.problem, Pass::backward)) continue;
        SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
        Tensors x = tensors_of(c);
        const auto dq_when = [&](bool deterministic) {
          c.problem.deterministic = deterministic;
          Wet wet(v, c, x, device, *stream);
          wet.forward(), wet.backward();
          wet.t.back();
          return x.dq.values();
        };
        const auto free = dq_when(false), ordered = dq_when(true);
        double difference = 0, sum = 0;
        for (std::size_t i = 0; i < free.size(); ++i)
          difference += (free[i] - ordered[i]) * (free[i] - ordered[i]), sum += free[i] * free[i];
        EXPECT_LT(std::sqrt(difference / sum), 1e-3);  // a key tile left out of one query tile: 1e-2
        EXPECT_EQ(ordered, dq_when(true));
      }
}

}  // namespace
}  // namespace headroom::attention
