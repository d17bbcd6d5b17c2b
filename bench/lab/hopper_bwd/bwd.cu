// bwd.cu — check and time the Hopper backward under study.
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -cudart static bwd.cu -o bwd && ./bwd check && ./bwd time
#include "check.cuh"

using namespace ns::attention;
using bf16 = __nv_bfloat16;

template <class B, int t>
struct Turns : B {
  static constexpr int turns = t;
};

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "check";
  const std::vector<Variant> v64{variant<Bwd64<bf16>, false>("64"), variant<Bwd64<bf16>, true>("64 ordered")};
  const std::vector<Variant> v128{variant<Bwd128<bf16>, false>("128"), variant<Bwd128<bf16>, true>("128 ordered")};
  const std::vector<Variant> h64{variant<Bwd64<half>, false>("64"), variant<Bwd64<half>, true>("64 ordered")};
  const std::vector<Variant> h128{variant<Bwd128<half>, false>("128"), variant<Bwd128<half>, true>("128 ordered")};
  const std::vector<Variant> v256{wide_variant<Bwd256<bf16>>("256")}, h256{wide_variant<Bwd256<half>>("256")};
  if (what == "check") {
    int failed = check_all<bf16>(64, v64) + check_all<bf16>(128, v128) + check_all<bf16>(40, v64) + check_all<bf16>(96, v128) +
                 check_all<half>(64, h64) + check_all<half>(128, h128) + check_all<bf16>(256, v256) + check_all<bf16>(160, v256) +
                 check_all<half>(256, h256);
    std::printf(failed ? "%d FAILED\n" : "all cases agree with the reference\n", failed);
    return failed != 0;
  }
  const std::vector<int> lens{512, 1024, 2048, 4096, 8192, 16384};
  if (what == "ablate") {
    using A = Bwd64<bf16>;
    using B = Bwd128<bf16>;
    time_all<bf16>(64, {variant<Turns<A, 1>, false>("one turn"), variant<Turns<A, 2>, false>("two turns")}, middle, lens);
    time_all<bf16>(128, {variant<Turns<B, 1>, false>("one turn"), variant<Turns<B, 2>, false>("two turns")}, middle, lens);
  }
  if (what == "time") {
    time_all<bf16>(256, v256, whole, lens), time_all<bf16>(256, v256, middle, lens), time_all<bf16>(256, v256, after, lens);
    time_all<bf16>(64, v64, whole, lens), time_all<bf16>(128, v128, whole, lens);
    time_all<bf16>(64, v64, middle, lens), time_all<bf16>(128, v128, middle, lens);
  }
}
