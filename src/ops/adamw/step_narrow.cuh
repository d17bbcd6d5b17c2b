// The update of weights whose moments have 16 or 8 bits. Memory limits the first, integers the second.
#pragma once
#include <algorithm>
#include <type_traits>

#include "gpu/mma_sm80.cuh"
#include "gpu/vec.cuh"
#include "ops/adamw/codes.cuh"
#include "ops/adamw/step.cuh"
#include "ops/adamw/table.cuh"
#include "ops/copy/split_pair.cuh"

namespace headroom::adamw {

template <class T>
struct NarrowParameter {
  const void* grad;  // as of Parameter, and what has the same name
  std::int64_t apart;
  float* master;
  void *m, *v;               // bf16, or codes
  float *m_scale, *v_scale;  // of codes
  T* copy;
  std::uint16_t* rest;
  std::int64_t count, element;  // element: the first one's number in the parameter
  unsigned first;
  std::uint32_t parameter;
  bool decay, aligned, narrow;
};
template <class T>
struct NarrowArgs {
  const Numbers* numbers;
  int parts;
  Table<NarrowParameter<T>, 8192, 280> table;
};

// The elements of a block that a lane has, as many as there are. Without a branch in between, all loads are under way at once.
template <int n, class T>
__device__ __forceinline__ Pack<T, n> load_some(const T* p, int many) {
  Pack<T, n> x;
#pragma unroll
  for (int e = 0; e < n; ++e) x.at[e] = e < many ? p[e] : T{};
  return x;
}
template <bool whole, int n, class T>
__device__ __forceinline__ void store_some(T* p, const Pack<T, n>& x, int many) {
  if constexpr (whole) {  // by name: the compiler made four stores of 4 bytes of one of 16
    using Vector = std::conditional_t<sizeof x == 8, uint2, uint4>;
#pragma unroll
    for (int i = 0; i < int(sizeof x / sizeof(Vector)); ++i)
      __stwb(reinterpret_cast<Vector*>(p) + i, reinterpret_cast<const Vector*>(&x)[i]);
    return;
  }
#pragma unroll
  for (int e = 0; e < n; ++e)
    if (e < many) p[e] = x.at[e];
}

// The pair, the four and the word of a pack that begin at an element.
template <int n>
__device__ __forceinline__ float2& pair_of(Pack<float, n>& x, int e) {
  return *reinterpret_cast<float2*>(&x.at[e]);
}
template <int n>
__device__ __forceinline__ float4& four_of(Pack<float, n>& x, int e) {
  return *reinterpret_cast<float4*>(&x.at[e]);
}
template <class T, int n>
__device__ __forceinline__ std::uint32_t& word_of(Pack<T, n>& x, int e) {
  return *reinterpret_cast<std::uint32_t*>(&x.at[e]);
}

constexpr int each = int(moments_block) / 32;  // neighbours that a lane has of a block of moments, which one warp updates

// What a warp brings of a block into shared memory while it updates the one before. A lane reads what it brought itself.
template <class T, class G, class Stored>
struct Ahead {
  template <class X>
  using Lanes = Pack<X, each>[32];
  Lanes<G> grad;
  Lanes<float> master;  // or a copy and its rest
  Lanes<Stored> m, v;

  __device__ __forceinline__ auto& copy() { return reinterpret_cast<Lanes<T>&>(master[0]); }
  __device__ __forceinline__ auto& rest() { return reinterpret_cast<Lanes<std::uint16_t>&>(master[16]); }

  __device__ __forceinline__ void bring(const NarrowParameter<T>& t, std::int64_t begin) {
    const int lane = int(threadIdx.x) % 32;
    const std::int64_t at = begin + lane * each;
    bring(grad[lane], static_cast<const G*>(t.grad) + at);
    if (t.rest)
      bring(copy()[lane], t.copy + at), bring(rest()[lane], t.rest + at);
    else
      bring(master[lane], t.master + at);
    bring(m[lane], static_cast<const Stored*>(t.m) + at), bring(v[lane], static_cast<const Stored*>(t.v) + at);
  }

 private:
  template <class X>
  static __device__ __forceinline__ void bring(Pack<X, each>& to, const X* from) {
    constexpr int bytes = sizeof to < 16 ? sizeof to : 16;
    const std::uint32_t shared = warp::shared_address(&to);
#pragma unroll
    for (int i = 0; i < int(sizeof to) / bytes; ++i)
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared + i * bytes),
                   "l"(reinterpret_cast<const char*>(from) + i * bytes), "n"(bytes)
                   : "memory");
  }
};

// How step_block holds moments, judges them and hands on what it makes: for adamw_step_narrow here, for adamw_step_tiles in tile_way.cuh, with the same
// bits. With that one's fewer instructions this kernel was slower: 2.7B's step by 0.9 ms of 122 with 8-bit moments (H200, 2026-11-29).
struct FlatWay {
  template <class Stored>
  using Moments = Pack<Stored, each>;

