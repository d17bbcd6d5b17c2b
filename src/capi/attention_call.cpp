#include "capi/attention_call.h"

#include <algorithm>
#include <tuple>

#include "gpu/caller.h"
#include "ops/attention/extras.h"
#include "ops/attention/fp8/forward.h"

namespace headroom::capi {

namespace {

using namespace attention;
using Tensors = std::array<Tensor, most_parts>;

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::i32};
static_assert(HEADROOM_F32 == 0 && HEADROOM_BF16 == 1 && HEADROOM_F16 == 2 && HEADROOM_I32 == 3);

namespace of_forward {
using A = headroom_attention_forward_arguments;
enum At { q, k, v, o, lse, saved, workspace, sink, cu_q, cu_k, pages, random, alibi, count };
constexpr std::array<Part, count> parts{{
    {"q", offsetof(A, q), Use::read},
    {"k", offsetof(A, k), Use::read},
    {"v", offsetof(A, v), Use::read},
    {"o", offsetof(A, o), Use::written},
    {"lse", offsetof(A, lse), Use::written},
    {"saved", offsetof(A, saved), Use::lent},
    {"workspace", offsetof(A, workspace), Use::lent},
    {"sink", offsetof(A, sink), Use::read},
    {"cu_q", offsetof(A, cu_q), Use::read},
    {"cu_k", offsetof(A, cu_k), Use::read},
    {"pages", offsetof(A, pages), Use::read},
    {"random", offsetof(A, random), Use::read},
    {"alibi", offsetof(A, alibi), Use::read},
}};
}  // namespace of_forward

namespace of_backward {
using A = headroom_attention_backward_arguments;
enum At { q, k, v, o, lse, d_o, dlse, dq, dk, dv, saved, workspace, sink, cu_q, cu_k, dsink, random, alibi, count };
constexpr std::array<Part, count> parts{{
    {"q", offsetof(A, q), Use::read},
    {"k", offsetof(A, k), Use::read},
    {"v", offsetof(A, v), Use::read},
    {"o", offsetof(A, o), Use::read},
    {"lse", offsetof(A, lse), Use::read},
    {"d_o", offsetof(A, d_o), Use::read},
    {"dlse", offsetof(A, dlse), Use::read},
    {"dq", offsetof(A, dq), Use::written},
    {"dk", offsetof(A, dk), Use::written},
    {"dv", offsetof(A, dv), Use::written},
    {"saved", offsetof(A, saved), Use::lent},
    {"workspace", offsetof(A, workspace), Use::lent},
    {"sink", offsetof(A, sink), Use::read},
    {"cu_q", offsetof(A, cu_q), Use::read},
    {"cu_k", offsetof(A, cu_k), Use::read},
    {"dsink", offsetof(A, dsink), Use::written},
    {"random", offsetof(A, random), Use::read},
    {"alibi", offsetof(A, alibi), Use::read},
}};
}  // namespace of_backward

static_assert(of_forward::count <= most_parts && of_backward::count <= most_parts);

// A view as the caller said it, held against what it says of its memory, without its data. No tensor (rank 0) stays none: the op's own
// check says which one it misses. Sums are 128 bits wide: no shape and stride can overflow them.
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
  Tensor out(nullptr, dtype_of(t.dtype, name), shape);
  if (!out || out.count() == 0) return out;  // nothing is reached, whatever the strides
  std::copy_n(t.stride, t.rank, out.stride.begin());
  check(t.bytes >= 0, Code::bad_argument, "{}.bytes is {}, it must be at least 0", name, t.bytes);
  const Wide reached = (last + 1) * Wide(size_of(out.dtype)), furthest = Wide(1) << 62;
  check(reached < furthest, Code::bad_argument, "{} reaches past every memory: look at its strides", name);
  check(t.bytes == 0 || reached <= t.bytes, Code::bad_argument, "{} reaches {} bytes from its data on, its memory has {}", name,
        std::int64_t(reached), t.bytes);
  return out;
}

std::size_t reach(const Tensor& t) {  // a view that view() let through has no negative stride, and nothing overflows
  if (!t || t.count() == 0) return 0;
  std::size_t last = 0;
  for (int i = 0; i < t.shape.rank; ++i) last += std::size_t(t.shape[i] - 1) * std::size_t(t.stride[std::size_t(i)]);
  return (last + 1) * size_of(t.dtype);
}

