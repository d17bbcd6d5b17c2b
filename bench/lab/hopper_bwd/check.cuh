// check.cuh — FP64 reference on the device, cases that hurt, and interleaved timing for the backward under study.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "host.cuh"

namespace ns::attention {

template <class T>
__device__ double at(const void* x, const Strides& s, int batch, int row, int head, int c) {
  return double(float(static_cast<const T*>(x)[batch * s.batch + row * s.row + head * s.head + c]));
}

// One block per query row, FP64, nothing clever: O, LSE, Δ, dQ.
template <class T>
__global__ void reference_rows(Tensors t, Problem p, double scale, double* lse, double* delta, double* dq, T* o, float* lse_out) {
  extern __shared__ double score[];
  const int row = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, kv = head / (p.heads / p.kv_heads), shift = p.len_k - p.len_q;
  const std::size_t pair = std::size_t(batch) * p.heads + head, r = pair * p.len_q + row;
  const auto sees = [&](int key) {
    const int d = row + shift - key;
    return d >= p.least && d <= p.most;
  };
  for (int key = threadIdx.x; key < p.len_k; key += blockDim.x) {
    double sum = 0;
    for (int c = 0; c < p.dim; ++c) sum += at<T>(t.q, t.q_at, batch, row, head, c) * at<T>(t.k, t.k_at, batch, key, kv, c);
    score[key] = sees(key) ? sum * scale : -INFINITY;
  }
  __syncthreads();
  double high = -INFINITY, sum = 0;
  for (int key = 0; key < p.len_k; ++key) high = fmax(high, score[key]);
  const bool blind = high == -INFINITY;
  for (int key = 0; key < p.len_k; ++key) sum += blind ? 0 : exp(score[key] - high);
  const double l = blind ? -INFINITY : high + log(sum);
  __shared__ double total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  for (int key = threadIdx.x; key < p.len_k; key += blockDim.x) score[key] = blind ? 0 : exp(score[key] - l);
  __syncthreads();
  for (int c = threadIdx.x; c < p.dim; c += blockDim.x) {
    double out = 0;
    for (int key = 0; key < p.len_k; ++key) out += score[key] * at<T>(t.v, t.v_at, batch, key, kv, c);
    o[batch * t.o_at.batch + row * t.o_at.row + head * t.o_at.head + c] = T(float(out));
    atomicAdd(&total, out * at<T>(t.dout, t.do_at, batch, row, head, c));
  }
  __syncthreads();
  const double d = total - (t.dlse ? t.dlse[r] : 0);
  if (threadIdx.x == 0) lse[r] = l, delta[r] = d, lse_out[r] = float(l);
  for (int key = threadIdx.x; key < p.len_k; key += blockDim.x) {
    double dp = 0;
    for (int c = 0; c < p.dim; ++c) dp += at<T>(t.dout, t.do_at, batch, row, head, c) * at<T>(t.v, t.v_at, batch, key, kv, c);
    score[key] *= dp - d;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < p.dim; c += blockDim.x) {
    double out = 0;
    for (int key = 0; key < p.len_k; ++key) out += score[key] * at<T>(t.k, t.k_at, batch, key, kv, c);
    dq[r * p.dim + c] = out * scale;
  }
}

// One block per key: dK, dV.
template <class T>
__global__ void reference_keys(Tensors t, Problem p, double scale, const double* lse, const double* delta, double* dk, double* dv) {
  extern __shared__ double weight[];  // P, then dS, of every row
  double* ds = weight + p.len_q;
  const int key = blockIdx.x, kv = blockIdx.y, batch = blockIdx.z, group = p.heads / p.kv_heads, shift = p.len_k - p.len_q;
  const std::size_t to = ((std::size_t(batch) * p.kv_heads + kv) * p.len_k + key) * p.dim;
  for (int c = threadIdx.x; c < p.dim; c += blockDim.x) dk[to + c] = dv[to + c] = 0;
  for (int head = kv * group; head < kv * group + group; ++head) {
    __syncthreads();
    for (int row = threadIdx.x; row < p.len_q; row += blockDim.x) {
      const std::size_t r = (std::size_t(batch) * p.heads + head) * p.len_q + row;
      double s = 0, dp = 0;
      for (int c = 0; c < p.dim; ++c) {
        s += at<T>(t.q, t.q_at, batch, row, head, c) * at<T>(t.k, t.k_at, batch, key, kv, c);
        dp += at<T>(t.dout, t.do_at, batch, row, head, c) * at<T>(t.v, t.v_at, batch, key, kv, c);
      }
      const int d = row + shift - key;
      weight[row] = d >= p.least && d <= p.most ? exp(s * scale - lse[r]) : 0;
      ds[row] = weight[row] * (dp - delta[r]);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < p.dim; c += blockDim.x) {
      double k = 0, v = 0;
      for (int row = 0; row < p.len_q; ++row) {
        k += ds[row] * at<T>(t.q, t.q_at, batch, row, head, c);
        v += weight[row] * at<T>(t.dout, t.do_at, batch, row, head, c);
      }
      dk[to + c] += k * scale, dv[to + c] += v;
    }
  }
}

template <class T>
__global__ void randomise(T* x, std::size_t n, unsigned seed, float size) {
  for (std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x; i < n; i += std::size_t(gridDim.x) * blockDim.x) {
    float sum = 0;  // four uniforms: bell-shaped, variance 1
    for (unsigned j = 0; j < 4; ++j) {
      unsigned h = (unsigned(i) * 4 + j) * 2654435761u ^ seed * 0x9e3779b9u;
      h = (h ^ h >> 16) * 0x85ebca6bu, h = (h ^ h >> 13) * 0xc2b2ae35u, h ^= h >> 16;
      sum += h * 0x1p-32f - 0.5f;
    }
    x[i] = T(sum * 1.7320508f * size);
  }
}

// [batch, len, heads, dim] with `gap` unused elements after each row and `guard` around the whole; everything unused is NaN.
template <class T>
struct Array {
  static constexpr int guard = 4096;
  int batch, len, heads, dim;
  Strides at;
  std::size_t count;
  T* base;
  Array(int batch, int len, int heads, int dim, int gap = 0) : batch(batch), len(len), heads(heads), dim(dim) {
    at.head = dim, at.row = heads * dim + gap, at.batch = at.row * len;
    count = at.batch * batch;
    cuda(cudaMalloc(&base, (count + 2 * guard) * sizeof(T)));
    poison();
  }
  ~Array() { cudaFree(base); }
  void poison() { cuda(cudaMemset(base, 0xff, (count + 2 * guard) * sizeof(T))); }
  T* data() const { return base + guard; }
  void random(unsigned seed, float size = 1) { randomise<<<512, 256>>>(data(), count, seed, size); }
  std::vector<T> down() const {
    std::vector<T> x(count + 2 * guard);
    cuda(cudaMemcpy(x.data(), base, x.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return x;
  }
};

struct Error {
  double relative = 0, worst = 0;
  bool clean = true;
};
template <class T>
Error compare(const Array<T>& a, const double* there) {  // reference: [batch, heads, len, dim]
  std::vector<T> mine = a.down();
  std::vector<double> right(std::size_t(a.batch) * a.heads * a.len * a.dim);
  cuda(cudaMemcpy(right.data(), there, right.size() * 8, cudaMemcpyDeviceToHost));
  std::vector<bool> used(mine.size());
  double e2 = 0, n2 = 0;
  Error r;
  for (int b = 0; b < a.batch; ++b)
    for (int h = 0; h < a.heads; ++h)
      for (int l = 0; l < a.len; ++l)
        for (int c = 0; c < a.dim; ++c) {
          const std::size_t i = Array<T>::guard + b * a.at.batch + l * a.at.row + h * a.at.head + c;
          const double want = right[((std::size_t(b) * a.heads + h) * a.len + l) * a.dim + c], e = std::fabs(double(float(mine[i])) - want);
          used[i] = true, e2 += e * e, n2 += want * want;
          if (!(e <= r.worst)) r.worst = e;
        }
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (!used[i]) r.clean &= std::isnan(float(mine[i]));
  r.relative = n2 > 0 ? std::sqrt(e2 / n2) : std::sqrt(e2);
  return r;
}

template <class T>
struct Case {
  Problem p;
  Array<T> q, k, v, o, dout, dq, dk, dv;
  float *lse, *dlse = nullptr;
  std::size_t rows;
  Case(const Problem& p, int gap = 0, float size = 1, bool with_dlse = false)
      : p(p),
        q(p.batch, p.len_q, p.heads, p.dim, gap),
        k(p.batch, p.len_k, p.kv_heads, p.dim, gap),
        v(p.batch, p.len_k, p.kv_heads, p.dim),
        o(p.batch, p.len_q, p.heads, p.dim),
        dout(p.batch, p.len_q, p.heads, p.dim, 2 * gap),
        dq(p.batch, p.len_q, p.heads, p.dim, gap),
        dk(p.batch, p.len_k, p.kv_heads, p.dim, gap),
        dv(p.batch, p.len_k, p.kv_heads, p.dim),
        rows(std::size_t(p.batch) * p.heads * p.len_q) {
    q.random(1, size), k.random(2), v.random(3), dout.random(4);
    cuda(cudaMalloc(&lse, rows * 4));
    if (with_dlse) cuda(cudaMalloc(&dlse, rows * 4)), randomise<<<64, 256>>>(dlse, rows, 5, 1);
  }
  ~Case() { cudaFree(lse), cudaFree(dlse); }
  Tensors tensors() const {
    return {q.data(), k.data(), v.data(), o.data(), dout.data(), dq.data(), dk.data(), dv.data(), q.at,
            k.at,     v.at,     o.at,     dout.at,  dq.at,       dk.at,     dv.at,     lse,       dlse};
  }
};

struct Variant {
  const char* name;
  int dim;  // of its tiles
  bool deterministic;
  std::size_t (*workspace)(const Problem&);
  void (*run)(const Problem&, const Tensors&, char*, cudaStream_t, int parts);
};
template <class C, bool ordered>
Variant variant(const char* name) {
  return {name, C::dim, ordered, [](const Problem& p) { return Workspace<C>(p, ordered).bytes; }, run<C, ordered>};
}

template <class C>
Variant wide_variant(const char* name) {
  return {name, C::dim, true, [](const Problem& p) { return WideWorkspace(p).bytes; }, run_wide<C>};
}

template <class T>
int check(const Problem& p, const std::vector<Variant>& variants, int gap = 0, float size = 1, bool with_dlse = false) {
  Case<T> c(p, gap, size, with_dlse);
  const Tensors t = c.tensors();
  const std::size_t kv = std::size_t(p.batch) * p.kv_heads * p.len_k * p.dim;
  double *lse, *delta, *dq, *dk, *dv;
  cuda(cudaMalloc(&lse, c.rows * 8)), cuda(cudaMalloc(&delta, c.rows * 8)), cuda(cudaMalloc(&dq, c.rows * p.dim * 8)),
      cuda(cudaMalloc(&dk, kv * 8)), cuda(cudaMalloc(&dv, kv * 8));
  const double scale = p.scale ? p.scale : 1 / std::sqrt(double(p.dim));
  cuda(cudaFuncSetAttribute(reference_rows<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10)),
      cuda(cudaFuncSetAttribute(reference_keys<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  reference_rows<T><<<dim3(p.len_q, p.heads, p.batch), 128, p.len_k * 8>>>(t, p, scale, lse, delta, dq, c.o.data(), c.lse);
  reference_keys<T><<<dim3(p.len_k, p.kv_heads, p.batch), 128, p.len_q * 16>>>(t, p, scale, lse, delta, dk, dv);
  cuda(cudaDeviceSynchronize());
  int failed = 0;
  for (const Variant& x : variants) {
    if (p.dim > x.dim || (x.dim > 64 && p.dim <= x.dim / 2)) continue;
    const std::size_t bytes = x.workspace(p), guard = 4096;
    char* workspace;
    cuda(cudaMalloc(&workspace, bytes + guard)), cuda(cudaMemset(workspace, 0xff, bytes + guard));
    c.dq.poison(), c.dk.poison(), c.dv.poison();
    x.run(p, t, workspace, 0, whole);
    cuda(cudaDeviceSynchronize());
    const Error q = compare(c.dq, dq), k = compare(c.dk, dk), v = compare(c.dv, dv);
    const auto first_q = c.dq.down(), first_k = c.dk.down(), first_v = c.dv.down();
    bool same = true;
    for (int i = 0; i < 3; ++i) {
      x.run(p, t, workspace, 0, whole);
      const auto again_q = c.dq.down(), again_k = c.dk.down(), again_v = c.dv.down();
      const auto equal = [](const std::vector<T>& a, const std::vector<T>& b) {
        return !std::memcmp(a.data(), b.data(), a.size() * sizeof(T));
      };
      same &= equal(first_k, again_k) && equal(first_v, again_v) && (!x.deterministic || equal(first_q, again_q));
    }
    std::vector<unsigned char> edge(guard);
    cuda(cudaMemcpy(edge.data(), workspace + bytes, guard, cudaMemcpyDeviceToHost));
    bool guarded = q.clean && k.clean && v.clean;
    for (unsigned char b : edge) guarded &= b == 0xff;
    const double limit = std::is_same_v<T, __half> ? 1.2e-3 : 8e-3;
    const bool ok = q.relative < limit && k.relative < limit && v.relative < limit && guarded && same;
    failed += !ok;
    std::printf("%-4s %-16s %s dim %3d batch %d heads %d/%d len %5d x %5d sees %d…%d  rel dq %.2e dk %.2e dv %.2e max %.1e %.1e %.1e%s%s\n",
                ok ? "ok" : "FAIL", x.name, std::is_same_v<T, __half> ? "fp16" : "bf16", p.dim, p.batch, p.heads, p.kv_heads, p.len_q,
                p.len_k, std::max(p.least, -9999), std::min(p.most, 9999), q.relative, k.relative, v.relative, q.worst, k.worst, v.worst,
                guarded ? "" : " WROTE OUTSIDE", same ? "" : " NOT REPEATABLE");
    cudaFree(workspace);
  }
  cudaFree(lse), cudaFree(delta), cudaFree(dq), cudaFree(dk), cudaFree(dv);
  return failed;
}

template <class T>
int check_all(int dim, const std::vector<Variant>& v) {
  int failed = 0;
  for (int least : {-unbounded, 0}) {
    const auto with = [&](int b, int h, int kv, int lq, int lk, int most = unbounded) {
      return Problem{b, h, kv, lq, lk, dim, least, most};
    };
    failed += check<T>(with(1, 1, 1, 64, 64), v), failed += check<T>(with(1, 1, 1, 1, 1), v),
        failed += check<T>(with(1, 2, 2, 256, 256), v);
    failed += check<T>(with(2, 3, 3, 1000, 1000), v, 16), failed += check<T>(with(1, 4, 2, 129, 777), v),
        failed += check<T>(with(1, 4, 1, 777, 129), v, 8, 1, true);
    failed += check<T>(with(2, 20, 4, 512, 512), v), failed += check<T>(with(1, 2, 2, 513, 1535), v),
        failed += check<T>(with(1, 2, 1, 1400, 333), v);
    failed += check<T>(with(1, 2, 2, 700, 900), v, 0, 20);  // scores of ±100
    failed += check<T>(with(3, 40, 40, 200, 300), v, 0, 1, true);
    if (least == 0)
      failed += check<T>(with(1, 2, 2, 1000, 1000, 99), v), failed += check<T>(with(1, 4, 2, 300, 700, 256), v),
          failed += check<T>(with(1, 2, 2, 700, 300, 64), v);
  }
  return failed;
}

// 16 384 tokens, width 2048. In each cell the variants take turns, so that a warming card slows all of them alike. Milliseconds and TFLOP/s: medians.
template <class T>
void time_all(int dim, const std::vector<Variant>& variants, int parts, std::vector<int> lens, int rounds = 5) {
  cudaEvent_t start, stop;
  cuda(cudaEventCreate(&start)), cuda(cudaEventCreate(&stop));
  for (int least : {-unbounded, 0}) {
    std::vector<std::string> rows(variants.size());
    for (int len : lens) {
      Case<T> c({16384 / len, 2048 / dim, 2048 / dim, len, len, dim, least});
      c.o.random(6), randomise<<<64, 256>>>(c.lse, c.rows, 7, 0.1f);
      const float lift = std::log(float(len)) + 0.5f;  // about what the log-sum-exp of normal scores is
      std::vector<float> lse(c.rows, lift);
      cuda(cudaMemcpy(c.lse, lse.data(), c.rows * 4, cudaMemcpyHostToDevice));
      std::size_t bytes = 0;
      for (const auto& v : variants) bytes = std::max(bytes, v.workspace(c.p));
      char* workspace;
      cuda(cudaMalloc(&workspace, bytes));
      std::vector<std::vector<float>> ms(variants.size());
      const Tensors t = c.tensors();
      for (int round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < variants.size(); ++i)
          for (int j = 0; j < 4; ++j) {
            if (parts != whole) variants[i].run(c.p, t, workspace, 0, whole & ~parts);
            cuda(cudaEventRecord(start));
            variants[i].run(c.p, t, workspace, 0, parts);
            cuda(cudaEventRecord(stop)), cuda(cudaEventSynchronize(stop));
            float x;
            cuda(cudaEventElapsedTime(&x, start, stop));
            if (round && j) ms[i].push_back(x);
          }
      cudaFree(workspace);
      for (std::size_t i = 0; i < variants.size(); ++i) {
        std::sort(ms[i].begin(), ms[i].end());
        const double x = ms[i][ms[i].size() / 2];
        char cell[40];
        std::snprintf(cell, sizeof cell, " %6.3f %5.0f", x, 10.0 * c.p.batch * c.p.heads * len * len * dim / (least ? 1 : 2) / x * 1e-9);
        rows[i] += cell;
      }
    }
    for (std::size_t i = 0; i < variants.size(); ++i)
      std::printf("%-16s dim %3d %-6s %-4s%s\n", variants[i].name, dim, least ? "full" : "causal",
                  parts == whole    ? "all"
                  : parts == middle ? "main"
                                    : "dq",
                  rows[i].c_str());
    std::fflush(stdout);
  }
}

}  // namespace ns::attention
