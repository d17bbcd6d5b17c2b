// The C interface of attention over ops/attention: translates words and views, picks the variant, lends the memory.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "capi/attention_call.h"
#include "ops/attention/fp8/forward.h"

using namespace headroom;
using namespace headroom::capi;
using namespace headroom::attention;

namespace {

static_assert(int(MaskKind::causal) == HEADROOM_MASK_CAUSAL && int(MaskKind::window) == HEADROOM_MASK_WINDOW);
static_assert(int(Math::exact) == HEADROOM_MATH_EXACT && int(Math::tf32) == HEADROOM_MATH_TF32);
static_assert(int(QuantiseTo::nothing) == HEADROOM_QUANTISE_NOTHING && int(QuantiseTo::fp8) == HEADROOM_QUANTISE_FP8);
// A field in what was padding would be read from bytes that an older caller never set: no struct may end with any.
static_assert(offsetof(headroom_attention_problem, reserved) + sizeof(std::int32_t) == sizeof(headroom_attention_problem));
static_assert(int(Align::top_left) == HEADROOM_TOP_LEFT && int(Pass::backward) == HEADROOM_BACKWARD);

struct Asked {
  Problem problem;
  std::string_view variant;
  QuantiseTo quantise = QuantiseTo::nothing;

  bool in_fp8() const { return quantise == QuantiseTo::fp8; }
  Problem of_variant() const { return in_fp8() ? attention::in_fp8(problem) : problem; }
};

Asked read_problem(const headroom_attention_problem* from) {
  const auto p = read_struct(from, "problem");
  Asked a;
  a.problem.batch = p.batch;
  a.problem.heads = p.heads;
  a.problem.kv_heads = p.kv_heads ? p.kv_heads : p.heads;
  a.problem.len_q = p.len_q;
  a.problem.len_k = p.len_k;
  a.problem.head_dim = p.head_dim;
  a.problem.mask = {one_of<MaskKind>(p.mask, 3, "problem.mask"), one_of<Align>(p.align, 2, "problem.align"), p.window, p.window_after};
  a.problem.dim_v = p.head_dim_v;
  a.problem.softcap = p.softcap;
  a.problem.documents = p.documents;
  a.problem.page = p.page;
  a.problem.pages = p.pages;
  a.problem.dropout = p.dropout;
  a.problem.precision = {dtype_of_problem(p.dtype, "problem.dtype"), one_of<Math>(p.math, 2, "problem.math")};
  check(p.scale_given == 0 || p.scale_given == 1, Code::bad_argument, "problem.scale_given is {}, it must be 0 or 1", p.scale_given);
  check(p.sink == 0 || p.sink == 1, Code::bad_argument, "problem.sink is {}, it must be 0 or 1", p.sink);
  a.problem.sink = p.sink == 1;
  check(p.alibi == 0 || p.alibi == 1, Code::bad_argument, "problem.alibi is {}, it must be 0 or 1", p.alibi);
  a.problem.alibi = p.alibi == 1;
  check(p.reserved == 0, Code::bad_argument, "problem.reserved is {}, it must be 0: start the struct from its _INIT value", p.reserved);
  if (p.scale_given || p.scale != 0) a.problem.scale = p.scale;
  a.problem.deterministic = p.deterministic != 0;
  check(!p.variant || *p.variant, Code::bad_argument, "problem.variant is empty (an unset variable?); name one, or pass NULL for the best");
  if (p.variant) a.variant = p.variant;
  a.quantise = one_of<QuantiseTo>(p.quantise, 2, "problem.quantise");
  check(a.problem);
  return a;
}

// No variant has a backward for a cache in pages, nor in fp8, and none is asked for.
Pass last_pass(const Asked& a) { return a.problem.page || a.in_fp8() ? Pass::forward : Pass::backward; }

const Variant& chosen(const Asked& a, const headroom_context& c, Pass pass = Pass::forward) {
  check(pass == Pass::forward || !a.in_fp8(), Code::unsupported,
        "attention: problem.quantise is fp8, which has no backward: set it to HEADROOM_QUANTISE_NOTHING in both passes to train");
  const Pass last = variant_named(a.variant) ? pass : std::max(pass, last_pass(a));  // one that is named may know forward alone
  return choose(a.of_variant(), c.device, a.variant, last);
}

template <class Arguments>
Arguments read_arguments(const Arguments* from) {  // what an older header ends with is there at least
  return read_struct(from, "arguments", offsetof(Arguments, stream) + sizeof(void*));
}

std::size_t bytes_to_save(const Variant& v, const Problem& p, headroom_context& c) {
  Arena dry;
  Context ctx{dry, c.device, &c.threads};
  make_saved(v, p, ctx);
  return dry.peak();
}

std::string explained(const Asked& a, const Device& device) {
  std::string text;
  bool found = false;
  const Problem p = a.of_variant();
  for (const Variant& v : variants()) {
    Support s = v.supports(p, device, Pass::forward);
    if (s && last_pass(a) == Pass::backward) s = v.supports(p, device, Pass::backward);
    if (s && !a.variant.empty() && a.variant != v.name && a.variant != v.family)
      s = Support::no(fmt::format("not asked for ({})", a.variant));
    text += fmt::format("{}: {}\n", v.name, !s ? s.why : found ? "serves too" : "chosen");
    found |= s.ok;
  }
  return text;
}

// Both passes: the call is made, and run where its arguments say that its tensors are.
template <class Arguments>
void run_once(headroom_context* context, const headroom_attention_problem* problem, const Arguments* arguments, Pass pass) {
  auto& c = usable(context);
  const Asked a = read_problem(problem);
  const Arguments t = read_arguments(arguments);
  Pointers at{};
  run(checked(c, a.problem, a.quantise, chosen(a, c, pass), t, at), at, t.stream);
}

template <class Arguments>
void make_call(headroom_context* context, const headroom_attention_problem* problem, const Arguments* arguments, Pass pass,
               headroom_attention_call** out) {
  given(out, "out") = nullptr;
  auto& c = usable(context);
  const Asked a = read_problem(problem);
  Pointers at{};
  const auto call = checked(c, a.problem, a.quantise, chosen(a, c, pass), read_arguments(arguments), at);
  check_dry(call);
  *out = new headroom_attention_call(call);
}

}  // namespace

