// Attention from C++: the same result from two variants, and what each keeps for backward.
#include <cmath>
#include <cstdio>
#include <headroom/headroom.hpp>
#include <vector>

namespace api = headroom::api;

int main() try {
  constexpr std::int64_t batch = 2, len = 256, heads = 4, kv_heads = 2, dim = 64;
  std::vector<float> q(batch * len * heads * dim), k(batch * len * kv_heads * dim), v(k.size()), d_o(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(float(i)), d_o[i] = std::cos(float(3 * i));
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = std::sin(float(5 * i)), v[i] = std::cos(float(7 * i));

  const api::Context context;
  auto problem = api::attention_problem();
  problem.batch = batch, problem.heads = heads, problem.kv_heads = kv_heads;
  problem.len_q = problem.len_k = len, problem.head_dim = dim;
  problem.mask = HEADROOM_MASK_CAUSAL;

  struct Result {
    std::vector<float> o, lse, dq, dk, dv;
  };
  const auto run = [&](const char* variant) {
    problem.variant = variant;
    api::Attention attention(context, problem);
    Result r{std::vector<float>(q.size()), std::vector<float>(batch * heads * len), std::vector<float>(q.size()),
             std::vector<float>(k.size()), std::vector<float>(k.size())};
    const auto q_like = [&](std::vector<float>& x) { return api::tensor(x.data(), {batch, len, heads, dim}); };
    const auto k_like = [&](std::vector<float>& x) { return api::tensor(x.data(), {batch, len, kv_heads, dim}); };
    const auto lse = api::tensor(r.lse.data(), {batch, heads, len});
    attention.forward({q_like(q), k_like(k), k_like(v), q_like(r.o), lse});
    attention.backward({q_like(q), k_like(k), k_like(v), q_like(r.o), lse, q_like(d_o), {}, q_like(r.dq), k_like(r.dk), k_like(r.dv)});
    std::printf("%-6s keeps %zu bytes beside Q, K, V, O, LSE; workspace %zu bytes\n", variant, attention.saved_bytes(),
                attention.workspace_bytes());
    return r;
  };
  const Result plain = run("plain"), flash = run("flash");

  const auto apart = [](const std::vector<float>& a, const std::vector<float>& b) {
    float most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::fmax(most, std::fabs(a[i] - b[i]));
    return most;
  };
  const float o = apart(plain.o, flash.o), dq = apart(plain.dq, flash.dq), dk = apart(plain.dk, flash.dk), dv = apart(plain.dv, flash.dv);
  std::printf("largest difference: O %.2g, dQ %.2g, dK %.2g, dV %.2g\n", double(o), double(dq), double(dk), double(dv));

  try {
    problem.variant = "flsh";
    api::Attention attention(context, problem);
    return 1;  // a name that nobody has must not be served
  } catch (const api::Error& e) { std::printf("%s\n", e.what()); }
  return !(o < 1e-4f && dq < 1e-3f && dk < 1e-3f && dv < 1e-3f);
} catch (const api::Error& e) {
  std::fprintf(stderr, "%s: %s\n", headroom_status_name(e.status), e.what());
  return 1;
}
