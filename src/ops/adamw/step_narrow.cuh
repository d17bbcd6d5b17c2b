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

// What a lane does beside an update.
struct NothingBeside {
  __device__ void read() const {}  // it has read what was brought ahead
  template <class X>
  __device__ void written(const X&) const {}  // what it stores of the copy
  __device__ Noise noise(const Numbers& k, std::uint32_t parameter, std::int64_t element) const { return {k, parameter, element}; }
};

// The largest and the least of a lane's moments, as bits that order as magnitudes do, with NaN above all. Scales follow from the largest, and whether root
// and quotient give the language's bits (Usual): a step and its divisor grow with the moments.
class Magnitudes {
 public:
  __device__ __forceinline__ void add(float m, float v) {
    const std::uint32_t m_bits = __funnelshift_l(bits_of(m), bits_of(m), 1), v_bits = bits_of(v) & 0x7fffffff;  // m's sign last
    m_least_ = min(m_least_, m_bits - 1), m_most_ = max(m_most_, m_bits);                                       // less one, +0 is above all
    v_least_ = min(v_least_, v_bits - 1), v_most_ = max(v_most_, v_bits);
  }
  __device__ __forceinline__ bool usual(const Numbers& k) const {
    const float least = k.step * float_of((m_least_ + 1) >> 1), b = divisor(k, root(float_of(v_most_)));
    return v_least_ >= bits_of(0x1p-101f) - 1 && (m_most_ == 0 ? k.step >= 0 : least >= 0x1p-96f) &&
           k.step * float_of(m_most()) <= 0x1p60f && k.eps >= 0x1p-30f && b <= 0x1p30f;
  }
  __device__ __forceinline__ std::uint32_t m_most() const { return m_most_ >> 1; }
  __device__ __forceinline__ std::uint32_t v_most() const { return v_most_; }

 private:
  std::uint32_t m_least_ = ~0u, m_most_ = 0, v_least_ = ~0u, v_most_ = 0;
};

