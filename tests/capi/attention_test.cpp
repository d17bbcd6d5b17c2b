// The C interface: the right result, an answer to every misuse, and structs that may grow.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "ops/attention/reference.h"
#include "tests/capi/call.h"

namespace headroom::capi {
namespace {

Tensor tensor(std::vector<float>& x, Shape s) { return {x.data(), DType::f32, s}; }

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::isnan(a[i]) ? INFINITY : std::abs(double(a[i]) - b[i]));
  return most;
}

std::string last_error() { return headroom_last_error(); }

TEST(CAttention, EveryVariantGivesTheReferencesResult) {
  const auto context = make_context();
  for (const char* variant : {"plain", "flash"}) {
    auto p = problem_of(70, 24, variant);
    p.batch = 2, p.heads = 4, p.kv_heads = 2, p.len_k = 90, p.mask = HEADROOM_MASK_CAUSAL;
    Call call(context.get(), p);
    ASSERT_EQ(call.forward(context.get()), HEADROOM_OK) << last_error();
    ASSERT_EQ(call.backward(context.get()), HEADROOM_OK) << last_error();

    attention::Problem same;
    same.batch = 2, same.heads = 4, same.kv_heads = 2, same.len_q = 70, same.len_k = 90, same.head_dim = 24;
    same.mask = attention::Mask::causal();
    const auto want = attention::reference(same, tensor(call.q, same.q_shape()), tensor(call.k, same.k_shape()),
                                           tensor(call.v, same.k_shape()), tensor(call.d_o, same.q_shape()));
    EXPECT_LT(largest_difference(call.o, want.o), 1e-5) << variant;
    EXPECT_LT(largest_difference(call.lse, want.lse), 1e-5) << variant;
    EXPECT_LT(largest_difference(call.dq, want.dq), 1e-4) << variant;
    EXPECT_LT(largest_difference(call.dk, want.dk), 1e-4) << variant;
    EXPECT_LT(largest_difference(call.dv, want.dv), 1e-4) << variant;
  }
}

TEST(CAttention, FlashKeepsNothingAndPlainKeepsTheMatrix) {
  const auto context = make_context();
  std::size_t bytes = 1;
  auto p = problem_of(128, 16, "flash");
  ASSERT_EQ(headroom_attention_saved_bytes(context.get(), &p, &bytes), HEADROOM_OK) << last_error();
  EXPECT_EQ(bytes, 0u);
  p.variant = "plain";
  ASSERT_EQ(headroom_attention_saved_bytes(context.get(), &p, &bytes), HEADROOM_OK) << last_error();
  EXPECT_EQ(bytes, 2u * 128 * 128 * 4);
}

TEST(CAttention, OneByteLessIsRefusedAndSaysWhat) {
  const auto context = make_context();
  for (const char* variant : {"plain", "flash"}) {
    Call call(context.get(), problem_of(64, 16, variant));
    for (const auto pass : {HEADROOM_FORWARD, HEADROOM_BACKWARD}) {
      std::size_t exact = 0;
      ASSERT_EQ(headroom_attention_workspace_bytes(context.get(), &call.problem, pass, &exact), HEADROOM_OK);
      ASSERT_EQ(call.forward(context.get()), HEADROOM_OK);
      const auto run = [&](std::size_t bytes) {
        Aligned memory(bytes);
        auto f = call.forward_arguments();
        auto b = call.backward_arguments();
        f.workspace = b.workspace = memory.lend();
        return pass == HEADROOM_FORWARD ? headroom_attention_forward(context.get(), &call.problem, &f)
                                        : headroom_attention_backward(context.get(), &call.problem, &b);
      };
      EXPECT_EQ(run(exact), HEADROOM_OK) << last_error();
      if (exact == 0) continue;
      EXPECT_EQ(run(exact - 1), HEADROOM_OUT_OF_MEMORY) << variant << " pass " << pass;
      EXPECT_NE(last_error().find("out of memory"), std::string::npos) << last_error();
    }
  }
}