// Elements that share their place would be written over each other. Enough is: a dimension's stride steps over all of the finer ones.
void check_apart(const Tensor& t, const char* name) {
  if (!t || t.count() == 0) return;
  struct Dimension {
    std::int64_t stride, size;
    int at;
  };
  std::array<Dimension, max_rank> d{};  // finest first
  std::size_t n = 0;
  for (int i = 0; i < t.shape.rank; ++i) {
    const Dimension next{t.stride[std::size_t(i)], t.shape[i], i};
    if (next.size <= 1) continue;
    std::size_t at = n++;
    for (; at > 0 && d[at - 1].stride > next.stride; --at) d[at] = d[at - 1];
    d[at] = next;
  }
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

void check_strides(const headroom_context& c, const Tensor& t, const char* name) {
  if (!t || t.count() == 0) return;
  const auto& [shape, stride] = std::tie(t.shape, t.stride);
  check(shape.rank != 4 || shape[1] <= 1 || shape[3] <= 1 || stride[3] != 1 || stride[1] >= shape[3], Code::bad_argument,
        "{} has stride {} from one position to the next, less than the {} elements of a row: pass a copy", name, stride[1], shape[3]);
  if (!c.on_gpu()) return;
  for (int i = 0; i < shape.rank; ++i)
    check(shape[i] <= 1 || stride[std::size_t(i)] != 0, Code::bad_argument,
          "{} repeats its elements (stride 0 in dimension {}), which only the CPU reads: pass a copy", name, i);
}

void check_not_given(bool asked, const Tensor& t, const char* name, const char* field) {
  check(asked || !t, Code::bad_argument, "{} is given, and the problem has none: set problem.{}", name, field);
}

template <class Arguments>
headroom_attention_call checked_as(headroom_context& c, const Problem& p, QuantiseTo quantise, const Variant& how, Pass pass,
                                   std::span<const Part> parts, const Arguments& a, Pointers& at) {
  check((a.flags & ~std::uint32_t(HEADROOM_TRUST_POINTERS)) == 0, Code::unsupported, "arguments.flags is {}, this library knows only {}",
        a.flags, int(HEADROOM_TRUST_POINTERS));
  headroom_attention_call call{c, p, quantise, how, pass, a.flags, parts, {}, {}, {}, a.seed, a.offset};
  const auto* bytes = reinterpret_cast<const unsigned char*>(&a);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.use == Use::lent) {
      headroom_memory lent;
      std::memcpy(&lent, bytes + part.at, sizeof lent);
      at[i] = lent.data;
      call.lent_bytes[i] = lent.bytes;
      continue;
    }
    headroom_tensor t;
    std::memcpy(&t, bytes + part.at, sizeof t);
    at[i] = t.data;
    call.tensors[i] = view(t, part.name);
    call.reach[i] = reach(call.tensors[i]);
    if (part.use == Use::written) check_apart(call.tensors[i], part.name);
    check_strides(c, call.tensors[i], part.name);
  }
  return call;
}

// Bytes that both tensors have. Their elements lie in nests of strides, each wider than all within it where a tensor is written, so
// that slices of one packed tensor may lie between each other without a byte in common.
class Overlap {
 public:
  Overlap(const Tensor& a, const Tensor& b)
      : apart_(reinterpret_cast<std::intptr_t>(b.data) - reinterpret_cast<std::intptr_t>(a.data)),
        of_a_(std::int64_t(size_of(a.dtype))),
        of_b_(std::int64_t(size_of(b.dtype))) {
    const auto add = [&](const Tensor& t, std::int64_t element, bool first) {
      for (int i = 0; i < t.shape.rank; ++i) {
        const Wide stride = Wide(t.stride[std::size_t(i)]) * element, most = t.shape[i] - 1;
        if (most <= 0 || stride == 0) continue;
        auto* at = std::find_if(steps_.data(), steps_.data() + count_, [&](const Step& s) { return s.stride == stride; });
        if (at == steps_.data() + count_) steps_[count_++] = {stride, 0, 0};
        (first ? at->high : at->low) += first ? most : -most;
      }
    };
    add(a, of_a_, true);
    add(b, of_b_, false);
    std::sort(steps_.data(), steps_.data() + count_, [](const Step& x, const Step& y) { return x.stride > y.stride; });
  }
  bool any() { return reaches(0, apart_); }

