// The C and C++ doors on a card: the CPU's result, memory of the right kind, and pointers of the wrong kind refused.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "gpu/device.h"
#include "headroom/headroom.hpp"

namespace headroom::capi {
namespace {

constexpr std::int64_t batch = 2, len_q = 130, len_k = 150, heads = 4, kv_heads = 2, dim = 64;

std::vector<float> normal(std::size_t n, std::uint64_t seed) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = Random{seed}.normal(i);
  return x;
}

template <class T>
std::vector<char> stored(const std::vector<float>& x) {
  std::vector<char> out(x.size() * sizeof(T));
  for (std::size_t i = 0; i < x.size(); ++i) reinterpret_cast<T*>(out.data())[i] = narrow<T>(x[i]);
  return out;
}
std::vector<char> stored(const std::vector<float>& x, headroom_dtype t) {
  return t == HEADROOM_F32 ? stored<float>(x) : t == HEADROOM_BF16 ? stored<bf16>(x) : stored<f16>(x);
}
constexpr DType dtype_named(headroom_dtype t) { return t == HEADROOM_F32 ? DType::f32 : t == HEADROOM_BF16 ? DType::bf16 : DType::f16; }

struct Result {
  std::vector<double> o, lse, dq, dk, dv;
};

// Forward and backward by the C++ door in memory of the context's device.
Result attend(const api::Context& context, headroom_dtype dtype, int math = HEADROOM_MATH_EXACT) {
  auto p = api::attention_problem();
  p.dtype = dtype, p.batch = batch, p.heads = heads, p.kv_heads = kv_heads, p.len_q = len_q, p.len_k = len_k, p.head_dim = dim;
  p.mask = HEADROOM_MASK_CAUSAL, p.math = math;
  api::Attention attention(context, p);
  const std::size_t q_count = batch * len_q * heads * dim, k_count = batch * len_k * kv_heads * dim, lse_count = batch * heads * len_q;
  const std::size_t size = dtype == HEADROOM_F32 ? 4 : 2;
  std::vector<api::Memory> held;
  const auto given = [&](std::size_t n, std::uint64_t seed) {
    const auto bytes = stored(normal(n, seed), dtype);
    held.emplace_back(context, bytes.size());
    held.back().write(bytes.data(), bytes.size());
    return held.back().data();
  };
  const auto room = [&](std::size_t bytes) {
    held.emplace_back(context, bytes);
    return held.back().data();
  };
  const auto q_like = [&](void* at) { return api::tensor(at, dtype, {batch, len_q, heads, dim}); };
  const auto k_like = [&](void* at) { return api::tensor(at, dtype, {batch, len_k, kv_heads, dim}); };
  const auto q = q_like(given(q_count, 1)), d_o = q_like(given(q_count, 4));
  const auto k = k_like(given(k_count, 2)), v = k_like(given(k_count, 3));
  const auto o = q_like(room(q_count * size)), dq = q_like(room(q_count * size));
  const auto dk = k_like(room(k_count * size)), dv = k_like(room(k_count * size));
  const auto lse = api::tensor(room(lse_count * 4), HEADROOM_F32, {batch, heads, len_q});
  attention.forward({q, k, v, o, lse});
  attention.backward({q, k, v, o, lse, d_o, {}, dq, dk, dv});
  const auto back = [&](const headroom_tensor& t, std::size_t n) {
    std::vector<char> raw(std::size_t(t.bytes));
    api::check(headroom_memory_read(context.get(), raw.data(), t.data, raw.size(), nullptr));
    std::vector<double> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = load_element(raw.data(), dtype_named(headroom_dtype(t.dtype)), std::int64_t(i));
    return out;
  };
  return {back(o, q_count), back(lse, lse_count), back(dq, q_count), back(dk, k_count), back(dv, k_count)};
}

double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) most = std::isnan(a[i]) ? INFINITY : std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class DoorGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
  }
};

