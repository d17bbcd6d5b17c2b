// NaN behind the end of a cache, behind the last document, and in a document beside others: it stays where it is.
#include "tests/attention_bounds.h"

#include "tests/attention_run.h"

namespace headroom::attention {
namespace {

using namespace cases;

TEST(AttentionBounds, WhatARowDoesNotSeeMayBeAnything) {
  Threads pool(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    int at = 0, served = 0;
    each_bound({dtype}, {24}, [&](const Case& c, const Poison& poison) {
      if (dtype != DType::f32 && at++ % 2 == (dtype == DType::bf16)) return;
      for (const Variant& v : variants()) {
        if (!serves_forward(v, c.problem)) continue;
        SCOPED_TRACE(fmt::format("{} NaN in document {}", v.name, poison.document));
        const bool gradients = serves(v, c.problem);
        Tensors x = tensors_of(c);
        const Expected expected = expected_of(c, x, v.family == "plain");
        poison.into(c, x);
        run(v, c, x, &pool);
        poison.forgive(c, x, expected.exact, gradients);
        judge(c, x, expected, gradients);
        ++served;
      }
    });
    EXPECT_GT(served, 20);
  }
}

}  // namespace
}  // namespace headroom::attention