 private:
  using Wide = __int128;
  struct Step {  // an index of a less one of b, where both have this stride
    Wide stride, low, high;
  };

  // Whether steps from `at` on lead from a's element to b's, `left` bytes away.
  bool reaches(std::size_t at, Wide left) {
    if (at == count_) return left > -of_b_ && left < of_a_;
    Wide below = 0, above = 0;  // what the steps within can add
    for (std::size_t i = at + 1; i < count_; ++i) below += steps_[i].low * steps_[i].stride, above += steps_[i].high * steps_[i].stride;
    const auto [stride, low, high] = steps_[at];
    const Wide from = std::max(low, floor_of(left - above - of_a_, stride)),
               to = std::min(high, floor_of(left - below + of_b_, stride) + 1);
    for (Wide n = from; n <= to; ++n) {
      if (--tries_ < 0) return false;  // strides of several packed tensors: not searched further
      if (reaches(at + 1, left - n * stride)) return true;
    }
    return false;
  }
  static Wide floor_of(Wide x, Wide by) { return x / by - (x % by != 0 && x < 0); }

  Wide apart_;
  std::int64_t of_a_, of_b_;
  std::array<Step, 2 * max_rank> steps_{};
  std::size_t count_ = 0;
  int tries_ = 10'000;
};

// What depends on where tensors are: written ones lie apart from everything, and the device reads them all.
void check_places(const headroom_attention_call& call, const Tensors& all) {
  const headroom_context& c = call.context;
  const bool trusted = call.flags & HEADROOM_TRUST_POINTERS;
  const auto parts = call.parts;
  const auto begin = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(all[i].data); };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor& t = all[i];
    const char* const name = parts[i].name;
    if (parts[i].use == Use::lent) {
      if (c.on_gpu() && !trusted) check_reachable(t.data, c.device, name);
      continue;
    }
    if (!t || t.count() == 0) continue;
    check(t.data, Code::bad_argument, "{} has no data (NULL)", name);
    for (std::size_t j = 0; parts[i].use == Use::written && j < parts.size(); ++j) {
      if (i == j || parts[j].use == Use::lent || !all[j] || all[j].count() == 0) continue;
      if (parts[j].use == Use::written && j < i) continue;                                         // seen from the other side
      if (begin(i) >= begin(j) + call.reach[j] || begin(j) >= begin(i) + call.reach[i]) continue;  // most: one lies behind the other
      if (!Overlap(t, all[j]).any()) continue;
      const bool same = all[j].data == t.data;
      check(parts[j].use != Use::read, Code::bad_argument, "{} is written, and {} {}", name, same ? "is the same memory as" : "overlaps",
            parts[j].name);
      throw Error(Code::bad_argument,
                  fmt::format("{} and {} are written, and {}", parts[j].name, name, same ? "are the same memory" : "overlap"));
    }
    if (trusted) continue;
    if (c.on_gpu())
      check_reachable(t.data, c.device, name);
    else
      check_host_memory(t.data, name);
  }
}

Extras extras_of_forward(const headroom_attention_call& call, const Tensors& t) {
  using namespace of_forward;
  return {.sink = t[sink],
          .cu_q = t[cu_q],
          .cu_k = t[cu_k],
          .pages = t[pages],
          .seed = call.seed,
          .offset = call.offset,
          .alibi = t[alibi],
          .random = t[random]};
}

Extras extras_of_backward(const headroom_attention_call& call, const Tensors& t) {
  using namespace of_backward;
  return {
      .sink = t[sink], .cu_q = t[cu_q], .cu_k = t[cu_k], .seed = call.seed, .offset = call.offset, .alibi = t[alibi], .random = t[random]};
}

void run_forward(const headroom_attention_call& call, const Tensors& t, Arena& saved_arena, Context& ctx) {
  using namespace of_forward;
  const Problem& p = call.problem;
  const Extras with = extras_of_forward(call, t);
  check_not_given(p.sink, with.sink, "sink", "sink");
  check_not_given(p.documents > 0, with.cu_q, "cu_q", "documents");
  check_not_given(p.documents > 0, with.cu_k, "cu_k", "documents");
  check_not_given(p.page > 0, with.pages, "pages", "page");
  check_not_given(p.dropout != 0, with.random, "random", "dropout");
  check_not_given(p.alibi, with.alibi, "alibi", "alibi");
  Context saving{saved_arena, ctx.device, ctx.threads};
  if (call.quantise == QuantiseTo::fp8)  // its variants save nothing
    return forward_in_fp8(call.how, p, {t[q], t[k], t[v], t[o], t[lse], {}, with}, ctx);
  attention::forward(call.how, p, {t[q], t[k], t[v], t[o], t[lse], make_saved(call.how, p, saving), with}, ctx);
}

