// The C interface of attention over ops/attention: translates words and views, picks the variant, lends the memory.
#include "ops/attention/attention.h"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "capi/edge.h"
#include "gpu/caller.h"

using namespace headroom;
using namespace headroom::capi;
using namespace headroom::attention;

namespace {

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
static_assert(HEADROOM_F32 == 0 && HEADROOM_BF16 == 1 && HEADROOM_F16 == 2);
static_assert(int(MaskKind::causal) == HEADROOM_MASK_CAUSAL && int(MaskKind::window) == HEADROOM_MASK_WINDOW);
static_assert(int(Math::exact) == HEADROOM_MATH_EXACT && int(Math::tf32) == HEADROOM_MATH_TF32);
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
  a.problem.mask = {one_of<MaskKind>(p.mask, 3, "problem.mask"), one_of<Align>(p.align, 2, "problem.align"), p.window, p.window_after};
  a.problem.dim_v = p.head_dim_v, a.problem.softcap = p.softcap;
  a.problem.precision = {dtype_of(p.dtype, "problem.dtype"), one_of<Math>(p.math, 2, "problem.math")};
  check(p.scale_given == 0 || p.scale_given == 1, Code::bad_argument, "problem.scale_given is {}, it must be 0 or 1", p.scale_given);
  if (p.scale_given || p.scale != 0) a.problem.scale = p.scale;
  a.problem.deterministic = p.deterministic != 0;
  if (p.variant) a.variant = p.variant;
  check(a.problem);
  return a;
}

// A view as the caller said it, held against what it says of its memory. No tensor (rank 0) stays none: the op's own check says which one
// it misses. Sums are 128 bits wide: no shape and stride can overflow them.
Tensor view(const headroom_tensor& t, const char* name) {
  using Wide = __int128;
  check(t.rank >= 0 && t.rank <= max_rank, Code::bad_argument, "{}.rank is {}, it must be 1 to {}", name, t.rank, max_rank);
  Shape shape;
  shape.rank = t.rank;
  Wide last = 0;  // the furthest element
  for (int i = 0; i < t.rank; ++i) {
    check(t.shape[i] >= 0, Code::bad_argument, "{}.shape[{}] is {}", name, i, t.shape[i]);
    check(t.stride[i] >= 0 || t.shape[i] <= 1, Code::bad_argument, "{}.stride[{}] is {}, it must be at least 0: pass a copy in order", name,
          i, t.stride[i]);
    shape.dim[std::size_t(i)] = t.shape[i];
    if (t.shape[i] > 1) last += Wide(t.shape[i] - 1) * t.stride[i];
  }
  Tensor out(t.data, dtype_of(t.dtype, name), shape);
  if (!out || out.count() == 0) return out;  // nothing is reached, whatever the strides
  std::copy_n(t.stride, t.rank, out.stride.begin());
  check(out.data, Code::bad_argument, "{} has no data (NULL)", name);
  check(t.bytes >= 0, Code::bad_argument, "{}.bytes is {}, it must be at least 0", name, t.bytes);
  const Wide reached = (last + 1) * Wide(size_of(out.dtype)), furthest = Wide(1) << 62;
  check(reached < furthest, Code::bad_argument, "{} reaches past every memory: look at its strides", name);
  check(t.bytes == 0 || reached <= t.bytes, Code::bad_argument, "{} reaches {} bytes from its data on, its memory has {}", name,
        std::int64_t(reached), t.bytes);
  return out;
}

