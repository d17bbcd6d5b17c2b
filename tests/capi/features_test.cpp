// What models ask of attention beside masks, through the C interface: the bits of the op itself, a sentence for every wrong list, calls that
// are checked once, and callers of the header before.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "headroom/headroom.hpp"
#include "tests/attention_features.h"
#include "tests/attention_run.h"
#include "tests/capi/call.h"

namespace headroom::capi {
namespace {

using attention::cases::Case;
using attention::cases::Guarded;

const char* said() { return headroom_last_error(); }

headroom_tensor c_view(const Tensor& t) {
  headroom_tensor out{};
  out.data = t.data, out.rank = t.shape.rank;
  out.dtype = t.dtype == DType::bf16  ? HEADROOM_BF16
              : t.dtype == DType::f16 ? HEADROOM_F16
              : t.dtype == DType::i32 ? HEADROOM_I32
                                      : HEADROOM_F32;
  std::copy_n(t.shape.dim.begin(), t.shape.rank, out.shape);
  std::copy_n(t.stride.begin(), t.shape.rank, out.stride);
  return out;
}

headroom_attention_problem c_problem(const attention::Problem& p, const char* variant) {
  headroom_attention_problem out = HEADROOM_ATTENTION_PROBLEM_INIT;
  out.dtype = c_view(Tensor(nullptr, p.precision.dtype, {1})).dtype;
  out.batch = p.batch, out.heads = p.heads, out.kv_heads = p.kv_heads, out.len_q = p.len_q, out.len_k = p.len_k, out.head_dim = p.head_dim;
  out.mask = int(p.mask.kind), out.align = int(p.mask.align), out.window = p.mask.window, out.window_after = p.mask.ahead;
  out.scale = p.scale.value_or(0), out.scale_given = p.scale.has_value();
  out.head_dim_v = p.dim_v, out.softcap = p.softcap, out.sink = p.sink;
  out.documents = p.documents, out.page = p.page, out.pages = p.pages, out.variant = variant, out.dropout = p.dropout, out.alibi = p.alibi;
  return out;
}

class Asking {  // a case's tensors as arguments
 public:
  Asking(headroom_context* context, const Case& c, const attention::cases::Views& x, const char* variant)
      : context_(context), problem(c_problem(c.problem, variant)), backward_(c.problem.page == 0) {
    std::size_t kept = 0, need[2] = {0, 0};
    EXPECT_EQ(headroom_attention_saved_bytes(context, &problem, &kept), HEADROOM_OK) << said();
    for (int pass = 0; pass < (backward_ ? 2 : 1); ++pass)
      EXPECT_EQ(headroom_attention_workspace_bytes(context, &problem, headroom_pass(pass), &need[pass]), HEADROOM_OK) << said();
    saved_ = Aligned(kept), workspace_ = Aligned(std::max(need[0], need[1]));
    forward.struct_size = sizeof forward, backward.struct_size = sizeof backward;
    forward.q = backward.q = c_view(x.q), forward.k = backward.k = c_view(x.k), forward.v = backward.v = c_view(x.v);
    forward.o = backward.o = c_view(x.o), forward.lse = backward.lse = c_view(x.lse);
    forward.sink = backward.sink = c_view(x.with.sink), forward.cu_q = backward.cu_q = c_view(x.with.cu_q);
    forward.cu_k = backward.cu_k = c_view(x.with.cu_k), forward.pages = c_view(x.with.pages);
    forward.random = backward.random = c_view(x.with.random), forward.seed = backward.seed = x.with.seed;
    forward.offset = backward.offset = x.with.offset, forward.alibi = backward.alibi = c_view(x.with.alibi);
    backward.d_o = c_view(x.d_o), backward.dlse = c_view(x.dlse), backward.dsink = c_view(x.dsink);
    backward.dq = c_view(x.dq), backward.dk = c_view(x.dk), backward.dv = c_view(x.dv);
    forward.saved = backward.saved = saved_.lend(), forward.workspace = backward.workspace = workspace_.lend();
  }

  void run() {
    ASSERT_EQ(headroom_attention_forward(context_, &problem, &forward), HEADROOM_OK) << said();
    if (!backward_) return;
    ASSERT_EQ(headroom_attention_backward(context_, &problem, &backward), HEADROOM_OK) << said();
  }