// Of one block of moments; whole: it and its pieces are, and `ahead` has them.
template <bool whole, bool in_parts, bool codes, class T, class G, class Stored, class Beside = NothingBeside>
__device__ __forceinline__ void step_block(const Numbers& k, const NarrowParameter<T>& t, int parts, std::int64_t begin, int n,
                                           Ahead<T, G, Stored>& ahead, float m_scale, float v_scale, Beside&& beside = {}) {
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
  // Codes are words from the beginning: of bytes the compiler would make words again.
  using Words = Pack<std::uint32_t, int(sizeof(Pack<Stored, each>)) / 4>;
  const auto words = [&](const auto& lanes, const Stored* from) -> Words {
    if constexpr (whole) return reinterpret_cast<const Words&>(lanes[lane]);
    const auto some = load_some<each>(from + at, many);
    return reinterpret_cast<const Words&>(some);
  };
  Words m_words = words(ahead.m, first), v_words = words(ahead.v, second);
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
  beside.read();
  Pack<float, each> g = widened(g_stored);
  if constexpr (in_parts)
    for (int p = 1; p < parts; ++p) {
      const G* part = static_cast<const G*>(t.grad) + p * t.apart + at;
      const auto x = widened(whole ? load<each>(part) : load_some<each>(part, many));
#pragma unroll
      for (int e = 0; e < each; ++e) g.at[e] = __fadd_rn(g.at[e], x.at[e]);
    }
  Pack<float, each> step;
  Magnitudes sizes;
  if constexpr (codes) {
#pragma unroll
    for (int e = 0; e < each; e += 4) {
      four_of(m, e) = first_moments(m_words.at[e / 4], m_scale);
      four_of(v, e) = second_moments(v_words.at[e / 4], v_scale);
    }
  } else {
#pragma unroll
    for (int e = 0; e < each; e += 4) {
      four_of(m, e) = four_of_halves({m_words.at[e / 2], m_words.at[e / 2 + 1]});
      four_of(v, e) = four_of_halves({v_words.at[e / 2], v_words.at[e / 2 + 1]});
    }
  }
#pragma unroll
  for (int e = 0; e < each; ++e) {
    follow_fused(k, g.at[e], m.at[e], v.at[e]);
    step.at[e] = quotient(k.step * m.at[e], divisor(k, root(v.at[e])));
    sizes.add(m.at[e], v.at[e]);
  }
  const bool usual = sizes.usual(k);
  if (!usual) {
#pragma unroll
    for (int e = 0; e < each; ++e) step.at[e] = k.step * m.at[e] / divisor(k, sqrtf(v.at[e]));
  }
#pragma unroll
  for (int e = 0; e < each; ++e) w.at[e] = fmaf(keep, w.at[e], -step.at[e]);
  if (halves) {
    if constexpr (std::is_same_v<T, bf16>) {
#pragma unroll
      for (int e = 0; e < each; e += 2) copy::split_pair(pair_of(w, e), word_of(copy, e), word_of(rest, e));
      store_some<whole>(t.copy + at, copy, many);
      store_some<whole>(t.rest + at, rest, many);
      beside.written(copy);
    }
  } else {
    store_some<whole>(t.master + at, w, many);
    if (t.copy) {
      const Pack<T, each> narrow = rounded<T>(w);
      store_some<whole>(t.copy + at, narrow, many);
      beside.written(narrow);
    }
  }
  float of_m = 0, of_v = 0;
  if constexpr (codes) {  // what is past the end is zero
    const float m_next = FirstMoment::Of::scale(float_of(__reduce_max_sync(~0u, sizes.m_most()))),
                v_next = SecondMoment::Of::scale(float_of(__reduce_max_sync(~0u, sizes.v_most())));
    of_m = 1 / m_next, of_v = 1 / v_next;
    if (lane == 0) {
      t.m_scale[std::uint64_t(begin) / moments_block] = m_next;
      t.v_scale[std::uint64_t(begin) / moments_block] = v_next;
    }
  }
  const Noise noise = beside.noise(k, t.parameter, t.element + begin);
#pragma unroll
  for (int e = 0; e < each; e += 4) {
    const std::int64_t element = t.element + at + e;
    const std::uint32_t bits[4] = {noise.of(element), noise.of(element + 1), noise.of(element + 2), noise.of(element + 3)};
    if constexpr (codes) {
      m_words.at[e / 4] = first_codes(four_of(m, e), of_m, bits);
      v_words.at[e / 4] = second_codes(four_of(v, e), of_v, bits);
    } else {
      const auto halves_of = [&](const float4& x, auto&& of) {
        return usual ? halves_of_numbers(x, bits, of) : halves_of_any(x, bits, of);
      };
      const uint2 m_two = halves_of(four_of(m, e), Noise::first), v_two = halves_of(four_of(v, e), Noise::second);
      m_words.at[e / 2] = m_two.x, m_words.at[e / 2 + 1] = m_two.y;
      v_words.at[e / 2] = v_two.x, v_words.at[e / 2 + 1] = v_two.y;
    }
  }
  const auto store_words = [&](Stored* to, const Words& x) {
    if constexpr (whole)
      store_some<true>(reinterpret_cast<std::uint32_t*>(to + at), x, many);
    else
      store_some<false>(to + at, reinterpret_cast<const Pack<Stored, each>&>(x), many);
  };
  store_words(first, m_words), store_words(second, v_words);
}

// Of a piece, one warp per block of moments: the next one is under way while a warp updates one.
template <bool in_parts, bool codes, class T, class G, class Stored>
__device__ __forceinline__ void step_blocks(const Numbers& k, const NarrowParameter<T>& t, int parts, std::int64_t begin, int n,
                                            Ahead<T, G, Stored> (&ahead)[2]) {
  constexpr int block = int(moments_block), stride = threads / 32 * block;
  const auto scale = [&](const float* of, int i) { return codes && i < n ? of[std::uint64_t(begin + i) / block] : 0; };
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
