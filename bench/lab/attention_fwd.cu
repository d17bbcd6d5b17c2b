// attention_fwd.cu — the forward kernel under study: `check`, `time`, `split`, `once`.
#include "attention_fwd.cuh"

using namespace headroom;
using namespace headroom::attention;
using namespace headroom::attention::lab;
using B = __nv_bfloat16;

#ifndef LAB_DIM
#define LAB_DIM 128
#endif

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a hang must not swallow what was printed
  const std::string what = argc > 1 ? argv[1] : "check";
#if LAB_DIM == 64
  using C = Forward64<B>;
  using H = Forward64<__half>;
  const std::vector<Named<B>> variants{named<C>("3x128"), named<Forward64Short<B>>("4x64")};
#elif LAB_DIM == 128
  using C = Forward128<B>;
  using H = Forward128<__half>;
  const std::vector<Named<B>> variants{named<C>("2x128")};
#else
  using C = Forward256<B>;
  using H = Forward256<__half>;
  const std::vector<Named<B>> variants{named<C>("2x80")};
#endif
  if (what == "check") {
    int failed = check_all<C>("bf16") + check_all<H>("fp16");
#if LAB_DIM == 64
    failed += check_all<Forward64Short<B>>("short bf16");
#endif
    std::printf(failed ? "%d FAILED\n" : "all cases agree with the reference\n", failed);
    return failed != 0;
  }
  if (what == "time")
    for (Reach r : {Reach::all, Reach::causal}) time_all(table(LAB_DIM, r), variants);
  if (what == "split")
    for (int len : {512, 2048, 8192, 16384, 65536})
      for (int splits : {1, 2, 3, 4, 6, 8, 12, 16})
        time_all({{1, 1, 1, len, len, LAB_DIM, Reach::all, 0, 0, splits}},
                 std::vector<Named<B>>{splits > 1 ? named<Split<C>>("split") : named<C>("whole")});
  if (what == "once") {  // for a tool
    const int len = argc > 2 ? std::atoi(argv[2]) : 4096;
    const Reach reach = argc > 3 && argv[3][0] == 'c' ? Reach::causal : Reach::all;
    const Case p{16384 / len, 2048 / LAB_DIM, 2048 / LAB_DIM, len, len, LAB_DIM, reach};
    Buffers<B> b(p);
    run<C>(prepare<C>(p, b), reach);
    cuda(cudaDeviceSynchronize());
  }
}