  struct Magnitudes : Usual {
    __device__ __forceinline__ explicit Magnitudes(const Numbers&) {}
    __device__ __forceinline__ void add(float, float v, float step, float divisor) { Usual::add(v, step, divisor); }
  };

  // Four elements' moments in 16 bits.
  static __device__ __forceinline__ void round(Pack<bf16, each>& m_to, Pack<bf16, each>& v_to, int e, const Pack<float, each>& m,
                                               const Pack<float, each>& v, const std::uint32_t (&bits)[4], const Magnitudes&) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      m_to.at[e + i] = half_of(m.at[e + i], Noise::first(bits[i]));
      v_to.at[e + i] = half_of(v.at[e + i], Noise::second(bits[i]));
    }
  }
  static __device__ __forceinline__ std::int64_t block_of(std::int64_t begin) { return begin / moments_block; }
  static __device__ __forceinline__ Noise noise(const Numbers& k, std::uint32_t parameter, std::int64_t element) {
    return {k, parameter, element};
  }
  template <class T>
  static __device__ __forceinline__ const Pack<T, each>& seen(const Pack<T, each>& copy) {  // the updated copy, before it is stored
    return copy;
  }
};

// Of one block of moments; whole: it and its pieces are, and `ahead` has them.
template <bool whole, bool in_parts, bool codes, class T, class G, class Stored, class Way = FlatWay>
__device__ __forceinline__ void step_block(const Numbers& k, const NarrowParameter<T>& t, int parts, std::int64_t begin, int n,
                                           Ahead<T, G, Stored>& ahead, float m_scale, float v_scale, Way way = {}) {
  const int lane = int(threadIdx.x) % 32, many = min(each, n - lane * each);  // may be negative: none
  const std::int64_t at = begin + lane * each;
  const float keep = t.decay ? k.keep : 1.0f;
  const auto stored = [&](const auto& lanes, const auto* from) {
    if constexpr (whole)
      return lanes[lane];
    else
      return load_some<each>(from + at, many);
  };

  auto *first = static_cast<Stored*>(t.m), *second = static_cast<Stored*>(t.v);
  const auto g_stored = stored(ahead.grad, static_cast<const G*>(t.grad));
  using Moments = typename Way::template Moments<Stored>;
  const auto moments = [&](const auto& lanes, const Stored* from) -> Moments {
    if constexpr (whole)
      return reinterpret_cast<const Moments&>(lanes[lane]);
    else
      return load_some<each>(from + at, many);
  };
  Moments m_stored = moments(ahead.m, first), v_stored = moments(ahead.v, second);
  Pack<float, each> w, m, v;
  Pack<T, each> copy;
  Pack<std::uint16_t, each> rest;
  bool halves = false;
  if constexpr (std::is_same_v<T, bf16>) halves = t.rest != nullptr;
  if (halves) {
    if constexpr (std::is_same_v<T, bf16>) {
      copy = stored(ahead.copy(), t.copy);
      rest = stored(ahead.rest(), t.rest);
#pragma unroll
      for (int e = 0; e < each; e += 2) pair_of(w, e) = copy::join_pair(word_of(copy, e), word_of(rest, e));
    }
  } else {
    w = stored(ahead.master, t.master);
  }
  Pack<float, each> g = widened(g_stored);
  if constexpr (in_parts)
    for (int p = 1; p < parts; ++p) {
      const G* part = static_cast<const G*>(t.grad) + p * t.apart + at;
      const auto x = widened(whole ? load<each>(part) : load_some<each>(part, many));
#pragma unroll
      for (int e = 0; e < each; ++e) g.at[e] = __fadd_rn(g.at[e], x.at[e]);
    }
  Pack<float, each> step;
  typename Way::Magnitudes sizes(k);
  if constexpr (codes) {
#pragma unroll
    for (int e = 0; e < each; e += 4) {
      four_of(m, e) = first_moments(word_of(m_stored, e), m_scale);
      four_of(v, e) = second_moments(word_of(v_stored, e), v_scale);
    }
  } else {
    m = widened(m_stored), v = widened(v_stored);
  }
#pragma unroll
  for (int e = 0; e < each; ++e) {
    follow_fused(k, g.at[e], m.at[e], v.at[e]);
    const float a = k.step * m.at[e], b = divisor(k, root(v.at[e]));
    step.at[e] = quotient(a, b);
    sizes.add(m.at[e], v.at[e], a, b);
  }
  if (!sizes.all()) {
#pragma unroll
    for (int e = 0; e < each; ++e) step.at[e] = k.step * m.at[e] / divisor(k, sqrtf(v.at[e]));
  }
#pragma unroll
  for (int e = 0; e < each; ++e) w.at[e] = fmaf(keep, w.at[e], -step.at[e]);
  if (halves) {
    if constexpr (std::is_same_v<T, bf16>) {
#pragma unroll
      for (int e = 0; e < each; e += 2) copy::split_pair(pair_of(w, e), word_of(copy, e), word_of(rest, e));
      store_some<whole>(t.copy + at, way.seen(copy), many);
      store_some<whole>(t.rest + at, rest, many);
    }
  } else {
    store_some<whole>(t.master + at, w, many);
    if (t.copy) store_some<whole>(t.copy + at, way.seen(rounded<T>(w)), many);
  }
  float of_m = 0, of_v = 0;
  if constexpr (codes) {
    std::uint32_t m_most = 0, v_most = 0;  // as bits, which are ordered as magnitudes are, with NaN above all
    if constexpr (requires { sizes.m_most(), sizes.v_most(); })
      m_most = sizes.m_most(), v_most = sizes.v_most();
    else
#pragma unroll
      for (int e = 0; e < each; ++e) {  // what is past the end is zero
        m_most = max(m_most, bits_of(m.at[e]) & 0x7fffffff);
        v_most = max(v_most, bits_of(v.at[e]) & 0x7fffffff);
      }
    const float m_next = FirstMoment::Of::scale(float_of(__reduce_max_sync(~0u, m_most))),
                v_next = SecondMoment::Of::scale(float_of(__reduce_max_sync(~0u, v_most)));
    of_m = 1 / m_next, of_v = 1 / v_next;
    if (lane == 0) {
      const auto number = way.block_of(begin);
      t.m_scale[number] = m_next, t.v_scale[number] = v_next;
    }
  }
  const Noise noise = way.noise(k, t.parameter, t.element + begin);
#pragma unroll
  for (int e = 0; e < each; e += 4) {
    const std::int64_t element = t.element + at + e;
    const std::uint32_t bits[4] = {noise.of(element), noise.of(element + 1), noise.of(element + 2), noise.of(element + 3)};
    if constexpr (codes) {
      word_of(m_stored, e) = first_codes(four_of(m, e), of_m, bits);
      word_of(v_stored, e) = second_codes(four_of(v, e), of_v, bits);
    } else {
      way.round(m_stored, v_stored, e, m, v, bits, sizes);
    }
  }
  using Element = std::remove_reference_t<decltype(m_stored.at[0])>;
  store_some<whole>(reinterpret_cast<Element*>(first + at), m_stored, many);
  store_some<whole>(reinterpret_cast<Element*>(second + at), v_stored, many);
}

