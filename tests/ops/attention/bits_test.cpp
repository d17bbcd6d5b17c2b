// The same bits for any number of threads and on every run; the same answers from every instruction set.
#include <hwy/targets.h>
#include "ops/simd_targets.h"

#include "tests/attention_run.h"

namespace headroom::attention {
namespace {

using namespace cases;

std::vector<std::byte> outputs(Tensors& x) {
  std::vector<std::byte> all;
  for (Guarded* g : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv}) all.insert(all.end(), g->bytes().begin(), g->bytes().end());
  return all;
}

TEST(AttentionBits, DoNotDependOnThreadsOrRepeats) {
  for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(60)})
    for (DType dtype : {DType::f32, DType::bf16})
      for (auto [heads, kv_heads] : {std::pair{1, 1}, {4, 2}, {12, 12}}) {
        const Case c{problem_of(heads, kv_heads, 150, 170, 32, mask, dtype), Layout::rows, Values::normal, true, 11};
        for (const Variant& v : variants()) {
          if (!serves(v, c.problem) || !v.deterministic) continue;
          std::vector<std::byte> first;
          for (int threads : {1, 2, 3, 7, 7}) {
            Threads pool(threads);
            Tensors x = tensors_of(c);
            run(v, c, x, &pool);
            if (first.empty()) first = outputs(x);
            ASSERT_TRUE(first == outputs(x)) << v.name << ", " << threads << " threads: " << in_words(c);
          }
        }
      }
}

TEST(AttentionBits, EveryInstructionSetIsRight) {
  const auto mine = hwy::SupportedTargets() & HWY_TARGETS;
  int tried = 0;
  for (std::int64_t rest = mine; rest; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    ++tried;
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(20)}) {
        const Case c{problem_of(2, 1, 70, 83, 20, mask, dtype), Layout::padded, Values::normal, true, 12};
        const Variant& v = *variant_named("flash");
        Tensors x = tensors_of(c);
        run(v, c, x, nullptr);
        judge(c, x, false);
      }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GE(tried, 1);
  RecordProperty("instruction_sets", tried);
}

}  // namespace
}  // namespace headroom::attention
