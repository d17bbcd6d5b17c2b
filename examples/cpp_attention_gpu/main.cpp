// Attention on a CUDA device from C++: the same lines on the CPU and on the device, and how far apart the results are. The library owns
// device memory; no CUDA header is needed. Returns 77 where there is no CUDA device.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <headroom/headroom.hpp>
#include <vector>

namespace api = headroom::api;

namespace {

constexpr std::int64_t batch = 2, len = 256, heads = 4, kv_heads = 2, dim = 64;

struct Result {
  std::vector<float> o, dq, dk, dv;
};

Result run(const api::Context& context) {
  auto problem = api::attention_problem();
  problem.batch = batch, problem.heads = heads, problem.kv_heads = kv_heads;
  problem.len_q = problem.len_k = len, problem.head_dim = dim;
  problem.mask = HEADROOM_MASK_CAUSAL;
  api::Attention attention(context, problem);  // its workspace is memory of the context's device

  constexpr std::size_t q_count = batch * len * heads * dim, k_count = batch * len * kv_heads * dim;
  std::vector<api::Memory> held;
  const auto room = [&](std::size_t floats) -> api::Memory& { return held.emplace_back(context, floats * sizeof(float)); };
  const auto filled = [&](std::size_t count, int step) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = std::sin(float(step) * float(i));
    auto& memory = room(count);
    memory.write(x.data(), count * sizeof(float));
    return static_cast<float*>(memory.data());
  };
  const auto empty = [&](std::size_t count) { return static_cast<float*>(room(count).data()); };
  const auto q_like = [](float* at) { return api::tensor(at, {batch, len, heads, dim}); };
  const auto k_like = [](float* at) { return api::tensor(at, {batch, len, kv_heads, dim}); };

  const auto q = q_like(filled(q_count, 1)), d_o = q_like(filled(q_count, 3)), o = q_like(empty(q_count)), dq = q_like(empty(q_count));
  const auto k = k_like(filled(k_count, 5)), v = k_like(filled(k_count, 7)), dk = k_like(empty(k_count)), dv = k_like(empty(k_count));
  const auto lse = api::tensor(empty(batch * heads * len), {batch, heads, len});
  attention.forward({q, k, v, o, lse});
  attention.backward({q, k, v, o, lse, d_o, {}, dq, dk, dv});
  std::printf("%s\n", attention.explain().c_str());

  const auto back = [&](const headroom_tensor& t) {
    std::vector<float> x(std::size_t(t.bytes) / sizeof(float));
    api::check(headroom_memory_read(context.get(), x.data(), t.data, std::size_t(t.bytes), nullptr));
    return x;
  };
  return {back(o), back(dq), back(dk), back(dv)};
}

float apart(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::fmax(most, std::isnan(a[i]) ? INFINITY : std::fabs(a[i] - b[i]));
  return most;
}

}  // namespace

int main() try {
  const api::Context gpu(0, HEADROOM_DEVICE_CUDA), cpu;
  const Result there = run(gpu), here = run(cpu);
  const float o = apart(there.o, here.o), dq = apart(there.dq, here.dq), dk = apart(there.dk, here.dk), dv = apart(there.dv, here.dv);
  std::printf("largest difference between the device and the CPU: O %.2g, dQ %.2g, dK %.2g, dV %.2g\n", double(o), double(dq), double(dk),
              double(dv));
  return !(o < 1e-4f && dq < 1e-3f && dk < 1e-3f && dv < 1e-3f);
} catch (const api::Error& e) {
  const bool none = e.status == HEADROOM_UNSUPPORTED;
  std::printf("%s: %s\n", none ? "skipped" : headroom_status_name(e.status), e.what());
  return none ? 77 : 1;
}