TEST_F(DoorGpu, CppGivesTheCpusResult) {
  const api::Context gpu(0, HEADROOM_DEVICE_CUDA), cpu;
  const struct {
    headroom_dtype dtype;
    int math;
    double tolerance;
  } cases[] = {{HEADROOM_F32, HEADROOM_MATH_EXACT, 2e-4},
               {HEADROOM_F32, HEADROOM_MATH_TF32, 3e-2},
               {HEADROOM_BF16, HEADROOM_MATH_EXACT, 1e-1},
               {HEADROOM_F16, HEADROOM_MATH_EXACT, 2e-2}};
  for (const auto& c : cases) {
    const Result a = attend(gpu, c.dtype, c.math), b = attend(cpu, c.dtype);
    EXPECT_LT(furthest(a.o, b.o), c.tolerance) << c.dtype;
    EXPECT_LT(furthest(a.lse, b.lse), c.tolerance) << c.dtype;
    EXPECT_LT(furthest(a.dq, b.dq), c.tolerance) << c.dtype;
    EXPECT_LT(furthest(a.dk, b.dk), c.tolerance) << c.dtype;
    EXPECT_LT(furthest(a.dv, b.dv), c.tolerance) << c.dtype;
  }
}

TEST_F(DoorGpu, FromAThreadThatNeverSawTheCard) {
  const api::Context gpu(0, HEADROOM_DEVICE_CUDA);
  std::string failed;
  std::thread([&] {
    try {
      attend(gpu, HEADROOM_BF16);
    } catch (const std::exception& e) { failed = e.what(); }
  }).join();
  EXPECT_EQ(failed, "");
}

TEST_F(DoorGpu, PointersOfTheOtherKindAreRefused) {
  const api::Context gpu(0, HEADROOM_DEVICE_CUDA), cpu(1);
  auto p = api::attention_problem();
  p.len_q = p.len_k = 16, p.head_dim = 16, p.heads = 1;
  const auto forward = [&](const api::Context& context, void* q_at) {
    api::Attention attention(context, p);
    std::vector<api::Memory> held;
    const auto room = [&](std::size_t bytes) {
      held.emplace_back(context, bytes);
      return held.back().data();
    };
    const auto of = [&](void* at) { return api::tensor(at, HEADROOM_F32, {1, 16, 1, 16}); };
    attention.forward(
        {of(q_at ? q_at : room(1024)), of(room(1024)), of(room(1024)), of(room(1024)), api::tensor(room(64), HEADROOM_F32, {1, 1, 16})});
  };
  const auto refusal = [&](const api::Context& context, void* at) {
    try {
      forward(context, at);
    } catch (const api::Error& e) { return std::string(e.what()); }
    return std::string();
  };
  std::vector<float> host(256);
  const api::Memory device(gpu, 1024);
  EXPECT_EQ(refusal(gpu, nullptr), "");
  EXPECT_EQ(refusal(cpu, nullptr), "");
  const std::string said = refusal(gpu, host.data());  // a system whose GPU reads every host page serves it
  EXPECT_TRUE(said.empty() || said.find("q points to host memory") != std::string::npos) << said;
  EXPECT_NE(refusal(cpu, device.data()).find("q is memory of cuda:0"), std::string::npos);
}

TEST_F(DoorGpu, ARepeatedGradientIsRefusedInWords) {
  const api::Context gpu(0, HEADROOM_DEVICE_CUDA);
  auto p = api::attention_problem();
  p.batch = 2, p.len_q = p.len_k = 16, p.head_dim = 16, p.heads = 1;
  api::Attention attention(gpu, p);
  std::vector<api::Memory> m;
  for (int i = 0; i < 8; ++i) m.emplace_back(gpu, 2048);
  const auto of = [&](int i) { return api::tensor(m[std::size_t(i)].data(), HEADROOM_F32, {2, 16, 1, 16}); };
  const api::Memory lse_memory(gpu, 128);
  const auto lse = api::tensor(lse_memory.data(), HEADROOM_F32, {2, 1, 16});
  attention.forward({of(0), of(1), of(2), of(3), lse});
  auto d_o = of(4);
  d_o.stride[0] = 0;
  try {
    attention.backward({of(0), of(1), of(2), of(3), lse, d_o, {}, of(5), of(6), of(7)});
    ADD_FAILURE() << "not refused";
  } catch (const api::Error& e) { EXPECT_NE(std::string(e.what()).find("d_o repeats its elements"), std::string::npos) << e.what(); }
}

}  // namespace
}  // namespace headroom::capi
