// The C interface: the right result, an answer to every misuse, and structs that may grow.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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
      EXPECT_NE(last_error().find(fmt::format("of {} bytes", exact - 1)), std::string::npos) << last_error();
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
  refused([](P p, A) { p.variant = ""; }, HEADROOM_BAD_ARGUMENT, "problem.variant is empty");
  refused([](P p, A) { p.softcap = 1e-40f; }, HEADROOM_BAD_ARGUMENT, "beyond a float");
  refused([](P p, A) { p.softcap = 1e-37f, p.scale = 1e6f; }, HEADROOM_BAD_ARGUMENT, "beyond a float");
  refused([](P, A a) { a.q.shape[1] = 31; }, HEADROOM_BAD_ARGUMENT, "q is 1x31");
  refused([](P, A a) { a.k.dtype = HEADROOM_F16; }, HEADROOM_BAD_ARGUMENT, "k is fp16");
  refused([](P, A a) { a.o.data = nullptr; }, HEADROOM_BAD_ARGUMENT, "o has no data");
  refused([](P, A a) { a.v.rank = 0; }, HEADROOM_BAD_ARGUMENT, "v is missing");
  refused([](P, A a) { a.v.rank = 9; }, HEADROOM_BAD_ARGUMENT, "v.rank is 9");
  refused([](P, A a) { a.q.shape[0] = -4; }, HEADROOM_BAD_ARGUMENT, "q.shape[0]");
  refused([](P, A a) { a.v.stride[0] = 512, a.v.stride[1] = 16, a.v.stride[2] = 8, a.v.stride[3] = 2, a.v.bytes = 0; },
          HEADROOM_BAD_ARGUMENT, "stride 2");
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

// A page that faults when it is touched comes right behind these bytes.
class AtAPagesEnd {
 public:
  explicit AtAPagesEnd(std::size_t bytes) : page_(std::size_t(sysconf(_SC_PAGESIZE))), size_((bytes + page_ - 1) / page_ * page_ + page_) {
    map_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(map_ + size_ - page_, page_, PROT_NONE);
    data_ = map_ + size_ - page_ - bytes;
  }
  ~AtAPagesEnd() { munmap(map_, size_); }
  void* data() { return data_; }

 private:
  std::size_t page_, size_;
  char *map_, *data_;
};

TEST(CViews, AGradientThatRepeatsItselfIsReadAsThatOrRefused) {  // o.sum().backward() hands over one element for all
  const auto context = make_context();
  for (const char* variant : {"plain", "flash"}) {
    Call call(context.get(), problem_of(40, 8, variant));
    AtAPagesEnd one_head(40 * 8 * sizeof(float));
    auto* const gradient = static_cast<float*>(one_head.data());
    for (std::size_t i = 0; i < 40 * 8; ++i) gradient[i] = call.d_o[i];
    for (std::size_t i = 0; i < call.d_o.size(); ++i) call.d_o[i] = gradient[i / 16 * 8 + i % 8];
    ASSERT_EQ(call.forward(context.get()), HEADROOM_OK) << last_error();
    ASSERT_EQ(call.backward(context.get()), HEADROOM_OK) << last_error();
    const auto dq = call.dq, dk = call.dk, dv = call.dv;
    auto a = call.backward_arguments();
    a.d_o = {gradient, HEADROOM_F32, 4, {1, 40, 2, 8}, {0, 8, 0, 1}, 40 * 8 * sizeof(float)};
    ASSERT_EQ(headroom_attention_backward(context.get(), &call.problem, &a), HEADROOM_OK) << last_error();
    EXPECT_TRUE(dq == call.dq && dk == call.dk && dv == call.dv) << variant;
    a.d_o = {gradient, HEADROOM_F32, 4, {1, 40, 2, 8}, {0, 0, 0, 0}, sizeof(float)};
    EXPECT_EQ(headroom_attention_backward(context.get(), &call.problem, &a), HEADROOM_BAD_ARGUMENT);
    EXPECT_NE(last_error().find("d_o has stride 0 in its last dimension"), std::string::npos) << last_error();
    a.d_o.stride[3] = 1, a.d_o.bytes = 8 * sizeof(float);
    EXPECT_EQ(headroom_attention_backward(context.get(), &call.problem, &a), HEADROOM_BAD_ARGUMENT);
    EXPECT_NE(last_error().find("d_o has stride 0 from one position to the next"), std::string::npos) << last_error();
  }
}