  void run_as_calls() {
    headroom_attention_call *once = nullptr, *twice = nullptr;
    ASSERT_EQ(headroom_attention_forward_call_create(context_, &problem, &forward, &once), HEADROOM_OK) << said();
    const auto& f = forward;
    void* const pointers[] = {f.q.data,    f.k.data,    f.v.data,    f.o.data,     f.lse.data,    f.saved.data, f.workspace.data,
                              f.sink.data, f.cu_q.data, f.cu_k.data, f.pages.data, f.random.data, f.alibi.data};
    ASSERT_EQ(headroom_attention_call_run(once, pointers, 13, nullptr), HEADROOM_OK) << said();
    headroom_attention_call_destroy(once);
    if (!backward_) return;
    ASSERT_EQ(headroom_attention_backward_call_create(context_, &problem, &backward, &twice), HEADROOM_OK) << said();
    const auto& b = backward;
    void* const again[] = {b.q.data,    b.k.data,    b.v.data,    b.o.data,     b.lse.data,    b.d_o.data,
                           b.dlse.data, b.dq.data,   b.dk.data,   b.dv.data,    b.saved.data,  b.workspace.data,
                           b.sink.data, b.cu_q.data, b.cu_k.data, b.dsink.data, b.random.data, b.alibi.data};
    ASSERT_EQ(headroom_attention_call_run(twice, again, 18, nullptr), HEADROOM_OK) << said();
    headroom_attention_call_destroy(twice);
  }

 private:
  headroom_context* context_;
  Aligned saved_, workspace_;

 public:
  headroom_attention_problem problem;
  headroom_attention_forward_arguments forward{};
  headroom_attention_backward_arguments backward{};

