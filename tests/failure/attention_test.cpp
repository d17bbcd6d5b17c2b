// Attention when memory runs out at every single point: through the op's own door, and through the C interface.
#include "ops/attention/attention.h"

#include <string>

#include "base/random.h"
#include "memory/block.h"
#include "tests/capi/fp8_door.h"
#include "tests/failure/allocations.h"

namespace headroom::allocations {
namespace {

attention::Problem small_problem() {
  attention::Problem p;
  p.batch = 1, p.heads = 2, p.kv_heads = 1, p.len_q = 48, p.len_k = 56, p.head_dim = 20;
  p.mask = attention::Mask::causal();
  return p;
}

// Everything a caller of the op does: device, threads, ledger, block, forward and backward. Returns a sum of the gradients.
double attend(std::string_view variant) {
  const auto p = small_problem();
  Device device;
  device.name = "CPU";
  Threads threads(2);
  Ledger ledger;
  Block block(16 << 20);
  Arena arena(block.data(), block.bytes(), &ledger);
  Context ctx{arena, device, &threads};
  const auto filled = [&](Name name, Shape shape) {
    const Tensor t = arena.make(name, DType::f32, shape);
    for (std::int64_t i = 0; i < t.count(); ++i) t.as<float>()[i] = Random{std::uint64_t(name.text[0])}.normal(std::uint64_t(i));
    return t;
  };
  const attention::Variant& v = attention::choose(p, device, variant);
  const Tensor q = filled("q", p.q_shape()), k = filled("k", p.k_shape()), val = filled("v", p.k_shape()), d_o = filled("d_o", p.q_shape());
  const Tensor o = arena.make("o", DType::f32, p.q_shape()), lse = arena.make("lse", DType::f32, p.lse_shape());
  const Tensor dq = arena.make("dq", DType::f32, p.q_shape()), dk = arena.make("dk", DType::f32, p.k_shape()),
               dv = arena.make("dv", DType::f32, p.k_shape());
  const attention::Saved saved = attention::make_saved(v, p, ctx);
  attention::forward(v, p, {q, k, val, o, lse, saved}, ctx);
  attention::backward(v, p, {q, k, val, o, lse, d_o, {}, dq, dk, dv, saved}, ctx);
  double sum = 0;
  for (const Tensor& t : {o, dq, dk, dv})
    for (std::int64_t i = 0; i < t.count(); ++i) sum += double(t.as<float>()[i]);
  return sum;
}

TEST(OutOfMemory, AttentionFailsCleanlyAtEveryPoint) {
  for (const char* variant : {"plain", "flash"})
    for (const Source source : {Source::arena, Source::operator_new}) {
      SCOPED_TRACE(variant);
      const double expected = attend(variant);
      fail_each(
          source,
          [&] {
            attend(variant);
            return Outcome::done;
          },
          [&] { EXPECT_EQ(attend(variant), expected); });
    }
}

Outcome outcome_of(headroom_status status) {
  if (status == HEADROOM_OK) return Outcome::done;
  if (status == HEADROOM_OUT_OF_MEMORY && std::string_view(headroom_last_error()).find("out of memory") != std::string_view::npos)
    return Outcome::out_of_memory;
  ADD_FAILURE() << headroom_status_name(status) << ": " << headroom_last_error();
  return Outcome::something_else;
}

TEST(OutOfMemory, AContextIsMadeOrNot) {
  const auto work = [] {
    headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
    settings.threads = 3;
    headroom_context* made = nullptr;
    const auto status = headroom_context_create(&settings, &made);
    EXPECT_EQ(made != nullptr, status == HEADROOM_OK);
    headroom_context_destroy(made);
    return outcome_of(status);
  };
  fail_each(Source::operator_new, work, [&] { EXPECT_EQ(int(work()), int(Outcome::done)); });
}

TEST(OutOfMemory, EveryCallOfTheCInterfaceFailsCleanly) {
  const auto context = capi::make_context(2);
  for (const char* variant : {"plain", "flash"}) {
    SCOPED_TRACE(variant);
    capi::Call call(context.get(), capi::problem_of(40, 24, variant));
    char text[2048];
    std::size_t bytes = 0;
    const auto all = [&] {
      for (const auto status :
           {headroom_attention_saved_bytes(context.get(), &call.problem, &bytes),
            headroom_attention_workspace_bytes(context.get(), &call.problem, HEADROOM_BACKWARD, &bytes), call.forward(context.get()),
            call.backward(context.get()), headroom_attention_explain(context.get(), &call.problem, text, sizeof text, nullptr)})
        if (status != HEADROOM_OK) return outcome_of(status);
      return Outcome::done;
    };
    for (const Source source : {Source::arena, Source::operator_new})
      fail_each(source, all, [&] { EXPECT_EQ(int(all()), int(Outcome::done)); });
  }
}

TEST(OutOfMemory, ACallInFp8FailsCleanly) {
  const auto context = capi::make_context(2);
  capi::InBf16 call;
  std::size_t bytes = 0;
  const auto all = [&] {
    const auto status = headroom_attention_workspace_bytes(context.get(), &call.p, HEADROOM_FORWARD, &bytes);
    return outcome_of(status == HEADROOM_OK ? call.forward(context.get(), bytes) : status);
  };
  for (const Source source : {Source::arena, Source::operator_new})
    fail_each(source, all, [&] { EXPECT_EQ(int(all()), int(Outcome::done)); });
}

TEST(NoMemoryOfItsOwn, ForwardAndBackwardTakeNothingThatGrowsWithTheProblem) {
  const auto context = capi::make_context(2);
  for (const char* variant : {"plain", "flash"}) {
    const auto taken_for = [&](std::int64_t len) {
      capi::Call call(context.get(), capi::problem_of(len, 32, variant));
      const std::size_t before = taken_bytes();
      EXPECT_EQ(call.forward(context.get()), HEADROOM_OK) << headroom_last_error();
      EXPECT_EQ(call.backward(context.get()), HEADROOM_OK) << headroom_last_error();
      return taken_bytes() - before;
    };
    taken_for(16);
    const auto small = taken_for(16), large = taken_for(400);
    EXPECT_EQ(small, large) << variant;
    EXPECT_LT(large, 2048u) << variant;  // sentences of variants that do not serve, at most
  }
}

}  // namespace
}  // namespace headroom::allocations
