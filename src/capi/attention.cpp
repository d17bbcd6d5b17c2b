// The C interface of attention over ops/attention: translates words and views, picks the variant, lends the memory.
#include "ops/attention/attention.h"

#include <algorithm>
#include <string>

#include "capi/edge.h"

using namespace headroom;
using namespace headroom::capi;
using namespace headroom::attention;

namespace {

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
static_assert(HEADROOM_F32 == 0 && HEADROOM_BF16 == 1 && HEADROOM_F16 == 2);
static_assert(int(MaskKind::causal) == HEADROOM_MASK_CAUSAL && int(MaskKind::window) == HEADROOM_MASK_WINDOW);
static_assert(int(Align::top_left) == HEADROOM_TOP_LEFT && int(Pass::backward) == HEADROOM_BACKWARD);

DType dtype_of(std::int32_t value, const char* name) { return dtypes[one_of<headroom_dtype>(value, 3, name)]; }

struct Asked {
  Problem problem;
  std::string_view variant;
};

Asked read_problem(const headroom_attention_problem* from) {
  const auto p = read_struct(from, "problem");
  Asked a;
  a.problem.batch = p.batch, a.problem.heads = p.heads, a.problem.kv_heads = p.kv_heads ? p.kv_heads : p.heads;
  a.problem.len_q = p.len_q, a.problem.len_k = p.len_k, a.problem.head_dim = p.head_dim;
  a.problem.mask = {one_of<MaskKind>(p.mask, 3, "problem.mask"), one_of<Align>(p.align, 2, "problem.align"), p.window};
  a.problem.precision = {dtype_of(p.dtype, "problem.dtype"), Math::exact};
  a.problem.scale = p.scale;
  a.problem.deterministic = p.deterministic != 0;
  if (p.variant) a.variant = p.variant;
  check(a.problem);
  return a;
}

// No tensor (rank 0) stays none: the op's own check says which one it misses.
Tensor view(const headroom_tensor& t, const char* name) {
  check(t.rank >= 0 && t.rank <= max_rank, Code::bad_argument, "{}.rank is {}, it must be 1 to {}", name, t.rank, max_rank);
  Shape shape;
  shape.rank = t.rank;
  bool strided = false;
  for (int i = 0; i < t.rank; ++i) {
    check(t.shape[i] >= 0, Code::bad_argument, "{}.shape[{}] is {}", name, i, t.shape[i]);
    shape.dim[std::size_t(i)] = t.shape[i];
    strided |= t.stride[i] != 0;
  }
  Tensor out(t.data, dtype_of(t.dtype, name), shape);
  if (strided) std::copy_n(t.stride, t.rank, out.stride.begin());
  check(out.data || out.count() == 0 || !out, Code::bad_argument, "{} has no data (NULL)", name);
  return out;
}

Context context_of(headroom_context& c, Arena& arena, void* stream = nullptr) { return {arena, c.device, &c.threads, stream}; }

std::size_t saved_bytes(const Variant& v, const Problem& p, headroom_context& c) {
  Arena dry;
  Context ctx = context_of(c, dry);
  make_saved(v, p, ctx);
  return dry.peak();
}

// The same calls place the same tensors: forward's and backward's views of `saved` agree.
Saved place_saved(const Variant& v, const Problem& p, headroom_context& c, Arena& arena) {
  Context ctx = context_of(c, arena);
  return make_saved(v, p, ctx);
}

std::string explained(const Asked& a, const Device& device) {
  std::string text;
  bool chosen = false;
  for (const Variant& v : variants()) {
    Support s = v.supports(a.problem, device, Pass::forward);
    if (s) s = v.supports(a.problem, device, Pass::backward);
    if (s && !a.variant.empty() && a.variant != v.name && a.variant != v.family)
      s = Support::no(fmt::format("not asked for ({})", a.variant));
    text += fmt::format("{}: {}\n", v.name, !s ? s.why : chosen ? "serves too" : "chosen");
    chosen |= s.ok;
  }
  return text;
}

}  // namespace

headroom_status headroom_attention_workspace_bytes(headroom_context* context, const headroom_attention_problem* problem, headroom_pass pass,
                                                   size_t* bytes) {
  return guard([&] {
    auto& c = given(context, "context");
    const Asked a = read_problem(problem);
    const auto which = one_of<Pass>(pass, 2, "pass");
    given(bytes, "bytes") = workspace_bytes(choose(a.problem, c.device, a.variant), a.problem, c.device, which, c.threads.count());
  });
}

headroom_status headroom_attention_saved_bytes(headroom_context* context, const headroom_attention_problem* problem, size_t* bytes) {
  return guard([&] {
    auto& c = given(context, "context");
    const Asked a = read_problem(problem);
    given(bytes, "bytes") = saved_bytes(choose(a.problem, c.device, a.variant), a.problem, c);
  });
}

headroom_status headroom_attention_forward(headroom_context* context, const headroom_attention_problem* problem,
                                           const headroom_attention_forward_arguments* arguments) {
  return guard([&] {
    auto& c = given(context, "context");
    const Asked a = read_problem(problem);
    const auto t = read_struct(arguments, "arguments");
    const Variant& v = choose(a.problem, c.device, a.variant);
    Lent saved(t.saved, "saved"), workspace(t.workspace, "workspace");
    Context ctx = context_of(c, workspace.arena(), t.stream);
    forward(
        v, a.problem,
        {view(t.q, "q"), view(t.k, "k"), view(t.v, "v"), view(t.o, "o"), view(t.lse, "lse"), place_saved(v, a.problem, c, saved.arena())},
        ctx);
  });
}

headroom_status headroom_attention_backward(headroom_context* context, const headroom_attention_problem* problem,
                                            const headroom_attention_backward_arguments* arguments) {
  return guard([&] {
    auto& c = given(context, "context");
    const Asked a = read_problem(problem);
    const auto t = read_struct(arguments, "arguments");
    const Variant& v = choose(a.problem, c.device, a.variant);
    Lent saved(t.saved, "saved"), workspace(t.workspace, "workspace");
    Context ctx = context_of(c, workspace.arena(), t.stream);
    backward(v, a.problem,
             {view(t.q, "q"), view(t.k, "k"), view(t.v, "v"), view(t.o, "o"), view(t.lse, "lse"), view(t.d_o, "d_o"), view(t.dlse, "dlse"),
              view(t.dq, "dq"), view(t.dk, "dk"), view(t.dv, "dv"), place_saved(v, a.problem, c, saved.arena())},
             ctx);
  });
}

headroom_status headroom_attention_explain(headroom_context* context, const headroom_attention_problem* problem, char* text,
                                           size_t capacity, size_t* needed) {
  return guard([&] {
    const std::string out = explained(read_problem(problem), given(context, "context").device);
    if (needed) *needed = out.size() + 1;
    if (capacity == 0) return;
    given(text, "text");
    const std::size_t written = std::min(out.size(), capacity - 1);
    std::memcpy(text, out.data(), written);
    text[written] = '\0';
  });
}
