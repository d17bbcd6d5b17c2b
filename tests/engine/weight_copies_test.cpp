// --copies kept on a CPU: every way of holding, several micro-batches, checkpoints, and what is refused.
#include "tests/engine/weight_copies.h"

#include <filesystem>

#include "engine/files/save.h"

namespace headroom::engine {
namespace {

Recipe in_eight_bits(Scales scales) {  // blocks of 128 end inside and at the edge of tensors
  Recipe r{decoder_of({.name = "blocky", .vocab = 61, .width = 136, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 34, .ffn = 150}),
           1,
           20,
           {DType::e4m3}};
  r.scales = scales;
  return r;
}

TEST(WeightCopies, KeptChangeNoBitAndTakeTheBytesOfTheForecast) {
  for (const Scales scales : {Scales::tensor, Scales::row, Scales::block})
    for (const Holding& h : {Holding{}, Holding{Masters::halves, Updating::during, Gradients::half, Moments::half},
                             Holding{Masters::halves, Updating::during, Gradients::none}}) {
      Recipe r = in_eight_bits(scales);
      r.holding = h;
      expect_copies_kept_change_no_bit(r, {}, 3);
    }
  Recipe r = in_eight_bits(Scales::block);
  r.micro_batches = 3, r.holding.moments = Moments::eight;
  expect_copies_kept_change_no_bit(r, {}, 2);
}

TEST(WeightCopies, AResumedRunIsTheRunThatNeverStopped) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("headroom-copies-{}", ::getpid());
  Recipe r = in_eight_bits(Scales::block);
  r.holding = {Masters::halves, Updating::during, Gradients::half};
  r.holding.copies = WeightCopies::kept;
  const auto train = [](Workshop& w, int from, int to) {
    for (int s = from; s < to; ++s) w.fill(std::uint64_t(s)), w.training.step({.lr = 0.01, .clip = 0});
  };
  Workshop through(r), first(r), second(r);
  train(through, 0, 4);
  train(first, 0, 2);
  save(first.training, {2, 7, "{}"}, folder.string());
  second.training.initialise(12345);
  load(second.training, *newest_checkpoint(folder.string()));
  train(second, 2, 4);
  EXPECT_EQ(second.weights(), through.weights());
  std::filesystem::remove_all(folder);
}

// On a card what they take is two numbers of 8 bits a weight and their scales, and no copy that is made in the step.
TEST(WeightCopies, TakeTwoBytesAWeightOfACard) {
  const Device h200 = device_described("h200");
  Recipe r{model_described("2.7B"), 4, 1024, {DType::e4m3}};
  r.holding = {Masters::halves, Updating::during, Gradients::half, Moments::eight};
  const auto made = forecast(r, h200, 1);
  r.holding.copies = WeightCopies::kept;
  const auto kept = forecast(r, h200, 1);
  std::int64_t copies = 0;
  for (const ParamSpec& s : param_table(r.model))
    if (s.multiplied && s.layer >= 0)
      for (const auto& [lines, k] : {std::pair{s.shape[0], s.shape[1]}, std::pair{s.shape[1], s.shape[0]}})
        copies += std::int64_t(quantise::bytes_of(r.formats().weight, lines, k));
  EXPECT_EQ(std::int64_t(kept.standing_bytes) - std::int64_t(made.standing_bytes), copies);
  EXPECT_NEAR(double(copies), 2.0 * 3355443200.0, 0.001 * double(copies));
  EXPECT_LE(std::int64_t(kept.peak_bytes) - std::int64_t(made.peak_bytes), copies);
  EXPECT_LT(kept.expected->ms, made.expected->ms) << "a weight is read for its update alone";
}

TEST(WeightCopies, AreSaidInWords) {
  Recipe made = in_eight_bits(Scales::block), kept = made;
  kept.holding.copies = WeightCopies::kept;
  const auto said = [](std::vector<Recipe> all) { return in_words_of_fp8(all, device_described("h200")); };
  EXPECT_TRUE(said({made}).ends_with("nothing of them is kept in 8 bits.")) << said({made});
  EXPECT_TRUE(said({kept}).ends_with("Both 8-bit copies of its weights are kept, and the update writes them.")) << said({kept});
  EXPECT_TRUE(said({made, kept}).ends_with("or kept in 8 bits, as copies says.")) << said({made, kept});
}

TEST(WeightCopies, AreRefusedWhereNothingReadsThem) {
  Recipe r = in_eight_bits(Scales::block);
  r.holding.copies = WeightCopies::kept;
  EXPECT_NO_THROW(check(r));
  r.precision = {DType::bf16}, r.scales.reset();
  EXPECT_THROW(check(r), Error);
  r = in_eight_bits(Scales::block);
  r.holding.copies = WeightCopies::kept, r.ranks.count = 2;
  EXPECT_THROW(check(r), Error);
}

}  // namespace
}  // namespace headroom::engine
