// Two to sixteen ranks on CPUs: the bits of one with as many micro-batches, the bytes of the forecast, and an end within ten seconds.
#include "tests/engine/ranks_at_work.h"
#include "tests/engine/ranks_killed.h"

namespace headroom::engine {
namespace {

Decoder uneven() {
  return decoder_of({.name = "uneven", .vocab = 301, .width = 40, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 12, .ffn = 52});
}

TEST(RanksMany, GiveTheBitsOfOneAndTakeTheBytesOfTheForecast) {
  for (const char* precision : {"fp32", "bf16", "fp8"})
    for (const int ranks : {2, 4, 8, 16}) {
      Recipe r{uneven(), 1, 9, *precision_named(precision)};
      r.micro_batches = ranks;
      const adamw::Hyper hyper = r.served({.lr = 0.01, .clip = 0.7});
      const Taken one = alone(r, 2, hyper);
      r.micro_batches = 1;
      for (const Sharding sharding : shardings) {
        SCOPED_TRACE(fmt::format("{} {} ranks {}", precision, ranks, name_of(sharding)));
        r.ranks = {ranks, sharding};
        for (const Taken& each : together(r, 2, hyper)) expect_same(each, one);
      }
    }
}

TEST(RanksMany, OfWhichOneIsKilledEndWithinTenSeconds) {
  for (const int ranks : {2, 8, 16}) ranks_killed_tests::expect_others_to_end(ranks, 3);
}

}  // namespace
}  // namespace headroom::engine