headroom_status headroom_attention_workspace_bytes(headroom_context* context, const headroom_attention_problem* problem, headroom_pass pass,
                                                   size_t* bytes) {
  return guard([&] {
    auto& c = usable(context);
    const Asked a = read_problem(problem);
    const auto which = one_of<Pass>(pass, 2, "pass");
    const Variant& how = chosen(a, c, which);
    const int workers = c.threads.count();
    given(bytes, "bytes") =
        a.in_fp8() ? workspace_bytes_in_fp8(how, a.problem, c.device, workers) : workspace_bytes(how, a.problem, c.device, which, workers);
  });
}

headroom_status headroom_attention_saved_bytes(headroom_context* context, const headroom_attention_problem* problem, size_t* bytes) {
  return guard([&] {
    auto& c = usable(context);
    const Asked a = read_problem(problem);
    given(bytes, "bytes") = bytes_to_save(chosen(a, c), a.of_variant(), c);
  });
}

headroom_status headroom_attention_forward(headroom_context* context, const headroom_attention_problem* problem,
                                           const headroom_attention_forward_arguments* arguments) {
  return guard([&] { run_once(context, problem, arguments, Pass::forward); });
}

headroom_status headroom_attention_backward(headroom_context* context, const headroom_attention_problem* problem,
                                            const headroom_attention_backward_arguments* arguments) {
  return guard([&] { run_once(context, problem, arguments, Pass::backward); });
}

headroom_status headroom_attention_forward_call_create(headroom_context* context, const headroom_attention_problem* problem,
                                                       const headroom_attention_forward_arguments* arguments,
                                                       headroom_attention_call** out) {
  return guard([&] { make_call(context, problem, arguments, Pass::forward, out); });
}

headroom_status headroom_attention_backward_call_create(headroom_context* context, const headroom_attention_problem* problem,
                                                        const headroom_attention_backward_arguments* arguments,
                                                        headroom_attention_call** out) {
  return guard([&] { make_call(context, problem, arguments, Pass::backward, out); });
}

headroom_status headroom_attention_call_run(const headroom_attention_call* call, void* const* pointers, int32_t count, void* stream) {
  return guard([&] {
    given(call, "call");
    usable(&call->context);
    check(count >= 0 && count <= int(call->parts.size()), Code::bad_argument, "count is {}, this call has {} tensors and memories", count,
          call->parts.size());
    Pointers at{};
    if (count > 0) std::copy_n(&given(pointers, "pointers"), count, at.begin());
    run(*call, at, stream);
  });
}

void headroom_attention_call_destroy(headroom_attention_call* call) { delete call; }

headroom_status headroom_attention_explain(headroom_context* context, const headroom_attention_problem* problem, char* text,
                                           size_t capacity, size_t* needed) {
  return guard([&] {
    const std::string out = explained(read_problem(problem), usable(context).device);
    if (needed) *needed = out.size() + 1;
    if (capacity == 0) return;
    given(text, "text");
    const std::size_t written = std::min(out.size(), capacity - 1);
    std::memcpy(text, out.data(), written);
    text[written] = '\0';
  });
}
