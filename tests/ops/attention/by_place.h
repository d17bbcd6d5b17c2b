// Runs every variant that serves a problem on the CPU, or on this machine's GPU: for what depends on where a score is, which a few of them serve.
#pragma once
#include "tests/attention_features.h"
#include "tests/attention_run.h"
#include "tests/attention_wet.h"
#include "tests/ops/on_devices.h"

namespace headroom::attention::cases {

constexpr Precision precisions_by_place[] = {{DType::f32}, {DType::bf16}, {DType::f16}, {DType::f32, Math::tf32}};

class ByPlace : public on_card::OnCard, public testing::WithParamInterface<on_card::Where> {
 protected:
  using Where = on_card::Where;
  void SetUp() override {
    if (GetParam() == Where::gpu) OnCard::SetUp();
  }
  const Device& where() const { return GetParam() == Where::gpu ? device : cpu; }
  bool serves(const Variant& v, const Problem& p, Pass last = Pass::backward) const {
    return v.supports(p, where(), Pass::forward).ok && v.supports(p, where(), last).ok;
  }
  void run_here(const Variant& v, const Case& c, Tensors& x, Threads* pool) {
    if (GetParam() == Where::cpu) return cases::run(v, c, x, pool);
    Wet wet(v, c, x, device, *stream);
    wet.forward();
    if (serves(v, c.problem)) wet.backward();
    wet.t.back();
  }
  // f(variant, its tensors after both passes), for each that serves the case; how many did.
  template <class F>
  int each_variant(const Case& c, const Tensors& inputs, F&& f, Pass last = Pass::backward) {
    int served = 0;
    for (const Variant& v : variants()) {
      if (!serves(v, c.problem, last)) continue;
      SCOPED_TRACE(std::string(v.name) + " " + in_words(c));
      Tensors x = inputs;
      run_here(v, c, x, &threads);
      f(v, x);
      ++served;
    }
    return served;
  }
  int variants_of(Precision p) const {       // that serve every problem
    if (GetParam() == Where::gpu) return 1;  // flash_sm80 or flash_simt; Hopper's kernels serve some
    return p.math == Math::exact ? 2 : 0;
  }
  int variants_of(const Problem& p, Pass last) const { return variants_of(p.precision) + hopper_serves(p, last); }
  bool hopper_serves(const Problem& p, Pass last) const { return serves(*variant_named("flash_sm90"), p, last); }
  // Of the cases that `each` gives for a precision: on the CPU a third of those in 16 bits each.
  template <class Each>
  void agree_with_the_oracle(Each&& each) {
    for (Precision precision : precisions_by_place) {
      if (variants_of(precision) == 0) continue;
      int at = 0, by_hopper = 0;
      each(precision, [&](const Case& c) {
        if (GetParam() == Where::cpu && precision.dtype != DType::f32 && at++ % 3 != int(precision.dtype == DType::bf16)) return;
        Tensors inputs = tensors_of(c);
        const Expected naive = expected_of(c, inputs, true);
        const int served = each_variant(c, inputs, [&](const Variant&, Tensors& x) { judge(c, x, naive); });
        EXPECT_EQ(served, variants_of(c.problem, Pass::backward)) << in_words(c);
        by_hopper += hopper_serves(c.problem, Pass::backward);
      });
      if (where().sm == 90 && size_of(precision.dtype) == 2) EXPECT_GT(by_hopper, 5);
    }
  }
};

}  // namespace headroom::attention::cases
