// library.cu — the backward under study as a shared library, so that one Python process can time it and its peers in turn.
#include <cstdio>
#include <cstdlib>

#include "host.cuh"

using namespace ns::attention;
using bf16 = __nv_bfloat16;

// All tensors [batch, len, heads, dim], contiguous. workspace null: returns its size.
extern "C" long long attention_bwd(int variant, int dim, int causal, int batch, int heads, int kv_heads, int len_q, int len_k, void* q,
                                   void* k, void* v, void* o, void* dout, const float* lse, void* dq, void* dk, void* dv, char* workspace,
                                   void* stream) {
  const Problem p{batch, heads, kv_heads, len_q, len_k, dim, causal ? 0 : -unbounded};
  const auto at = [&](int len, int h) { return Strides{(long long)len * h * dim, (long long)h * dim, dim}; };
  const Strides a = at(len_q, heads), b = at(len_k, kv_heads);
  const Tensors t{q, k, v, o, dout, dq, dk, dv, a, b, b, a, a, a, b, b, lse, nullptr};
  const auto go = [&](auto config, auto ordered) -> long long {
    using C = decltype(config);
    if (!workspace) return Workspace<C>(p, ordered).bytes;
    run<C, decltype(ordered)::value>(p, t, workspace, static_cast<cudaStream_t>(stream));
    return 0;
  };
  if (dim == 256) {
    if (!workspace) return WideWorkspace(p).bytes;
    run_wide<Bwd256<bf16>>(p, t, workspace, static_cast<cudaStream_t>(stream));
    return 0;
  }
  constexpr std::false_type free{};
  constexpr std::true_type ordered{};
  if (dim == 64) return variant ? go(Bwd64<bf16>{}, ordered) : go(Bwd64<bf16>{}, free);
  return variant ? go(Bwd128<bf16>{}, ordered) : go(Bwd128<bf16>{}, free);
}