TEST(CAttention, ExplainNamesTheChosenAndTheReasons) {
  const auto context = make_context();
  char text[4096];
  std::size_t needed = 0;
  auto p = problem_of(64, 16);
  ASSERT_EQ(headroom_attention_explain(context.get(), &p, text, sizeof text, &needed), HEADROOM_OK);
  EXPECT_EQ(needed, std::strlen(text) + 1);
  EXPECT_NE(std::string(text).find("flash: chosen\n"), std::string::npos) << text;
  EXPECT_NE(std::string(text).find("plain: serves too\n"), std::string::npos) << text;
  p.variant = "plain";
  ASSERT_EQ(headroom_attention_explain(context.get(), &p, text, sizeof text, nullptr), HEADROOM_OK);
  EXPECT_NE(std::string(text).find("plain: chosen\n"), std::string::npos) << text;
  char cut[6];
  ASSERT_EQ(headroom_attention_explain(context.get(), &p, cut, sizeof cut, &needed), HEADROOM_OK);
  EXPECT_EQ(std::string(cut), std::string(text).substr(0, 5));
  EXPECT_EQ(headroom_attention_explain(context.get(), &p, nullptr, 0, &needed), HEADROOM_OK);
  EXPECT_EQ(needed, std::strlen(text) + 1);
}

TEST(CAttention, AMisuseIsAnsweredInOneLine) {
  const auto context = make_context();
  Call call(context.get(), problem_of(32, 8));
  const auto good_problem = call.problem;
  const auto good = call.forward_arguments();
  const auto refused = [&](auto spoil, headroom_status status, const char* word) {
    auto problem = good_problem;
    auto arguments = good;
    spoil(problem, arguments);
    EXPECT_EQ(headroom_attention_forward(context.get(), &problem, &arguments), status) << word;
    EXPECT_NE(last_error().find(word), std::string::npos) << last_error() << " should speak of " << word;
  };
  using P = headroom_attention_problem&;
  using A = headroom_attention_forward_arguments&;
  refused([](P p, A) { p.head_dim = 0; }, HEADROOM_BAD_ARGUMENT, "head_dim");
  refused([](P p, A) { p.len_q = -1; }, HEADROOM_BAD_ARGUMENT, "len_q");
  refused([](P p, A) { p.kv_heads = 3; }, HEADROOM_BAD_ARGUMENT, "kv_heads");
  refused([](P p, A) { p.dtype = 17; }, HEADROOM_BAD_ARGUMENT, "problem.dtype is 17");
  refused([](P p, A) { p.mask = -1; }, HEADROOM_BAD_ARGUMENT, "problem.mask");
  refused([](P p, A) { p.mask = HEADROOM_MASK_WINDOW; }, HEADROOM_BAD_ARGUMENT, "window");
  refused([](P p, A) { p.scale = NAN; }, HEADROOM_BAD_ARGUMENT, "scale");
  refused([](P p, A) { p.struct_size = 0; }, HEADROOM_BAD_ARGUMENT, "struct_size");
  refused([](P p, A) { p.variant = "flsh"; }, HEADROOM_UNSUPPORTED, "flsh");
  refused([](P, A a) { a.q.shape[1] = 31; }, HEADROOM_BAD_ARGUMENT, "q is 1x31");
  refused([](P, A a) { a.k.dtype = HEADROOM_F16; }, HEADROOM_BAD_ARGUMENT, "k is fp16");
  refused([](P, A a) { a.o.data = nullptr; }, HEADROOM_BAD_ARGUMENT, "o has no data");
  refused([](P, A a) { a.v.rank = 0; }, HEADROOM_BAD_ARGUMENT, "v is missing");
  refused([](P, A a) { a.v.rank = 9; }, HEADROOM_BAD_ARGUMENT, "v.rank is 9");
  refused([](P, A a) { a.q.shape[0] = -4; }, HEADROOM_BAD_ARGUMENT, "q.shape[0]");
  refused([](P, A a) { a.v.stride[0] = 512, a.v.stride[1] = 16, a.v.stride[2] = 8, a.v.stride[3] = 2; }, HEADROOM_BAD_ARGUMENT, "stride 2");
  refused([](P, A a) { a.workspace = {reinterpret_cast<void*>(1), 1 << 20}; }, HEADROOM_BAD_ARGUMENT, "aligned to 256");
  refused([](P, A a) { a.workspace = {nullptr, 1 << 20}; }, HEADROOM_BAD_ARGUMENT, "at NULL");
  EXPECT_EQ(headroom_attention_forward(nullptr, &good_problem, &good), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_attention_forward(context.get(), nullptr, &good), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_attention_forward(context.get(), &good_problem, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &good_problem, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_attention_forward(context.get(), &good_problem, &good), HEADROOM_OK) << "a refusal must hurt no later call";
}

TEST(CContext, SaysWhatItCannotBe) {
  headroom_context_settings settings = HEADROOM_CONTEXT_SETTINGS_INIT;
  headroom_context* made = nullptr;
  settings.threads = -1;
  EXPECT_EQ(headroom_context_create(&settings, &made), HEADROOM_BAD_ARGUMENT);
  EXPECT_NE(last_error().find("threads is -1"), std::string::npos) << last_error();
  settings.threads = 1, settings.device = 5;
  EXPECT_EQ(headroom_context_create(&settings, &made), HEADROOM_BAD_ARGUMENT);
  settings.device = HEADROOM_DEVICE_CPU, settings.device_index = 3;
  EXPECT_EQ(headroom_context_create(&settings, &made), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(headroom_context_create(nullptr, &made), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_context_create(&settings, nullptr), HEADROOM_BAD_ARGUMENT);
  headroom_context_destroy(nullptr);
  EXPECT_EQ(headroom_context_threads(make_context(3).get()), 3);
}

TEST(CStructs, AnOlderCallersFieldsReadAsZero) {
  const auto context = make_context(1);
  auto p = problem_of(32, 8, reinterpret_cast<const char*>(16));  // a pointer that must not be followed
  p.struct_size = offsetof(headroom_attention_problem, variant);
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &p, &bytes), HEADROOM_OK) << last_error();
}