TEST(CViews, WhatReachesPastItsMemoryIsRefused) {
  const auto context = make_context();
  Call call(context.get(), problem_of(32, 8));
  const auto refused = [&](auto spoil, const char* words) {
    auto a = call.forward_arguments();
    spoil(a);
    EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_BAD_ARGUMENT) << words;
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  };
  using A = headroom_attention_forward_arguments&;
  refused([](A a) { a.q.bytes -= 1; }, "q reaches 2048 bytes from its data on, its memory has 2047");
  refused([](A a) { a.k.stride[1] = 17; }, "k reaches");
  refused([](A a) { a.v.stride[1] = -16; }, "v.stride[1] is -16");
  refused([](A a) { a.q.bytes = -1; }, "q.bytes is -1");
  refused([](A a) { a.k.stride[1] = std::int64_t(1) << 62, a.k.bytes = 0; }, "k reaches past every memory");
  refused([](A a) { a.lse.bytes = 4; }, "lse reaches");
  auto a = call.forward_arguments();
  a.q.bytes = 0;  // not known
  EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_OK) << last_error();
}

TEST(CViews, OutputsThatOverlapAreRefused) {
  const auto context = make_context();
  Call call(context.get(), problem_of(32, 8));
  const auto forward_refused = [&](auto spoil, const char* words) {
    auto a = call.forward_arguments();
    spoil(a);
    EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_BAD_ARGUMENT) << words;
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  };
  using A = headroom_attention_forward_arguments&;
  forward_refused([](A a) { a.o.stride[1] = 0; }, "o is written, and has stride 0 in dimension 1");
  forward_refused([](A a) { a.o.stride[2] = 4; }, "o is written, and stride 4 of dimension 2");
  forward_refused([](A a) { std::fill_n(a.o.stride, 4, 0); }, "o is written, and has stride 0");
  forward_refused([](A a) { a.o.data = a.q.data; }, "o is written, and is the same memory as q");
  std::vector<float> both(2 * call.q.size());
  auto a = call.forward_arguments();
  a.q.data = both.data();
  a.q.bytes = a.o.bytes = 0;
  for (const std::ptrdiff_t apart : {std::ptrdiff_t(1), std::ptrdiff_t(call.q.size()) - 1}) {
    a.o.data = both.data() + apart;
    EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_BAD_ARGUMENT) << apart;
    EXPECT_NE(last_error().find("o is written, and overlaps q"), std::string::npos) << last_error();
  }
  a.o.data = both.data() + call.q.size();
  EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_OK) << last_error();
  auto b = call.backward_arguments();
  b.dk.data = static_cast<float*>(b.dv.data) + 1;
  b.dk.bytes = 0;
  EXPECT_EQ(headroom_attention_backward(context.get(), &call.problem, &b), HEADROOM_BAD_ARGUMENT);
  EXPECT_NE(last_error().find("dv and dk are written, and overlap"), std::string::npos) << last_error();
  b = call.backward_arguments();
  b.dk.data = b.dv.data;
  EXPECT_EQ(headroom_attention_backward(context.get(), &call.problem, &b), HEADROOM_BAD_ARGUMENT);
  EXPECT_NE(last_error().find("dv and dk are written, and are the same memory"), std::string::npos) << last_error();
}

TEST(CViews, PackedTensorsShareAnAllocation) {  // [batch, len, 3, heads, dim], as a projection leaves it: strides without overlap
  const auto context = make_context();
  Call call(context.get(), problem_of(32, 8, "flash"));
  ASSERT_EQ(call.forward(context.get()), HEADROOM_OK);
  ASSERT_EQ(call.backward(context.get()), HEADROOM_OK);
  std::vector<float> packed(32 * 3 * 16), d_packed(packed.size(), NAN);
  const auto part = [&](std::vector<float>& all, std::size_t n) {
    return headroom_tensor{all.data() + n * 16, HEADROOM_F32,        4,
                           {1, 32, 2, 8},       {32 * 48, 48, 8, 1}, std::int64_t((all.size() - n * 16) * 4)};
  };
  for (std::size_t row = 0; row < 32; ++row)
    for (std::size_t i = 0; i < 16; ++i)
      packed[row * 48 + i] = call.q[row * 16 + i], packed[row * 48 + 16 + i] = call.k[row * 16 + i],
                        packed[row * 48 + 32 + i] = call.v[row * 16 + i];
  auto a = call.backward_arguments();
  a.q = part(packed, 0), a.k = part(packed, 1), a.v = part(packed, 2);
  a.dq = part(d_packed, 0), a.dk = part(d_packed, 1), a.dv = part(d_packed, 2);
  ASSERT_EQ(headroom_attention_backward(context.get(), &call.problem, &a), HEADROOM_OK) << last_error();
  for (std::size_t row = 0; row < 32; ++row)
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(d_packed[row * 48 + i], call.dq[row * 16 + i]);
      EXPECT_EQ(d_packed[row * 48 + 16 + i], call.dk[row * 16 + i]);
      EXPECT_EQ(d_packed[row * 48 + 32 + i], call.dv[row * 16 + i]);
    }
}

