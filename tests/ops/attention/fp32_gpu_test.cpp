// FP32 attention by three products of tf32: its errors are no larger than those of multiply-adds in FP32.
#include "tests/ops/attention/on_gpu.h"

namespace headroom::attention {
namespace {

class Fp32Gpu : public OnGpu {
 protected:
  struct Error {
    double largest = 0, rms = 0;
  };
  Error error_of(const char* variant, const Case& c, Tensors x, const std::vector<double>& exact) {
    Wet wet(*variant_named(variant), c, x, device, *stream);
    wet.forward();
    wet.t.back();
    const auto o = x.o.values();
    double squares = 0;
    for (std::size_t i = 0; i < o.size(); ++i) squares += (o[i] - exact[i]) * (o[i] - exact[i]);
    return {largest_error(o, exact), std::sqrt(squares / double(o.size()))};
  }
};

// On an H200 the RMS was 0.43 to 0.60 of flash_simt's on such inputs. In an emulation of the unit's sums it is 1.2 times flash_simt's and more where
// the high parts are cut off instead of rounded, and where S is summed over a whole head by the unit (bench/lab/attention_fp32.md).
TEST_F(Fp32Gpu, ByProductsOfTf32HasErrorsBelowMultiplyAdds) {
  const auto serve = [&](const Problem& p) {
    return serves(*variant_named("flash_sm80_fp32"), p, Pass::forward) &&
           variant_named("flash_simt")->supports(p, device, Pass::forward).ok;
  };
  if (!serve(problem(2, 1, 64, 64, 64, Mask::full(), {DType::f32}))) GTEST_SKIP() << "this card's tf32 is not known to be fast";
  for (const std::int64_t dim : {32, 64, 128, 256})
    for (const Mask mask : {Mask::full(), Mask::causal()})
      for (const bool large : {false, true}) {
        Case c{problem(2, 1, 512, 1024, dim, mask, {DType::f32}), Layout::rows, large ? Values::huge : Values::normal, false, 30};
        c.reach = 100;
        SCOPED_TRACE(in_words(c));
        Tensors x = tensors_of(c);
        const auto exact = reference(c.problem, x.q.view(), x.k.view(), x.v.view(), x.d_o.view(), Tensor(), extras_of(x)).o;
        const Error ours = error_of("flash_sm80_fp32", c, x, exact), simt = error_of("flash_simt", c, x, exact);
        EXPECT_LE(ours.largest, simt.largest);
        EXPECT_LE(ours.rms, (large ? 1 : 0.75) * simt.rms);  // few rows decide it where scores are large
        EXPECT_GT(ours.rms, 0);
        ++checked;
      }
  EXPECT_EQ(checked, 16);
}

// The tiles that an A100 gets past head dim 128, where a block has 163 KB of shared memory: this card pretends to be one.
TEST_F(Fp32Gpu, InAnA100sSharedMemory) {
  if (!serves(*variant_named("flash_sm80_fp32"), problem(2, 1, 64, 64, 64, Mask::full(), {DType::f32}), Pass::forward))
    GTEST_SKIP() << "this card's tf32 is not known to be fast";
  device.sm = 80;
  for (const Mask mask : {Mask::full(), Mask::causal(), Mask::sliding(40)})
    for (const std::int64_t dim : {160, 200, 256})
      EXPECT_GE(check_case({problem(2, 1, 150, 170, dim, mask, {DType::f32}), Layout::rows, Values::normal, true, 31}),
                only.empty() ? 2 : 1);
}

}  // namespace
}  // namespace headroom::attention