// Elements that share their place would be written over each other. Enough is: a dimension's stride steps over all of the finer ones.
void check_apart(const Tensor& t, const char* name) {
  if (!t || t.count() == 0) return;
  struct Dimension {
    std::int64_t stride, size;
    int at;
  };
  std::array<Dimension, max_rank> d;
  int n = 0;
  for (int i = 0; i < t.shape.rank; ++i)
    if (t.shape[i] > 1) d[std::size_t(n++)] = {t.stride[std::size_t(i)], t.shape[i], i};
  std::sort(d.begin(), d.begin() + n, [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::int64_t covered = 1;  // elements that the finer dimensions span; view() has seen that this fits
  for (const Dimension* x = d.data(); x != d.data() + n; ++x) {
    check(x->stride != 0, Code::bad_argument, "{} is written, and has stride 0 in dimension {}: its {} elements share one place", name,
          x->at, x->size);
    check(x->stride >= covered, Code::bad_argument,
          "{} is written, and stride {} of dimension {} is less than the {} elements within: they overlap", name, x->stride, x->at,
          covered);
    covered += (x->size - 1) * x->stride;
  }
}

struct Named {
  const Tensor& tensor;
  const char* name;
};

// What only the door can know of a call's tensors: written ones lie apart from everything, and the device reads them all.
void check_tensors(const headroom_context& c, std::uint32_t flags, std::initializer_list<Named> read,
                   std::initializer_list<Named> written) {
  check((flags & ~std::uint32_t(HEADROOM_TRUST_POINTERS)) == 0, Code::unsupported, "arguments.flags is {}, this library knows only {}",
        flags, int(HEADROOM_TRUST_POINTERS));
  const auto same = [](const Named& a, const Named& b) { return a.tensor.data == b.tensor.data && a.tensor.count() && b.tensor.count(); };
  for (auto w = written.begin(); w != written.end(); ++w) {
    check_apart(w->tensor, w->name);
    for (const Named& r : read) check(!same(*w, r), Code::bad_argument, "{} is written, and is the same memory as {}", w->name, r.name);
    for (auto other = written.begin(); other != w; ++other)
      check(!same(*w, *other), Code::bad_argument, "{} and {} are written, and are the same memory", w->name, other->name);
  }
  for (const auto& list : {read, written})
    for (const Named& x : list) {
      if (!x.tensor || x.tensor.count() == 0) continue;
      const auto& [shape, stride] = std::tie(x.tensor.shape, x.tensor.stride);
      check(shape.rank != 4 || shape[1] <= 1 || shape[3] <= 1 || stride[3] != 1 || stride[1] >= shape[3], Code::bad_argument,
            "{} has stride {} from one position to the next, less than the {} elements of a row: pass a copy", x.name, stride[1], shape[3]);
      if (c.on_gpu())
        for (int i = 0; i < x.tensor.shape.rank; ++i)
          check(x.tensor.shape[i] <= 1 || x.tensor.stride[std::size_t(i)] != 0, Code::bad_argument,
                "{} repeats its elements (stride 0 in dimension {}), which only the CPU reads: pass a copy", x.name, i);
      if (flags & HEADROOM_TRUST_POINTERS) continue;
      if (c.on_gpu())
        check_reachable(x.tensor.data, c.device, x.name);
      else
        check_host_memory(x.tensor.data, x.name);
    }
}

void check_lent(const headroom_context& c, std::uint32_t flags, const headroom_memory& m, const char* name) {
  if (c.on_gpu() && !(flags & HEADROOM_TRUST_POINTERS)) check_reachable(m.data, c.device, name);
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
    auto& c = usable(context);
    const Asked a = read_problem(problem);
    const auto which = one_of<Pass>(pass, 2, "pass");
    given(bytes, "bytes") = workspace_bytes(choose(a.problem, c.device, a.variant), a.problem, c.device, which, c.threads.count());
  });
}

headroom_status headroom_attention_saved_bytes(headroom_context* context, const headroom_attention_problem* problem, size_t* bytes) {
  return guard([&] {
    auto& c = usable(context);
    const Asked a = read_problem(problem);
    given(bytes, "bytes") = saved_bytes(choose(a.problem, c.device, a.variant), a.problem, c);
  });
}

headroom_status headroom_attention_forward(headroom_context* context, const headroom_attention_problem* problem,
                                           const headroom_attention_forward_arguments* arguments) {
  return guard([&] {
    auto& c = usable(context);
    const Asked a = read_problem(problem);
    const auto t = read_struct(arguments, "arguments", offsetof(headroom_attention_forward_arguments, stream) + sizeof(void*));
    const Variant& how = choose(a.problem, c.device, a.variant);
    Lent saved(t.saved, "saved"), workspace(t.workspace, "workspace");
    const Tensor q = view(t.q, "q"), k = view(t.k, "k"), v = view(t.v, "v"), o = view(t.o, "o"), lse = view(t.lse, "lse");
    const OnDevice current(c.device);
    check_tensors(c, t.flags, {{q, "q"}, {k, "k"}, {v, "v"}}, {{o, "o"}, {lse, "lse"}});
    check_lent(c, t.flags, t.saved, "saved");
    check_lent(c, t.flags, t.workspace, "workspace");
    Context ctx = context_of(c, workspace.arena(), t.stream);
    forward(how, a.problem, {q, k, v, o, lse, place_saved(how, a.problem, c, saved.arena())}, ctx);
  });
}

headroom_status headroom_attention_backward(headroom_context* context, const headroom_attention_problem* problem,
                                            const headroom_attention_backward_arguments* arguments) {
  return guard([&] {
    auto& c = usable(context);
    const Asked a = read_problem(problem);
    const auto t = read_struct(arguments, "arguments", offsetof(headroom_attention_backward_arguments, stream) + sizeof(void*));
    const Variant& how = choose(a.problem, c.device, a.variant);
    Lent saved(t.saved, "saved"), workspace(t.workspace, "workspace");
    const Tensor q = view(t.q, "q"), k = view(t.k, "k"), v = view(t.v, "v"), o = view(t.o, "o"), lse = view(t.lse, "lse"),
                 d_o = view(t.d_o, "d_o"), dlse = view(t.dlse, "dlse"), dq = view(t.dq, "dq"), dk = view(t.dk, "dk"), dv = view(t.dv, "dv");
    const OnDevice current(c.device);
    check_tensors(c, t.flags, {{q, "q"}, {k, "k"}, {v, "v"}, {o, "o"}, {lse, "lse"}, {d_o, "d_o"}, {dlse, "dlse"}},
                  {{dq, "dq"}, {dk, "dk"}, {dv, "dv"}});
    check_lent(c, t.flags, t.saved, "saved");
    check_lent(c, t.flags, t.workspace, "workspace");
    Context ctx = context_of(c, workspace.arena(), t.stream);
    backward(how, a.problem, {q, k, v, o, lse, d_o, dlse, dq, dk, dv, place_saved(how, a.problem, c, saved.arena())}, ctx);
  });
}

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
