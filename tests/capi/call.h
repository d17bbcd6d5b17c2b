// One attention problem through the C interface, with its tensors: what the tests of the interface call.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/random.h"
#include "headroom/headroom.h"

namespace headroom::capi {

struct Destroy {
  void operator()(headroom_context* c) const { headroom_context_destroy(c); }
};
using OwnedContext = std::unique_ptr<headroom_context, Destroy>;

inline OwnedContext make_context(int threads = 2) {
  headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
  settings.threads = threads;
  headroom_context* made = nullptr;
  EXPECT_EQ(headroom_context_create(&settings, &made), HEADROOM_OK) << headroom_last_error();
  return OwnedContext(made);
}

class Aligned {  // lent memory, as aligned as the interface asks
 public:
  explicit Aligned(std::size_t bytes = 0) : raw_(bytes + HEADROOM_ALIGNMENT), bytes_(bytes) {}
  headroom_memory lend() {
    const auto at = reinterpret_cast<std::uintptr_t>(raw_.data());
    return {bytes_ ? reinterpret_cast<void*>((at + HEADROOM_ALIGNMENT - 1) / HEADROOM_ALIGNMENT * HEADROOM_ALIGNMENT) : nullptr, bytes_};
  }

 private:
  std::vector<char> raw_;
  std::size_t bytes_;
};

inline headroom_attention_problem problem_of(std::int64_t len, std::int64_t dim, const char* variant = nullptr) {
  headroom_attention_problem p = HEADROOM_ATTENTION_PROBLEM_INIT;
  p.heads = 2, p.len_q = p.len_k = len, p.head_dim = dim, p.variant = variant;
  return p;
}

inline headroom_tensor view(std::vector<float>& x, std::initializer_list<std::int64_t> shape) {
  return headroom_contiguous(x.data(), HEADROOM_F32, std::int32_t(shape.size()), shape.begin());
}

// fp32, inputs from a seed; forward() and backward() return the status of the call.
struct Call {
  headroom_attention_problem problem;
  std::vector<float> q, k, v, o, lse, d_o, dq, dk, dv;
  Aligned saved, workspace;

  Call(headroom_context* context, const headroom_attention_problem& p, std::uint64_t seed = 1) : problem(p) {
    const auto kv = p.kv_heads ? p.kv_heads : p.heads;
    const auto q_count = std::size_t(p.batch * p.len_q * p.heads * p.head_dim), k_count = std::size_t(p.batch * p.len_k * kv * p.head_dim);
    const auto random = [&](std::size_t n, std::uint64_t stream) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = Random{seed * 8 + stream}.normal(i);
      return x;
    };
    q = random(q_count, 0), k = random(k_count, 1), v = random(k_count, 2), d_o = random(q_count, 3);
    o.assign(q_count, NAN), dq.assign(q_count, NAN), dk.assign(k_count, NAN), dv.assign(k_count, NAN);
    lse.assign(std::size_t(p.batch * p.heads * p.len_q), NAN);
    std::size_t saved_bytes = 0, forward_bytes = 0, backward_bytes = 0;
    EXPECT_EQ(headroom_attention_saved_bytes(context, &problem, &saved_bytes), HEADROOM_OK) << headroom_last_error();
    EXPECT_EQ(headroom_attention_workspace_bytes(context, &problem, HEADROOM_FORWARD, &forward_bytes), HEADROOM_OK);
    EXPECT_EQ(headroom_attention_workspace_bytes(context, &problem, HEADROOM_BACKWARD, &backward_bytes), HEADROOM_OK);
    saved = Aligned(saved_bytes), workspace = Aligned(std::max(forward_bytes, backward_bytes));
  }

  headroom_tensor q_like(std::vector<float>& x) { return view(x, {problem.batch, problem.len_q, problem.heads, problem.head_dim}); }
  headroom_tensor k_like(std::vector<float>& x) {
    return view(x, {problem.batch, problem.len_k, problem.kv_heads ? problem.kv_heads : problem.heads, problem.head_dim});
  }
  headroom_tensor lse_view() { return view(lse, {problem.batch, problem.heads, problem.len_q}); }

  headroom_attention_forward_arguments forward_arguments() {
    headroom_attention_forward_arguments a{};
    a.struct_size = sizeof a;
    a.q = q_like(q), a.k = k_like(k), a.v = k_like(v), a.o = q_like(o), a.lse = lse_view();
    a.saved = saved.lend(), a.workspace = workspace.lend();
    return a;
  }
  headroom_attention_backward_arguments backward_arguments() {
    headroom_attention_backward_arguments a{};
    a.struct_size = sizeof a;
    a.q = q_like(q), a.k = k_like(k), a.v = k_like(v), a.o = q_like(o), a.lse = lse_view(), a.d_o = q_like(d_o);
    a.dq = q_like(dq), a.dk = k_like(dk), a.dv = k_like(dv);
    a.saved = saved.lend(), a.workspace = workspace.lend();
    return a;
  }
  headroom_status forward(headroom_context* c) {
    const auto a = forward_arguments();
    return headroom_attention_forward(c, &problem, &a);
  }
  headroom_status backward(headroom_context* c) {
    const auto a = backward_arguments();
    return headroom_attention_backward(c, &problem, &a);
  }
};

}  // namespace headroom::capi