void run_backward(const headroom_attention_call& call, const Tensors& t, Arena& saved_arena, Context& ctx) {
  using namespace of_backward;
  const Problem& p = call.problem;
  const Extras with = extras_of_backward(call, t);
  check_not_given(p.sink, with.sink, "sink", "sink");
  check_not_given(p.sink, t[dsink], "dsink", "sink");
  check_not_given(p.dropout != 0, with.random, "random", "dropout");
  check_not_given(p.alibi, with.alibi, "alibi", "alibi");
  check_not_given(p.documents > 0, with.cu_q, "cu_q", "documents");
  check_not_given(p.documents > 0, with.cu_k, "cu_k", "documents");
  Context saving{saved_arena, ctx.device, ctx.threads};  // the same calls place the same tensors as forward did
  attention::backward(
      call.how, p, {t[q], t[k], t[v], t[o], t[lse], t[d_o], t[dlse], t[dq], t[dk], t[dv], make_saved(call.how, p, saving), with, t[dsink]},
      ctx);
}

void run_pass(const headroom_attention_call& call, const Tensors& t, Arena& saved_arena, Context& ctx) {
  (call.pass == Pass::forward ? run_forward : run_backward)(call, t, saved_arena, ctx);
}

}  // namespace

DType dtype_of(std::int32_t value, const char* name) { return dtypes[one_of<headroom_dtype>(value, 4, name)]; }
DType dtype_of_problem(std::int32_t value, const char* name) { return dtypes[one_of<headroom_dtype>(value, 3, name)]; }

headroom_attention_call checked(headroom_context& c, const Problem& p, QuantiseTo quantise, const Variant& how,
                                const headroom_attention_forward_arguments& a, Pointers& at) {
  return checked_as(c, p, quantise, how, Pass::forward, of_forward::parts, a, at);
}

headroom_attention_call checked(headroom_context& c, const Problem& p, QuantiseTo quantise, const Variant& how,
                                const headroom_attention_backward_arguments& a, Pointers& at) {
  return checked_as(c, p, quantise, how, Pass::backward, of_backward::parts, a, at);
}

void check_dry(const headroom_attention_call& call) {
  const bool forward = call.pass == Pass::forward;
  Arena saved, workspace;
  Context ctx{workspace, call.context.device};
  ctx.dry_workers = call.context.threads.count();
  run_pass(call, call.tensors, saved, ctx);
  const auto fits = [&](const Arena& needed, std::size_t at, const char* name) {
    check(call.lent_bytes[at] >= needed.peak(), Code::out_of_memory, "{} has {} bytes, the call needs {}", name, call.lent_bytes[at],
          needed.peak());
  };
  fits(saved, forward ? std::size_t(of_forward::saved) : std::size_t(of_backward::saved), "saved");
  fits(workspace, forward ? std::size_t(of_forward::workspace) : std::size_t(of_backward::workspace), "workspace");
}

void run(const headroom_attention_call& call, const Pointers& at, void* stream) {
  headroom_context& c = call.context;
  const bool forward = call.pass == Pass::forward;
  const std::size_t saved_at = forward ? std::size_t(of_forward::saved) : std::size_t(of_backward::saved);
  Lent saved({at[saved_at], call.lent_bytes[saved_at]}, "saved");
  Lent workspace({at[saved_at + 1], call.lent_bytes[saved_at + 1]}, "workspace");
  Tensors t = call.tensors;
  for (std::size_t i = 0; i < call.parts.size(); ++i) t[i].data = at[i];
  const OnDevice current(c.device);
  check_places(call, t);
  if (!c.on_gpu()) {
    const Extras with = forward ? extras_of_forward(call, t) : extras_of_backward(call, t);
    attention::check(call.problem, with);
    check_values(call.problem, with);
  }
  Context ctx{workspace.arena(), c.device, &c.threads, stream};
  run_pass(call, t, saved.arena(), ctx);
}

}  // namespace headroom::capi
