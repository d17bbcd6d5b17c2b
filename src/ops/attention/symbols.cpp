#include "ops/attention/symbols.h"

namespace headroom::attention {

SymbolProbe probe_of(const attention::Problem& p) {
  constexpr std::int64_t batch = 19, kv_heads = 23, group = 29, len_q = 1009, len_k = 1013, dim = 37;  // primes
  SymbolProbe out{p, {}};
  attention::Problem& q = out.problem;
  q.batch = batch;
  q.kv_heads = kv_heads;
  q.heads = p.heads == p.kv_heads ? kv_heads : kv_heads * group;
  q.len_q = len_q;
  q.len_k = p.len_k == p.len_q ? len_q : len_k;
  q.head_dim = dim;
  out.symbols = {{"B", batch, p.batch}, {"H", q.heads, p.heads}, {"D", dim, p.head_dim}, {p.len_k == p.len_q ? "N" : "Nq", len_q, p.len_q}};
  if (q.kv_heads != q.heads) out.symbols.push_back({"Hkv", kv_heads, p.kv_heads});
  if (q.len_k != q.len_q) out.symbols.push_back({"Nk", len_k, p.len_k});
  return out;
}

}  // namespace headroom::attention
