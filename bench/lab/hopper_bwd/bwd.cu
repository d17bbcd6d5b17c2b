// bwd.cu — check and time the Hopper backward under study.
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -cudart static bwd.cu -o bwd && ./bwd check && ./bwd time
#include "check.cuh"

using namespace ns::attention;
using bf16 = __nv_bfloat16;

template <class B, int s> struct Skip : B { static constexpr int skip = s; };
template <class B, int t> struct Turns : B { static constexpr int turns = t; };
template <class B, int t> struct Late : B { static constexpr int late = t; };
template <class B, int t> struct Hand : B { static constexpr int handover = t; };
struct Rows64 : Bwd64<bf16> { static constexpr int rows = 64, stages = 4; static constexpr bool unpack_p = false; };

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "check";
  const std::vector<Variant> v64{variant<Bwd64<bf16>, false>("64"), variant<Bwd64<bf16>, true>("64 ordered")};
  const std::vector<Variant> v128{variant<Bwd128<bf16>, false>("128"), variant<Bwd128<bf16>, true>("128 ordered")};
  if (what == "check") {
    int failed = check_all<bf16>(64, {v64[0], v64[1], variant<Turns<Bwd64<bf16>, 2>, true>("64 turns"), variant<Hand<Late<Turns<Bwd64<bf16>, 1>, 3>, 2>, true>("64 hand 2")}) + check_all<bf16>(128, {v128[0], v128[1], variant<Late<Bwd128<bf16>, 3>, true>("128 late")}) + check_all<bf16>(40, v64) + check_all<bf16>(96, v128);
    std::printf(failed ? "%d FAILED\n" : "all cases agree with the reference\n", failed);
    return failed != 0;
  }
  const std::vector<int> lens{512, 1024, 2048, 4096, 8192, 16384};
  if (what == "ablate") {
    const std::vector<int> some{1024, 4096, 16384};
    using A = Bwd64<bf16>;
    using B = Bwd128<bf16>;
    using A1 = Turns<A, 1>;
    using B1 = Turns<B, 1>;
    using C = Late<Turns<A, 1>, 3>;
    using D = Late<Turns<B, 2>, 3>;
    time_all<bf16>(64, {variant<C, false>("free"), variant<C, true>("ordered"), variant<Hand<C, 1>, true>("hand 1"), variant<Hand<C, 2>, true>("hand 2")}, middle, some, 3);
    time_all<bf16>(128, {variant<D, false>("free"), variant<D, true>("ordered"), variant<Hand<D, 1>, true>("hand 1"), variant<Hand<D, 2>, true>("hand 2")}, middle, some, 3);
  }
  if (what == "time") {
    time_all<bf16>(64, v64, whole, lens), time_all<bf16>(128, v128, whole, lens);
    time_all<bf16>(64, v64, middle, lens), time_all<bf16>(128, v128, middle, lens);
  }
}