TEST(CAttention, AScaleOfZeroIsOneWhereItIsGiven) {
  const auto context = make_context();
  for (const char* variant : {"plain", "flash"}) {
    auto p = problem_of(24, 8, variant);
    Call usual(context.get(), p);
    ASSERT_EQ(usual.forward(context.get()), HEADROOM_OK);
    p.scale_given = 1;
    Call call(context.get(), p);
    ASSERT_EQ(call.forward(context.get()), HEADROOM_OK) << last_error();
    ASSERT_EQ(call.backward(context.get()), HEADROOM_OK) << last_error();
    EXPECT_NE(call.o, usual.o);
    for (const float x : call.lse) EXPECT_NEAR(x, std::log(24.0), 1e-6) << variant;
    double mean = 0;
    for (std::size_t key = 0; key < 24; ++key) mean += double(call.v[key * 16]) / 24;
    EXPECT_NEAR(call.o[5 * 16], mean, 1e-6) << variant;
    for (const float x : call.dq) ASSERT_EQ(x, 0) << variant;
  }
}

TEST(CStructs, ASizeThatNoStructHasIsNotBelieved) {
  const auto context = make_context(1);
  AtAPagesEnd end(sizeof(headroom_attention_problem));
  auto* p = static_cast<headroom_attention_problem*>(end.data());
  *p = problem_of(32, 8);
  p->struct_size = 1u << 20;
  std::size_t bytes = 0;
  EXPECT_EQ(headroom_attention_saved_bytes(context.get(), p, &bytes), HEADROOM_BAD_ARGUMENT);
  EXPECT_NE(last_error().find("problem.struct_size is 1048576"), std::string::npos) << last_error();
}

TEST(CStructs, ArgumentsOfAnOlderHeaderAreRefused) {  // their tensors had another size
  const auto context = make_context(1);
  Call call(context.get(), problem_of(32, 8));
  auto a = call.forward_arguments();
  a.struct_size = offsetof(headroom_attention_forward_arguments, stream);
  EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_BAD_ARGUMENT);
  EXPECT_NE(last_error().find("arguments.struct_size"), std::string::npos) << last_error();
  a = call.forward_arguments();
  a.flags = 2;
  EXPECT_EQ(headroom_attention_forward(context.get(), &call.problem, &a), HEADROOM_UNSUPPORTED);
}

TEST(CErrors, ASentenceIsCutBetweenLetters) {
  const auto context = make_context(1);
  for (std::size_t shift = 0; shift < 3; ++shift) {
    std::string name(shift, 'x');
    while (name.size() < 3000) name += "\u20ac";  // three bytes each
    auto p = problem_of(32, 8, name.c_str());
    std::size_t bytes = 0;
    EXPECT_EQ(headroom_attention_saved_bytes(context.get(), &p, &bytes), HEADROOM_UNSUPPORTED);
    const std::string text = last_error();
    std::size_t letters = 0, bytes_of_letters = 0;
    for (const char c : text) (c & 0xC0) == 0x80 || (c & 0x80) == 0 ? void() : void(++letters);
    for (const char c : text) bytes_of_letters += (c & 0x80) != 0;
    EXPECT_EQ(bytes_of_letters, 3 * letters) << "a letter is cut, shift " << shift;
    EXPECT_GT(text.size(), 1000u);
  }
}

TEST(CMemory, IsTheContextsAndComesAndGoes) {
  const auto context = make_context(1);
  headroom_memory m{};
  ASSERT_EQ(headroom_memory_allocate(context.get(), 1000, &m), HEADROOM_OK) << last_error();
  EXPECT_EQ(m.bytes, 1000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m.data) % HEADROOM_ALIGNMENT, 0u);
  const char there[] = "there and back";
  char back[sizeof there] = "";
  ASSERT_EQ(headroom_memory_write(context.get(), m.data, there, sizeof there, nullptr), HEADROOM_OK) << last_error();
  ASSERT_EQ(headroom_memory_read(context.get(), back, m.data, sizeof there, nullptr), HEADROOM_OK) << last_error();
  EXPECT_STREQ(back, there);
  EXPECT_EQ(headroom_memory_read(context.get(), nullptr, m.data, 1, nullptr), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_memory_write(context.get(), nullptr, there, 1, nullptr), HEADROOM_BAD_ARGUMENT);
  headroom_memory_free(context.get(), &m);
  EXPECT_EQ(m.data, nullptr);
  headroom_memory_free(context.get(), &m);
  headroom_memory_free(context.get(), nullptr);
  ASSERT_EQ(headroom_memory_allocate(context.get(), 0, &m), HEADROOM_OK);
  EXPECT_EQ(m.data, nullptr);
  EXPECT_EQ(headroom_memory_allocate(context.get(), std::size_t(1) << 62, &m), HEADROOM_OUT_OF_MEMORY);
  EXPECT_EQ(headroom_memory_allocate(nullptr, 1, &m), HEADROOM_BAD_ARGUMENT);
  EXPECT_EQ(headroom_memory_allocate(context.get(), 1, nullptr), HEADROOM_BAD_ARGUMENT);
}

}  // namespace
}  // namespace headroom::capi
