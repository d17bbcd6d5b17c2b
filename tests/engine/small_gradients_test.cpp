// Gradients in half the bits, and gradients that are never held.
#include <gtest/gtest.h>

#include "base/convert.h"
#include "tests/engine/lively.h"
#include "tests/engine/workshop.h"

namespace headroom::engine {
namespace {

// Summed in FP32 and rounded once, so the bits are those of the FP32 gradient, rounded; the head's, the embedding's and the norms' stay.
TEST(Training, GradientsInHalfAreTheWholeOnesRounded) {
  for (const char* precision : {"bf16", "fp16"})
    for (bool tied : {false, true})
      for (Keep keep : {Keep::everything, Keep::input}) {
        Recipe r{tiny(), 2, 8, *precision_named(precision), {keep}};
        r.model.tied = tied;
        Workshop whole(r);
        r.holding.gradients = Gradients::half;
        Workshop half(r);
        EXPECT_LT(half.predicted, whole.predicted);
        for (Workshop* w : {&whole, &half}) fill_lively(*w), w->training.backward();
        for (std::size_t i = 0; i < whole.training.store().params().size(); ++i) {
          const Param &a = whole.training.store().params()[i], &b = half.training.store().params()[i];
          const bool narrow = a.spec.layer >= 0 && a.spec.multiplied;
          ASSERT_EQ(b.grad.dtype, narrow ? r.precision.dtype : DType::f32) << a.spec.full_name();
          for (std::int64_t e = 0; e < a.grad.count(); ++e) {
            const float x = a.grad.as<float>()[e];
            const double rounded = r.precision.dtype == DType::bf16 ? widen(headroom::narrow<bf16>(x)) : widen(headroom::narrow<f16>(x));
            ASSERT_EQ(load_element(b.grad.data, b.grad.dtype, e), narrow ? rounded : double(x)) << a.spec.full_name();
          }
        }
        half.training.update({.lr = 0.01});
        EXPECT_EQ(half.arena.peak(), half.predicted);
      }
}

TEST(Training, GradientsInHalfLearnAndRepeatInEveryWayOfHolding) {
  for (const char* precision : {"bf16", "fp16"})
    for (Masters masters : {Masters::whole, Masters::halves})
      for (Updating updating : {Updating::after, Updating::during}) {
        Recipe r{tiny(), 2, 8, *precision_named(precision)};
        r.holding.gradients = Gradients::half, r.holding.masters = masters, r.holding.updating = updating;
        if (r.precision.dtype == DType::f16 && (masters == Masters::halves || updating == Updating::during)) {
          EXPECT_THROW(check(r), Error);
          continue;
        }
        Workshop one(r), two(r);
        adamw::Hyper h{.lr = 0.02, .decay = 0, .clip = updating == Updating::during ? 0.0 : 1.0};
        h.dynamic_scale = r.precision.dtype == DType::f16;
        double first = 0;
        for (int step = 0; step < 100; ++step) {
          for (Workshop* w : {&one, &two}) w->training.step(h);
          if (step == 0) first = one.training.loss();
        }
        EXPECT_LT(one.training.loss(), 0.2 * first) << precision;
        EXPECT_EQ(one.weights(), two.weights());
        EXPECT_EQ(one.moments(1), two.moments(1));
        EXPECT_EQ(one.arena.peak(), one.predicted);
      }
}

// A run without gradients in memory does the same arithmetic as one that holds them rounded until the block is done.
TEST(Training, GradientsThatAreNeverHeldGiveTheBitsOfThoseInHalf) {
  for (Keep keep : {Keep::everything, Keep::no_product, Keep::input}) {
    Recipe r{tiny(), 2, 8, *precision_named("bf16"), {keep}};
    r.holding = {Masters::halves, Updating::during, Gradients::half};
    Workshop half(r);
    r.holding.gradients = Gradients::none;
    Workshop none(r);
    none.training.warm();
    for (int step = 0; step < 5; ++step)
      for (Workshop* w : {&half, &none}) w->training.step({.lr = 0.01, .clip = 0});
    EXPECT_EQ(none.weights(), half.weights());
    EXPECT_EQ(none.moments(0), half.moments(0));
    EXPECT_EQ(none.moments(1), half.moments(1));
    EXPECT_EQ(none.training.loss(), half.training.loss());
    EXPECT_EQ(none.arena.peak(), none.predicted);
  }
}

TEST(Training, GradientsThatAreNeverHeldWantHalvesAndAnUpdateDuringBackward) {
  for (const auto& [masters, updating] : {std::pair{Masters::whole, Updating::during}, std::pair{Masters::halves, Updating::after}}) {
    Recipe r{tiny(), 2, 8, *precision_named("bf16")};
    r.holding = {masters, updating, Gradients::none};
    EXPECT_THROW(check(r), Error);
  }
}

TEST(Training, GradientsInHalfNeedAPrecisionOfHalfTheBits) {
  Recipe r{tiny(), 2, 8, *precision_named("tf32")};
  r.holding.gradients = Gradients::half;
  EXPECT_THROW(check(r), Error);
}

}  // namespace
}  // namespace headroom::engine
