// Attention's variants by name and by pass, for the scripts beside this file: they lend device memory that PyTorch owns, so that ours
// and the peers run alternately in one process. Not part of the library.
#include <cstdio>
#include <exception>

#include "gpu/device.h"
#include "ops/attention/attention.h"

using namespace headroom;
using namespace headroom::attention;

namespace {

thread_local char last_error[1024];

template <class Body>
int guarded(Body&& body) {
  try {
    return body(), 0;
  } catch (const std::exception& e) {
    std::snprintf(last_error, sizeof last_error, "%s", e.what());
    return 1;
  }
}

const Variant& named(const char* name) {
  const Variant* v = variant_named(name);
  check(v, Code::bad_argument, "no variant is called '{}'", name);
  return *v;
}

}  // namespace

extern "C" {

struct Asked {  // everything contiguous, [batch, len, heads, dim]
  const char* variant;
  std::int32_t dtype;  // 0 bf16, 1 fp16, 2 fp32, 3 tf32, 4 e4m3 (v as fp8_layout.h says, o bf16)
  std::int32_t mask;   // 0 full, 1 causal
  std::int64_t deterministic;
  std::int64_t batch, heads, kv_heads, len_q, len_k, dim;
  std::int64_t documents;    // packed into each row of the batch; 0: not packed
  double softcap;            // 0: none
  std::int64_t page, pages;  // positions of a page, and how many there are; 0: k and v are not paged
};

struct Pointers {
  void *q, *k, *v, *o, *lse, *d_o, *dq, *dk, *dv, *workspace, *saved, *stream;
  std::int64_t workspace_bytes, saved_bytes;
  void *cu_q, *cu_k;                  // i32 [batch, documents + 1]
  void* pages;                        // i32 [batch, pages of a sequence]
  void *q_scale, *k_scale, *v_scale;  // e4m3: fp32 [batch, heads], [batch, kv_heads] twice
};

// The caller compares: where a struct of its own lacks a field, ours would be read past its end.
__attribute__((visibility("default"))) void variant_struct_bytes(std::int64_t* asked, std::int64_t* pointers) {
  *asked = sizeof(Asked);
  *pointers = sizeof(Pointers);
}

static Problem problem_of(const Asked& a) {
  Problem p;
  constexpr Precision precisions[] = {{DType::bf16}, {DType::f16}, {DType::f32}, {DType::f32, Math::tf32}, {DType::e4m3}};
  p.batch = a.batch, p.heads = a.heads, p.kv_heads = a.kv_heads, p.len_q = a.len_q, p.len_k = a.len_k, p.head_dim = a.dim;
  p.mask = a.mask ? Mask::causal() : Mask::full();
  p.precision = precisions[a.dtype];
  p.deterministic = a.deterministic != 0;
  p.documents = a.documents;
  p.softcap = float(a.softcap);
  p.page = a.page, p.pages = a.pages;
  return p;
}

__attribute__((visibility("default"))) const char* variant_error() { return last_error; }

// 0: served, and the bytes that it needs; 1: not, and variant_error() says why.
__attribute__((visibility("default"))) int variant_needs(const Asked* a, int pass, std::int64_t* workspace, std::int64_t* saved) {
  return guarded([&] {
    const Variant& v = named(a->variant);
    const Problem p = problem_of(*a);
    const Device device = cuda_device(0);
    const Support s = v.supports(p, device, Pass(pass));
    check(s.ok, Code::unsupported, "{}: {}", v.name, s.why);
    *workspace = std::int64_t(workspace_bytes(v, p, device, Pass(pass), 1));
    Arena dry;
    Context ctx{dry, device};
    make_saved(v, p, ctx);
    *saved = std::int64_t(dry.peak());
  });
}

__attribute__((visibility("default"))) int variant_run(const Asked* a, int pass, const Pointers* t) {
  return guarded([&] {
    static const Device device = cuda_device(0);
    const Variant& v = named(a->variant);
    const Problem p = problem_of(*a);
    const DType d = p.precision.dtype;
    Arena saved_arena(t->saved, std::size_t(t->saved_bytes)), arena(t->workspace, std::size_t(t->workspace_bytes));
    Context saving{saved_arena, device}, ctx{arena, device};
    saving.stream = ctx.stream = t->stream;
    const Saved saved = make_saved(v, p, saving);
    const Tensor q(t->q, d, p.q_shape()), k(t->k, d, p.k_shape()), vv(t->v, d, p.v_shape()),
        o(t->o, d == DType::e4m3 ? DType::bf16 : d, p.o_shape()), lse(t->lse, DType::f32, p.lse_shape());
    Extras with;
    if (p.documents) {
      with.cu_q = Tensor(t->cu_q, DType::i32, {p.batch, p.documents + 1});
      with.cu_k = Tensor(t->cu_k, DType::i32, {p.batch, p.documents + 1});
    }
    if (p.page) with.pages = Tensor(t->pages, DType::i32, {p.batch, p.pages_of_sequence()});
    if (d == DType::e4m3) {
      with.q_scale = Tensor(t->q_scale, DType::f32, {p.batch, p.heads});
      with.k_scale = Tensor(t->k_scale, DType::f32, {p.batch, p.kv_heads});
      with.v_scale = Tensor(t->v_scale, DType::f32, {p.batch, p.kv_heads});
    }
    if (Pass(pass) == Pass::forward)
      forward(v, p, {q, k, vv, o, lse, saved, with}, ctx);
    else
      backward(v, p,
               {q,
                k,
                vv,
                o,
                lse,
                Tensor(t->d_o, d, p.q_shape()),
                {},
                Tensor(t->dq, d, p.q_shape()),
                Tensor(t->dk, d, p.k_shape()),
                Tensor(t->dv, d, p.k_shape()),
                saved,
                with},
               ctx);
  });
}
}