TEST(CStructs, ANewerCallerMaySetNothingUnknown) {
  const auto context = make_context(1);
  struct {
    headroom_attention_problem known;
    std::int64_t unknown;
  } newer{problem_of(32, 8), 0};
  newer.known.struct_size = sizeof newer;
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &newer.known, &bytes), HEADROOM_OK) << last_error();
  newer.unknown = 1;
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &newer.known, &bytes), HEADROOM_UNSUPPORTED);
  EXPECT_NE(last_error().find("does not know"), std::string::npos) << last_error();
}

TEST(CErrors, BelongToTheThreadThatMadeThem) {
  const auto context = make_context(1);
  auto p = problem_of(32, 0);
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &p, &bytes), HEADROOM_BAD_ARGUMENT);
  std::string elsewhere = "unset";
  std::thread([&] { elsewhere = headroom_last_error(); }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_NE(last_error(), "");
  EXPECT_STREQ(headroom_status_name(HEADROOM_OUT_OF_MEMORY), "out_of_memory");
  EXPECT_STREQ(headroom_version(), HEADROOM_VERSION);
}

TEST(CErrors, ALongSentenceIsCutNotOverrun) {
  const auto context = make_context(1);
  const std::string name(5000, 'x');
  auto p = problem_of(32, 8, name.c_str());
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &p, &bytes), HEADROOM_UNSUPPORTED);
  EXPECT_LT(last_error().size(), 1024u);
}

}  // namespace
}  // namespace headroom::capi
