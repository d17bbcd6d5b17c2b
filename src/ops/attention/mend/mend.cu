#include "ops/attention/mend/mend.h"

#include <algorithm>

#include "base/convert.h"
#include "gpu/dependent_launch.cuh"
#include "ops/attention/alibi.h"
#include "ops/attention/dropout.h"
#include "ops/attention/on_stream.h"
#include "ops/attention/sm80/blocks.h"
#include "ops/attention/sm80/paged.h"

namespace headroom::attention {

namespace {

using blocks::Strided;
constexpr int threads = 256, at_once = 8;  // at_once: columns of a row in a lane; longer rows are walked again for the rest
constexpr int checked_every = 32;          // pairs, after which a row that is NaN by right is given up

struct MendArgs {
  Strided q, k, v, o, d_o, dq, dk, dv;
  const float *lse, *dlse, *sink;  // dlse, sink: may be null
  const int* not_numbers;
  blocks::Paged paged;
  const Run *keys_of, *rows_of;
  int batch, heads, kv_heads, len_q, len_k, head_dim, dim_v;
  float scale, cap;
  Dropout dropout;
  Alibi alibi;
};

template <class T>
__device__ T* row_of(const Strided& t, int b, int row, int head) {
  return static_cast<T*>(t.data) + b * t.batch + head * t.head + (long long)row * t.row;
}
__device__ float over_lanes(float x) {
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
template <class T>
__device__ float dot(const T* a, const T* b, int dim) {  // by a warp
  float sum = 0;
  for (int d = threadIdx.x % 32; d < dim; d += 32) sum += widen(a[d]) * widen(b[d]);
  return over_lanes(sum);
}
template <class T>
__device__ bool holds_nan(const T* row, int dim) {
  bool nan = false;
  for (int d = threadIdx.x % 32; d < dim; d += 32) {
    const float x = widen(row[d]);
    nan = nan || x != x;
  }
  return __any_sync(~0u, nan);
}

struct Columns {  // a row's sums in columns [first, first + 32 · at_once), as a warp has them
  float x[at_once] = {};
  int first, dim;
  __device__ Columns(int begin, int columns) : first(begin), dim(columns) {}
  template <class F>
  __device__ void each(F&& f) {
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (const int d = first + 32 * i + int(threadIdx.x % 32); d < dim) f(x[i], d);
  }
  template <class T>
  __device__ void add(float factor, const T* row) {
    each([&](float& sum, int d) { sum += factor * widen(row[d]); });
  }
  __device__ bool nan() {
    bool found = false;
    each([&](float& sum, int) { found = found || sum != sum; });
    return __any_sync(~0u, found);
  }
  template <class T>
  __device__ void store(T* row, float factor) {
    if (!nan()) each([&](float& sum, int d) { row[d] = narrow<T>(sum * factor); });
  }
};

struct Weight {
  float p, slope;
};
__device__ Weight weight_of(const MendArgs& a, float product, float fall, float lse) {
  float score = product * a.scale, slope = 1;
  if (a.cap != 0) {
    const float t = tanhf(score / a.cap);
    score = a.cap * t, slope = (1 - t) * (1 + t);
  }
  const float below = score - fall - lse;
  return {expf(below > 0 ? 0 : below), slope};  // a NaN stays one
}

struct Factors {  // dropout's factors of probabilities
  const MendArgs& a;
  Draws draws;
  __device__ explicit Factors(const MendArgs& args) : a(args), draws(args.dropout.draws()) {}
  __device__ float of(int b, int head, int row, int key) const {
    if (a.dropout.below == 0) return 1;
    return draws.of_head(b * a.heads + head).draw(row, key) < a.dropout.below ? 0.f : a.dropout.factor;
  }
};

// Each warp looks at rows in turn, of [batch, rows, heads]; f(b, row, head).
template <class F>
__device__ void each_row(int batch, int rows, int heads, F&& f) {
  const long long all = (long long)batch * rows * heads, step = (long long)gridDim.x * (threads / 32);
  for (long long at = (long long)blockIdx.x * (threads / 32) + threadIdx.x / 32; at < all; at += step)
    f(int(at / heads / rows), int(at / heads % rows), int(at % heads));
}

// attention_mend_forward — a warp per row whose O is NaN: O of the keys that it sees, whatever lies beside them.
//   reads  one number; then O, and what such rows see     writes  their O     numerics  FP32     limit  latency
template <class T>
__global__ void __launch_bounds__(threads) attention_mend_forward(const __grid_constant__ MendArgs a) {
  wait_for_earlier_kernels();
  if (*a.not_numbers == 0) return;
  const Factors factors(a);
  each_row(a.batch, a.len_q, a.heads, [&](int b, int row, int head) {
    T* const o = row_of<T>(a.o, b, row, head);
    const float lse = a.lse[((long long)b * a.heads + head) * a.len_q + row];
    if (lse != lse || !holds_nan(o, a.dim_v)) return;
    const bool zero = lse == -INFINITY || (lse == INFINITY && a.sink);
    const int kv_head = head / (a.heads / a.kv_heads);
    const Run keys = a.keys_of[(long long)b * a.len_q + row];
    const auto key_row = [&](const Strided& t, int key) -> const T* {
      if (!a.paged.table) return row_of<const T>(t, b, key, kv_head);
      const int page = a.paged.table[(long long)b * a.paged.of_sequence + key / a.paged.size];
      return page < 0 || page >= a.paged.count ? nullptr : row_of<const T>(t, page, key % a.paged.size, kv_head);
    };
    for (int first = 0; first < a.dim_v; first += 32 * at_once) {
      Columns sum(first, a.dim_v);
      float all = a.sink ? expf(a.sink[head] - lse) : 0.f;
      for (int key = keys.first; !zero && key < keys.last; ++key) {
        const T* const k = key_row(a.k, key);
        if (!k) continue;
        const float p = weight_of(a, dot(row_of<const T>(a.q, b, row, head), k, a.head_dim), a.alibi.fall(b, head, row, key), lse).p;
        all += p;
        sum.add(p * factors.of(b, head, row, key), key_row(a.v, key));
        if ((key - keys.first) % checked_every == checked_every - 1 && sum.nan()) break;
      }
      sum.store(o, zero ? 1 : 1 / all);
    }
  });
}

struct Gradient {
  float p, ds;
};
template <class T>
struct Pairs {
  const MendArgs& a;
  const Factors& factors;
  int b, head, row;
  float lse, delta;  // the row's
  __device__ Pairs(const Factors& of, int batch, int h, int r) : a(of.a), factors(of), b(batch), head(h), row(r) {
    const long long at = ((long long)b * a.heads + head) * a.len_q + row;
    lse = a.lse[at];
    delta = dot(row_of<const T>(a.o, b, row, head), row_of<const T>(a.d_o, b, row, head), a.dim_v) - (a.dlse ? a.dlse[at] : 0.f);
  }
  __device__ Gradient at(int key) const {
    const int kv_head = head / (a.heads / a.kv_heads);
    const Weight w = weight_of(a, dot(row_of<const T>(a.q, b, row, head), row_of<const T>(a.k, b, key, kv_head), a.head_dim),
                               a.alibi.fall(b, head, row, key), lse);
    const float dp = dot(row_of<const T>(a.d_o, b, row, head), row_of<const T>(a.v, b, key, kv_head), a.dim_v);
    const float factor = factors.of(b, head, row, key);
    return {w.p * factor, w.p * (dp * factor - delta) * w.slope};
  }
};

// attention_mend_dq, attention_mend_dk_dv — the same for the gradients: a warp per row of queries, or of keys.
template <class T>
__global__ void __launch_bounds__(threads) attention_mend_dq(const __grid_constant__ MendArgs a) {
  wait_for_earlier_kernels();
  if (*a.not_numbers == 0) return;
  const Factors factors(a);
  each_row(a.batch, a.len_q, a.heads, [&](int b, int row, int head) {
    T* const dq = row_of<T>(a.dq, b, row, head);
    if (!holds_nan(dq, a.head_dim)) return;
    const Run keys = a.keys_of[(long long)b * a.len_q + row];
    const Pairs<T> pairs(factors, b, head, row);
    for (int first = 0; first < a.head_dim; first += 32 * at_once) {
      Columns sum(first, a.head_dim);
      for (int key = keys.first; key < keys.last; ++key) {
        sum.add(pairs.at(key).ds, row_of<const T>(a.k, b, key, head / (a.heads / a.kv_heads)));
        if ((key - keys.first) % checked_every == checked_every - 1 && sum.nan()) break;
      }
      sum.store(dq, a.scale);
    }
  });
}
template <class T>
__global__ void __launch_bounds__(threads) attention_mend_dk_dv(const __grid_constant__ MendArgs a) {
  wait_for_earlier_kernels();
  if (*a.not_numbers == 0) return;
  const int group = a.heads / a.kv_heads;
  const Factors factors(a);
  each_row(a.batch, a.len_k, a.kv_heads, [&](int b, int key, int kv_head) {
    T *const dk = row_of<T>(a.dk, b, key, kv_head), *const dv = row_of<T>(a.dv, b, key, kv_head);
    if (!holds_nan(dk, a.head_dim) && !holds_nan(dv, a.dim_v)) return;
    const Run rows = a.rows_of[(long long)b * a.len_k + key];
    for (int first = 0; first < max(a.head_dim, a.dim_v); first += 32 * at_once) {
      Columns sum_k(first, a.head_dim), sum_v(first, a.dim_v);
      bool given_up = false;
      for (int head = kv_head * group; head < (kv_head + 1) * group && !given_up; ++head)
        for (int row = rows.first; row < rows.last; ++row) {
          const Run seen = a.keys_of[(long long)b * a.len_q + row];
          if (key < seen.first || key >= seen.last) continue;
          const Gradient g = Pairs<T>(factors, b, head, row).at(key);
          sum_k.add(g.ds, row_of<const T>(a.q, b, row, head));
          sum_v.add(g.p, row_of<const T>(a.d_o, b, row, head));
          given_up = (row - rows.first) % checked_every == checked_every - 1 && sum_k.nan() && sum_v.nan();
          if (given_up) break;
        }
      sum_k.store(dk, a.scale), sum_v.store(dv, 1);
    }
  });
}

Strided strided(const Tensor& t) { return {t.data, t.stride[0], t.stride[1], t.stride[2]}; }

template <class Tensors>  // Forward or Backward
MendArgs args_of(const Problem& p, const Tensors& t, const Lists& lists) {
  MendArgs a{};
  a.q = strided(t.q);
  a.k = strided(t.k);
  a.v = strided(t.v);
  a.o = strided(t.o);
  a.lse = t.lse.template as<float>();
  a.sink = p.sink ? t.with.sink.template as<float>() : nullptr;
  a.not_numbers = lists.not_numbers.as<int>();
  a.paged = blocks::paged_of(p, t.with);
  a.keys_of = lists.keys_of.as<Run>();
  a.rows_of = lists.rows_of.as<Run>();
  a.batch = int(p.batch);
  a.heads = int(p.heads);
  a.kv_heads = int(p.kv_heads);
  a.len_q = int(p.len_q);
  a.len_k = int(p.len_k);
  a.head_dim = int(p.head_dim);
  a.dim_v = int(p.value_dim());
  a.scale = p.scale_or_default();
  a.cap = p.softcap;
  a.dropout = dropout_of(p, t.with);
  a.alibi = alibi_of(p, t.with);
  return a;
}

// Blocks that stay while rows last: where there is nothing to do they are gone at once.
void start(void (*kernel)(MendArgs), const MendArgs& a, Context& ctx) {
  const Grid grid{dim3(unsigned(std::max(ctx.device.units, 1))), threads};
  (ctx.device.sm >= 90 ? launch_dependent<MendArgs> : launch<MendArgs>)(cuda_stream(ctx.stream), kernel, grid, a);
}

}  // namespace

void mend_forward_on_gpu(const Problem& p, const Forward& t, const Lists& lists, Context& ctx) {
  if (p.documents == 0 || ctx.dry()) return;
  with_float(p.precision.dtype, [&]<class T>() { start(attention_mend_forward<T>, args_of(p, t, lists), ctx); });
}

void mend_backward_on_gpu(const Problem& p, const Backward& t, const Lists& lists, Context& ctx) {
  if (p.documents == 0 || ctx.dry()) return;
  MendArgs a = args_of(p, t, lists);
  a.d_o = strided(t.d_o);
  a.dq = strided(t.dq);
  a.dk = strided(t.dk);
  a.dv = strided(t.dv);
  a.dlse = t.dlse ? t.dlse.as<float>() : nullptr;
  with_float(p.precision.dtype, [&]<class T>() {
    start(attention_mend_dq<T>, a, ctx);
    start(attention_mend_dk_dv<T>, a, ctx);
  });
}

}  // namespace headroom::attention