 private:
  bool backward_;
};

// A case twice, by the op and through the interface, and the same bits.
void compare(headroom_context* context, const Case& c, const std::string& variant, bool as_calls) {
  SCOPED_TRACE(fmt::format("{} {}", variant, in_words(c)));
  auto want = tensors_of(c), got = tensors_of(c);
  attention::cases::run(*attention::variant_named(variant), c, want, nullptr);
  Asking asking(context, c, views_of(c, got), variant.c_str());
  as_calls ? asking.run_as_calls() : asking.run();
  const auto w = want.all(), g = got.all();
  for (std::size_t i = 0; i < w.size(); ++i) EXPECT_TRUE(w[i]->bytes() == g[i]->bytes()) << "tensor " << i;
}

TEST(CFeatures, EveryFeatureGivesTheOpsBits) {
  const auto context = make_context(1);
  int n = 0;
  attention::cases::each_feature({DType::f32}, [&](const Case& c) {
    if (++n % 2) compare(context.get(), c, n % 12 == 1 ? "plain" : "flash", n / 2 % 2);
  });
  attention::cases::each_feature({DType::bf16}, [&](const Case& c) {
    if (++n % 9 == 0) compare(context.get(), c, "flash", n / 9 % 2);
  });
  EXPECT_GT(n, 80);
  attention::cases::each_dropout({DType::f32}, [&](const Case& c) {
    if (++n % 3 == 0) compare(context.get(), c, n % 2 ? "plain" : "flash", n / 3 % 2);
  });
}

TEST(CFeatures, ACacheOfAnyLengthInAnyPages) {
  const auto context = make_context(1);
  int n = 0;
  attention::cases::each_cache({DType::f32}, [&](const Case& c) {
    if (++n % 3 == 0) compare(context.get(), c, "flash", n % 2);
  });
  attention::cases::each_alibi({DType::f32}, [&](const Case& c) {
    if (++n % 3 == 0) compare(context.get(), c, n % 2 ? "flash" : "plain", n % 2);
  });
  EXPECT_GT(n, 80);
}

TEST(CFeatures, TheOracleAgrees) {
  const auto context = make_context();
  Case c = packed(
      attention::cases::plain_case(4, 2, 0, 0, 40, attention::Mask::sliding(20, attention::Align::bottom_right, 3), {DType::f32}, 71),
      {33, 0, 70, 1}, {40, 5, 64, 1});
  c.problem.softcap = 3, c.problem.sink = true, c.problem.dim_v = 24;
  auto x = tensors_of(c);
  Asking(context.get(), c, views_of(c, x), "flash").run();
  judge(c, x, false);
}

Case packed_case() {
  Case c = packed(attention::cases::plain_case(2, 1, 0, 0, 16, attention::Mask::causal(), {DType::f32}, 72), {10, 20}, {12, 20});
  c.problem.sink = c.problem.alibi = true;
  return c;
}

TEST(CFeatures, AWrongListIsAnsweredInOneLine) {
  const auto context = make_context();
  const Case c = packed_case();
  auto x = tensors_of(c);
  Asking good(context.get(), c, views_of(c, x), "flash");
  const auto refused = [&](auto spoil, const char* words, headroom_status status = HEADROOM_BAD_ARGUMENT) {
    Asking bad = good;
    spoil(bad);
    EXPECT_EQ(headroom_attention_forward(context.get(), &bad.problem, &bad.forward), status) << words;
    EXPECT_NE(std::string(said()).find(words), std::string::npos) << said() << " should speak of: " << words;
  };
  using A = Asking&;
  good.run();
  refused([](A a) { a.forward.sink.rank = 0; }, "sink is missing, expected fp32 2");
  refused([](A a) { a.problem.sink = 0; }, "sink is given, and the problem has none: set problem.sink");
  refused([](A a) { a.problem.sink = 2; }, "problem.sink is 2");
  refused([](A a) { a.forward.sink.dtype = HEADROOM_I32; }, "sink is int32 2, expected fp32 2");
  refused([](A a) { a.forward.sink.shape[0] = 1; }, "sink is fp32 1, expected fp32 2");
  refused([](A a) { a.forward.alibi.rank = 0; }, "alibi is missing, expected fp32 2");
  refused([](A a) { a.problem.alibi = 0; }, "alibi is given, and the problem has none: set problem.alibi");
  refused([](A a) { a.problem.alibi = 2; }, "problem.alibi is 2");
  refused([](A a) { a.problem.reserved = 1; }, "problem.reserved is 1, it must be 0");
  refused([](A a) { a.forward.alibi.shape[0] = 1; }, "alibi is fp32 1, expected fp32 2, or 2×2, or 2×2×2");
  refused([](A a) { a.forward.alibi.data = nullptr; }, "alibi has no data (NULL)");
  refused([](A a) { a.forward.sink.data = nullptr; }, "sink has no data (NULL)");
  refused([](A a) { a.forward.o.data = a.forward.sink.data; }, "o is written, and ");  // is sink's memory, or overlaps what lies behind it
  refused([](A a) { a.forward.cu_k.rank = 0; }, "cu_k is missing, expected int32 2×3");
  refused([](A a) { a.problem.documents = 0; }, "cu_q is given, and the problem has none: set problem.documents");
  refused([](A a) { a.problem.documents = -1; }, "-1 documents");
  refused([](A a) { a.problem.documents = 3; }, "cu_q is int32 2×3, expected int32 2×4");
  refused([](A a) { a.forward.cu_q.stride[1] = 2; }, "cu_q must be contiguous");
  refused([](A a) { a.forward.pages = a.forward.cu_q; }, "pages is given, and the problem has none: set problem.page");
  refused([](A a) { a.forward.q.dtype = HEADROOM_I32; }, "q is int32, expected fp32");
  refused([](A a) { a.problem.dtype = HEADROOM_I32; }, "problem.dtype is 3, it must be 0 to 2");
  refused([](A a) { a.forward.lse.dtype = 4; }, "lse is 4, it must be 0 to 3");
  const auto listed = [&](std::int64_t at, std::int32_t value, const char* words) {
    const auto kept = x.cu_q.view().as<std::int32_t>()[at];
    x.cu_q.set_int(at, value);
    refused([](A) {}, words);
    EXPECT_EQ(headroom_attention_backward(context.get(), &good.problem, &good.backward), HEADROOM_BAD_ARGUMENT);
    x.cu_q.set_int(at, kept);
  };
  listed(0, 1, "cu_q[0] begins with 1");
  listed(1, 40, "cu_q[0][2] is 30, after 40");
  listed(4, -1, "cu_q[1][1] is -1, after 0");
  listed(5, 31, "cu_q[1] ends at 31, and there are 30 positions");
  for (const float slope : {INFINITY, -INFINITY, NAN, 0x1.1p127f}) {
    x.alibi.set(1, slope);
    refused([](A) {}, "alibi has the slope");
    EXPECT_EQ(headroom_attention_backward(context.get(), &good.problem, &good.backward), HEADROOM_BAD_ARGUMENT);
  }
  x.alibi.set(1, 0x1p127f);
  good.run();
  for (const double o : x.o.values()) EXPECT_FALSE(std::isnan(o));

  Asking backward = good;
  backward.backward.dsink = {};  // not asked for
  EXPECT_EQ(headroom_attention_backward(context.get(), &backward.problem, &backward.backward), HEADROOM_OK) << said();
  backward.backward.dsink = c_view(x.sink.view());
  EXPECT_EQ(headroom_attention_backward(context.get(), &backward.problem, &backward.backward), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(said(), "dsink is written, and is the same memory as sink");
}

TEST(CFeatures, DropoutIsAskedInNumbersOrInMemory) {
  const auto context = make_context();
  Case c = attention::cases::plain_case(2, 1, 40, 50, 16, attention::Mask::causal(), {DType::f32}, 76);
  c.problem.dropout = 0.3f;
  auto x = tensors_of(c), y = tensors_of(c);
  x.drop_by(5, 1ull << 40, false), y.drop_by(5, 1ull << 40, true);
  Asking numbers(context.get(), c, views_of(c, x), "flash"), memory(context.get(), c, views_of(c, y), "flash");
  numbers.run(), memory.run();
  EXPECT_TRUE(x.o.bytes() == y.o.bytes() && x.dk.bytes() == y.dk.bytes());
  const auto refused = [&](auto spoil, const char* words) {
    Asking bad = memory;
    spoil(bad);
    EXPECT_EQ(headroom_attention_forward(context.get(), &bad.problem, &bad.forward), HEADROOM_BAD_ARGUMENT) << words;
    EXPECT_NE(std::string(said()).find(words), std::string::npos) << said() << " should speak of: " << words;
  };
  using A = Asking&;
  refused([](A a) { a.problem.dropout = 1; }, "dropout is 1, it must be at least 0 and below 1");
  refused([](A a) { a.problem.dropout = NAN; }, "dropout is nan, it must be");
  refused([](A a) { a.problem.dropout = 0; }, "random is given, and the problem has none: set problem.dropout");
  refused([](A a) { a.forward.random.shape[0] = 2; }, "random is int32 2, expected int32 4");
  refused([](A a) { a.forward.random.data = nullptr; }, "random has no data (NULL)");
}

TEST(CFeatures, PagesAreOfACache) {
  const auto context = make_context();
  Case c = attention::cases::plain_case(2, 1, 3, 40, 16, attention::Mask::causal(), {DType::f32}, 73);
  c.problem.page = 16, c.problem.pages = 9;
  auto x = tensors_of(c);
  Asking asking(context.get(), c, views_of(c, x), nullptr);
  asking.run();
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_workspace_bytes(context.get(), &asking.problem, HEADROOM_BACKWARD, &bytes), HEADROOM_UNSUPPORTED);
  EXPECT_NE(std::string(said()).find("pages are of a cache: forward only"), std::string::npos) << said();
  EXPECT_EQ(headroom_attention_backward(context.get(), &asking.problem, &asking.backward), HEADROOM_UNSUPPORTED);
  char text[4096];
  ASSERT_EQ(headroom_attention_explain(context.get(), &asking.problem, text, sizeof text, nullptr), HEADROOM_OK);
  EXPECT_NE(std::string(text).find("flash: chosen"), std::string::npos) << text;
  x.pages.set_int(2, 9);
  EXPECT_EQ(headroom_attention_forward(context.get(), &asking.problem, &asking.forward), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(said(), "attention: pages[0][2] is 9, there are pages 0 to 8");

  Case shorter = packed(c, {3}, {32});  // the third page is not used
  shorter.problem.len_k = 40;
  auto y = tensors_of(shorter);
  y.pages.set_int(2, -1);
  Asking(context.get(), shorter, views_of(shorter, y), nullptr).run();
}

TEST(CCalls, AreCheckedWhenTheyAreMade) {
  const auto context = make_context();
  const Case c = packed_case();
  auto x = tensors_of(c);
  Asking good(context.get(), c, views_of(c, x), "flash");
  headroom_attention_call* call = nullptr;
  const auto refused = [&](auto spoil, headroom_status status, const char* words) {
    auto arguments = good.forward;
    spoil(arguments);
    EXPECT_EQ(headroom_attention_forward_call_create(context.get(), &good.problem, &arguments, &call), status) << words;
    EXPECT_NE(std::string(said()).find(words), std::string::npos) << said();
    EXPECT_EQ(call, nullptr);
  };
  using A = headroom_attention_forward_arguments&;
  refused([](A a) { a.q.shape[1] = 3; }, HEADROOM_BAD_ARGUMENT, "q is 2x3x2x16");
  refused([](A a) { a.cu_q.rank = 0; }, HEADROOM_BAD_ARGUMENT, "cu_q is missing");
  std::size_t needed = 0;  // of forward: backward's is larger
  ASSERT_EQ(headroom_attention_workspace_bytes(context.get(), &good.problem, HEADROOM_FORWARD, &needed), HEADROOM_OK);
  refused([&](A a) { a.workspace.bytes = needed - 1; }, HEADROOM_OUT_OF_MEMORY, "the call needs");
  refused([](A a) { a.flags = 8; }, HEADROOM_UNSUPPORTED, "arguments.flags is 8");
  EXPECT_EQ(headroom_attention_forward_call_create(context.get(), &good.problem, &good.forward, nullptr), HEADROOM_BAD_ARGUMENT);

  auto without = good.forward;  // no pointer is looked at
  for (auto* t :
       {&without.q, &without.k, &without.v, &without.o, &without.lse, &without.sink, &without.cu_q, &without.cu_k, &without.alibi})
    t->data = nullptr;
  without.workspace.data = nullptr;
  ASSERT_EQ(headroom_attention_forward_call_create(context.get(), &good.problem, &without, &call), HEADROOM_OK) << said();
  const auto& f = good.forward;
  void* pointers[14] = {f.q.data,    f.k.data,    f.v.data,    f.o.data, f.lse.data, nullptr,     f.workspace.data,
                        f.sink.data, f.cu_q.data, f.cu_k.data, nullptr,  nullptr,    f.alibi.data};
  EXPECT_EQ(headroom_attention_call_run(call, pointers, 13, nullptr), HEADROOM_OK) << said();
  EXPECT_EQ(headroom_attention_call_run(call, pointers, 12, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(said(), "alibi has no data (NULL)");
  EXPECT_EQ(headroom_attention_call_run(call, pointers, 9, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(said(), "cu_k has no data (NULL)");
  EXPECT_EQ(headroom_attention_call_run(call, pointers, 14, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_attention_call_run(call, nullptr, 13, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_attention_call_run(nullptr, pointers, 13, nullptr), HEADROOM_BAD_ARGUMENT);
  pointers[6] = static_cast<char*>(f.workspace.data) + 1;
  EXPECT_EQ(headroom_attention_call_run(call, pointers, 13, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(said(), "workspace must be aligned to 256 bytes");
  pointers[6] = f.workspace.data, pointers[3] = pointers[0];
  EXPECT_EQ(headroom_attention_call_run(call, pointers, 13, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_STREQ(said(), "o is written, and is the same memory as q");
  headroom_attention_call_destroy(call);
  headroom_attention_call_destroy(nullptr);
}

TEST(CCalls, OneServesManyThreads) {
  const auto context = make_context();
  const Case c = attention::cases::plain_case(4, 2, 60, 70, 16, attention::Mask::causal(), {DType::f32}, 74);
  auto shared = tensors_of(c);
  Asking asking(context.get(), c, views_of(c, shared), "flash");
  asking.run();
  headroom_attention_call* call = nullptr;
  ASSERT_EQ(headroom_attention_forward_call_create(context.get(), &asking.problem, &asking.forward, &call), HEADROOM_OK) << said();
  std::vector<std::thread> threads;
  for (int n = 0; n < 3; ++n)
    threads.emplace_back([&] {
      auto mine = tensors_of(c);
      Aligned workspace(asking.forward.workspace.bytes);
      for (int i = 0; i < 10; ++i) {
        void* pointers[] = {mine.q.view().data,   mine.k.view().data, mine.v.view().data, mine.o.view().data, mine.lse.view().data, nullptr,
                            workspace.lend().data};
        EXPECT_EQ(headroom_attention_call_run(call, pointers, 7, nullptr), HEADROOM_OK) << said();
        EXPECT_TRUE(mine.o.bytes() == shared.o.bytes());
      }
    });
  for (auto& t : threads) t.join();
  headroom_attention_call_destroy(call);
}

TEST(CCalls, WithoutPythonInTheProcessThereAreNoFunctionsForIt) { EXPECT_EQ(headroom_python_attention(), nullptr); }

TEST(CppInterface, TakesSinksDocumentsSlopesAndPages) {
  const api::Context context(1);
  const auto raw = make_context(1);
  const Case c = packed_case();
  auto want = tensors_of(c), got = tensors_of(c);
  Asking asking(raw.get(), c, views_of(c, want), "flash");
  asking.run();
  const Asking a(raw.get(), c, views_of(c, got), "flash");
  api::Attention attention(context, asking.problem);
  const auto& f = a.forward;
  const auto& b = a.backward;
  api::Forward forward{f.q, f.k, f.v, f.o, f.lse, f.sink, f.cu_q, f.cu_k};
  api::Backward backward{b.q, b.k, b.v, b.o, b.lse, b.d_o, b.dlse, b.dq, b.dk, b.dv, b.sink, b.cu_q, b.cu_k, b.dsink};
  forward.alibi = backward.alibi = f.alibi;
  attention.forward(forward);
  attention.backward(backward);
  EXPECT_TRUE(want.o.bytes() == got.o.bytes() && want.dk.bytes() == got.dk.bytes() && want.dsink.bytes() == got.dsink.bytes());
  std::int32_t borders[] = {0, 3};
  const auto view = api::tensor(borders, {1, 2});
  EXPECT_TRUE(view.dtype == HEADROOM_I32 && view.bytes == 8);

  Case cache = attention::cases::plain_case(2, 1, 3, 40, 16, attention::Mask::causal(), {DType::f32}, 75);
  cache.problem.page = 16, cache.problem.pages = 9;
  auto paged = tensors_of(cache), again = tensors_of(cache);
  Asking by_c(raw.get(), cache, views_of(cache, paged), "flash");
  by_c.run();
  const auto p = Asking(raw.get(), cache, views_of(cache, again), "flash").forward;
  api::Attention(context, by_c.problem).forward({p.q, p.k, p.v, p.o, p.lse, {}, {}, {}, p.pages});
  EXPECT_TRUE(paged.o.bytes() == again.o.bytes());
}

TEST(CStructs, ArgumentsOfTheHeaderBeforeGoOn) {  // it had no field behind `stream`, and the problem none behind `softcap`
  const auto context = make_context();
  Call call(context.get(), problem_of(32, 8, "flash"));
  ASSERT_EQ(call.forward(context.get()), HEADROOM_OK);
  ASSERT_EQ(call.backward(context.get()), HEADROOM_OK);
  const auto o = call.o, dq = call.dq;
  auto p = call.problem;
  auto f = call.forward_arguments();
  auto b = call.backward_arguments();
  const auto older = [](auto& s, std::size_t known) {  // the bytes behind belong to something else
    std::memset(reinterpret_cast<char*>(&s) + known, 0x5a, sizeof s - known);
    s.struct_size = std::uint32_t(known);
  };
  older(p, offsetof(headroom_attention_problem, documents));
  older(f, offsetof(headroom_attention_forward_arguments, sink));
  older(b, offsetof(headroom_attention_backward_arguments, sink));
  p.sink = 0;  // was called `reserved`
  ASSERT_EQ(headroom_attention_forward(context.get(), &p, &f), HEADROOM_OK) << said();
  ASSERT_EQ(headroom_attention_backward(context.get(), &p, &b), HEADROOM_OK) << said();
  EXPECT_TRUE(o == call.o && dq == call.dq);
}

TEST(CStructs,
     AnOlderProblemsPaddingIsNotSlopes) {  // the header before `alibi`: `quantise`, and four bytes that a compiler leaves as they are
  const auto context = make_context();
  auto p = problem_of(32, 8, "flash");
  constexpr std::size_t known = 160;  // its sizeof
  const std::size_t named = offsetof(headroom_attention_problem, quantise) + sizeof p.quantise;
  ASSERT_EQ(named + 4, known);
  std::memset(reinterpret_cast<char*>(&p) + named, 0x5a, sizeof p - named);
  p.struct_size = known;
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_workspace_bytes(context.get(), &p, HEADROOM_FORWARD, &bytes), HEADROOM_OK) << said();
}

}  // namespace
}  // namespace headroom::capi
