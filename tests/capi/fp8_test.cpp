// Attention in fp8 by the C interface, on a CPU: the op's own bits, the workspace it takes, and an answer to what it does not serve.
#include <string>

#include "tests/capi/call.h"
#include "tests/capi/fp8_door.h"

namespace headroom::capi {
namespace {

using namespace attention::fp8_cases;
using attention::Mask;

std::string words_of_failure() { return headroom_last_error(); }

TEST(CAttentionFp8, GivesTheOpsOwnBits) {
  const Device cpu;
  Place place(cpu, 2);
  const api::Context context;
  for (Fp8Case c : every_fp8_case({16, 48})) {
    if (c.from != DType::bf16) continue;
    const Fp8Inputs in = inputs_of(c);
    const Fp8Result of_op = run_fp8(c, in, *attention::variant_named("flash_fp8"), place, cpu);
    Fp8Result r = by_door(context, c, in, of_op);
    EXPECT_EQ(r.o, of_op.o) << in_words(c);
    EXPECT_EQ(r.lse, of_op.lse) << in_words(c);
    judge_fp8(c, r);
  }
}

TEST(CAttentionFp8, WorkspaceIsExactAndHasTheCopies) {
  const auto context = make_context();
  InBf16 call;
  std::size_t exact = 0, saved = 1;
  ASSERT_EQ(headroom_attention_workspace_bytes(context.get(), &call.p, HEADROOM_FORWARD, &exact), HEADROOM_OK) << words_of_failure();
  ASSERT_EQ(headroom_attention_saved_bytes(context.get(), &call.p, &saved), HEADROOM_OK) << words_of_failure();
  EXPECT_EQ(saved, 0u);
  EXPECT_GE(exact, 40u * 2 * 32 + 2 * 50 * 32) << "Q, K and V in 8 bits";
  EXPECT_EQ(call.forward(context.get(), exact), HEADROOM_OK) << words_of_failure();
  EXPECT_EQ(call.forward(context.get(), exact - 1), HEADROOM_OUT_OF_MEMORY);
}

TEST(CAttentionFp8, WhatItDoesNotServeIsAnsweredInOneLine) {
  const auto context = make_context();
  const auto refused = [&](auto spoil, headroom_pass pass, headroom_status status, const char* words) {
    InBf16 call;
    spoil(call.p);
    std::size_t bytes = 0;
    EXPECT_EQ(headroom_attention_workspace_bytes(context.get(), &call.p, pass, &bytes), status) << words;
    EXPECT_NE(words_of_failure().find(words), std::string::npos) << words_of_failure() << " should say " << words;
  };
  using P = headroom_attention_problem&;
  refused([](P) {}, HEADROOM_BACKWARD, HEADROOM_UNSUPPORTED, "problem.quantise is fp8, which has no backward");
  refused([](P p) { p.dtype = HEADROOM_F32; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "fp8 is made of bf16");
  refused([](P p) { p.dtype = HEADROOM_F16; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "this problem is fp16");
  refused([](P p) { p.quantise = 2; }, HEADROOM_FORWARD, HEADROOM_BAD_ARGUMENT, "problem.quantise is 2, it must be 0 to 1");
  refused([](P p) { p.softcap = 30; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "flash_fp8: soft capping is not served");
  refused([](P p) { p.documents = 2; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "packed documents are not served");
  refused([](P p) { p.page = 16, p.pages = 4; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "paged keys are not served");
  refused([](P p) { p.dropout = 0.5f; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "dropout is not served");
  refused([](P p) { p.variant = "plain"; }, HEADROOM_FORWARD, HEADROOM_UNSUPPORTED, "fp8");
}

TEST(CAttentionFp8, IsNotWhatAnOlderCallerAsks) {
  const auto context = make_context();
  InBf16 call;
  call.p.struct_size = offsetof(headroom_attention_problem, quantise);
  call.p.unused = -1, call.p.quantise = 7;  // padding of the older struct, and memory behind it
  std::size_t forward = 0, backward = 0;
  ASSERT_EQ(headroom_attention_workspace_bytes(context.get(), &call.p, HEADROOM_FORWARD, &forward), HEADROOM_OK) << words_of_failure();
  EXPECT_EQ(headroom_attention_workspace_bytes(context.get(), &call.p, HEADROOM_BACKWARD, &backward), HEADROOM_OK) << words_of_failure();
  EXPECT_EQ(call.forward(context.get(), forward), HEADROOM_OK) << words_of_failure();
}

TEST(CAttentionFp8, ExplainNamesWhatServesFp8Alone) {
  const auto context = make_context();
  InBf16 call;
  char text[4096];
  ASSERT_EQ(headroom_attention_explain(context.get(), &call.p, text, sizeof text, nullptr), HEADROOM_OK) << words_of_failure();
  EXPECT_NE(std::string(text).find("flash_fp8: chosen\n"), std::string::npos) << text;
  EXPECT_EQ(std::string(text).find("serves too"), std::string::npos) << text;
}

}  // namespace
}  // namespace headroom::capi