// Of a piece, one warp per block of moments: the next one is under way while a warp updates one.
template <bool in_parts, bool codes, class T, class G, class Stored>
__device__ __forceinline__ void step_blocks(const Numbers& k, const NarrowParameter<T>& t, int parts, std::int64_t begin, int n,
                                            Ahead<T, G, Stored> (&ahead)[2]) {
  constexpr int block = int(moments_block), stride = threads / 32 * block;
  const auto scale = [&](const float* of, int i) { return codes && i < n ? of[(begin + i) / block] : 0; };
  const bool aligned = t.aligned;
  const auto bring = [&](int i, int turn) {
    if (aligned && i + block <= n) ahead[turn].bring(t, begin + i);
    warp::copies_commit();
  };
  int i = int(threadIdx.x) / 32 * block, turn = 0;
  float m_scale = scale(t.m_scale, i), v_scale = scale(t.v_scale, i);
  bring(i, 0);
#pragma unroll 1
  for (; i < n; i += stride, turn ^= 1) {
    const float m_next = scale(t.m_scale, i + stride), v_next = scale(t.v_scale, i + stride);
    bring(i + stride, turn ^ 1);
    warp::copies_wait<1>();
    if (aligned && i + block <= n)
      step_block<true, in_parts, codes>(k, t, parts, begin + i, block, ahead[turn], m_scale, v_scale);
    else
      step_block<false, in_parts, codes>(k, t, parts, begin + i, min(block, n - i), ahead[turn], m_scale, v_scale);
    m_scale = m_next, v_scale = v_next;
  }
}

// adamw_step_narrow — of moments in 16 or 8 bits: one block of threads per piece of 8192 elements.
//   reads  gradient, weight, moments, scales     writes  weight, moments, scales, copy
//   numerics  the bits of the CPU     limit  bandwidth: in 8 bits 16.06 bytes an element, 18.06 with a 16-bit copy, 14.06 in halves, of FP32 gradients
template <class T, bool in_parts, bool codes>
__global__ void __launch_bounds__(threads, 4) adamw_step_narrow(const __grid_constant__ NarrowArgs<T> a) {
  using Stored = std::conditional_t<codes, std::uint8_t, bf16>;
  __shared__ Ahead<T, float, Stored> wide[threads / 32][2];
  const Numbers k = *a.numbers;
  if (k.go == 0) return;
  const NarrowParameter<T>& t = a.table.of(blockIdx.x);
  constexpr int piece = decltype(a.table)::piece;
  const std::int64_t begin = std::int64_t(blockIdx.x - t.first) * piece;
  const int n = int(min(std::int64_t(piece), t.count - begin));
  auto& ahead = wide[threadIdx.x / 32];
  t.narrow ? step_blocks<in_parts, codes>(k, t, a.parts, begin, n, reinterpret_cast<Ahead<T, T, Stored>(&)[2]>(ahead))
           : step_blocks<in_parts, codes>(k, t, a.parts, begin, n, ahead);
}

}  // namespace headroom::adamw
