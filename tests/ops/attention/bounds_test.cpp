// NaN behind the end of a cache, behind the last document, and in a document beside others: it stays where it is.
#include "tests/attention_bounds.h"

#include <optional>

#include "tests/attention_run.h"

namespace headroom::attention {
namespace {

using namespace cases;

TEST(AttentionBounds, WhatARowDoesNotSeeMayBeAnything) {
  Threads pool(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    int at = 0, served = 0;
    each_bound({dtype}, {24}, [&](const Case& c, const std::vector<Poison>& poisons) {
      if (dtype != DType::f32 && at++ % 2 == (dtype == DType::bf16)) return;
      Tensors clean = tensors_of(c);
      std::optional<Expected> expected;
      for (const Variant& v : variants()) {
        if (!serves_forward(v, c.problem)) continue;
        const bool rounds_p = v.family == "plain";
        if (!expected) expected = expected_of(c, clean, rounds_p);
        expect_rounding(*expected, c, clean, rounds_p);
        const bool gradients = serves(v, c.problem);
        for (const Poison& poison : poisons) {
          SCOPED_TRACE(fmt::format("{} NaN in document {}", v.name, poison.document));
          Tensors x = clean;
          poison.into(c, x);
          run(v, c, x, &pool);
          poison.forgive(c, x, expected->exact, gradients);
          judge(c, x, *expected, gradients);
          ++served;
        }
      }
    });
    EXPECT_GT(served, 20);
  }
}

}  // namespace
}  // namespace headroom::attention
