// What Highway's dispatch calls at run time, for systems that have Highway only as a shared library: which instruction sets this CPU
// and its kernel serve, asked of the compiler's own runtime.
#include <hwy/targets.h>

namespace hwy {

int64_t SupportedTargets() {
  int64_t targets = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  const auto has = [&](bool all, int64_t target) { return all ? target : int64_t(0); };
#define HEADROOM_CPU(name) (__builtin_cpu_supports(name) != 0)
  const bool ssse3 = HEADROOM_CPU("ssse3");
  const bool sse4 = ssse3 && HEADROOM_CPU("sse4.1") && HEADROOM_CPU("sse4.2") && HEADROOM_CPU("aes") && HEADROOM_CPU("pclmul");
  const bool avx2 = sse4 && HEADROOM_CPU("avx") && HEADROOM_CPU("avx2") && HEADROOM_CPU("fma") && HEADROOM_CPU("f16c") &&
                    HEADROOM_CPU("bmi") && HEADROOM_CPU("bmi2") && HEADROOM_CPU("lzcnt");
  const bool avx3 = avx2 && HEADROOM_CPU("avx512f") && HEADROOM_CPU("avx512vl") && HEADROOM_CPU("avx512dq") && HEADROOM_CPU("avx512bw") &&
                    HEADROOM_CPU("avx512cd");
  const bool avx3_dl = avx3 && HEADROOM_CPU("avx512vnni") && HEADROOM_CPU("vpclmulqdq") && HEADROOM_CPU("avx512vbmi") &&
                       HEADROOM_CPU("avx512vbmi2") && HEADROOM_CPU("vaes") && HEADROOM_CPU("avx512vpopcntdq") &&
                       HEADROOM_CPU("avx512bitalg") && HEADROOM_CPU("gfni");
#undef HEADROOM_CPU
  targets |= has(ssse3, HWY_SSSE3) | has(sse4, HWY_SSE4) | has(avx2, HWY_AVX2) | has(avx3, HWY_AVX3) | has(avx3_dl, HWY_AVX3_DL);
#endif
  return targets;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
