// The update of weights whose moments have 16 or 8 bits.
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
  float *m_scale, *v_scale;  // scales of codes
  T* copy;
  std::uint16_t* rest;
  std::int64_t count, element;  // element: the first one's number in the parameter
  unsigned first;
  std::uint32_t parameter;
  bool decay, aligned, narrow;
};
constexpr int narrow_piece = 8192,
              piece_blocks = narrow_piece / int(moments_block);  // what a block of threads takes; its blocks of moments
template <class T>
struct NarrowArgs {
  const Numbers* numbers;
  int parts;
  Table<NarrowParameter<T>, narrow_piece, 280> table;
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

// Where a lane's weights of a block are.
template <class T, class G, class Stored>
struct Lane {
  bool halves, copied;  // in a copy and its rest; there is a copy
  const G* grad;
  T* copy;
  void* low;  // the rest, or the master
  Stored *m, *v;

  __device__ __forceinline__ Lane(const NarrowParameter<T>& t, std::int64_t begin)
      : halves(std::is_same_v<T, bf16> && t.rest != nullptr), copied(t.copy != nullptr) {
    const std::int64_t at = begin + int(threadIdx.x) % 32 * each;
    grad = static_cast<const G*>(t.grad) + at, copy = t.copy + at, low = halves ? static_cast<void*>(t.rest + at) : t.master + at;
    m = static_cast<Stored*>(t.m) + at, v = static_cast<Stored*>(t.v) + at;
  }
  __device__ __forceinline__ void advance(std::int64_t elements) {
    grad += elements, m += elements, v += elements, copy += elements;
    low = static_cast<char*>(low) + elements * (halves ? 2 : 4);
  }
  __device__ __forceinline__ std::uint16_t* rest() const { return static_cast<std::uint16_t*>(low); }
  __device__ __forceinline__ float* master() const { return static_cast<float*>(low); }
};

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

  __device__ __forceinline__ void bring(const Lane<T, G, Stored>& from) {
    const int lane = int(threadIdx.x) % 32;
    bring(grad[lane], from.grad);
    if (from.halves)
      bring(copy()[lane], from.copy), bring(rest()[lane], from.rest());
    else
      bring(master[lane], from.master());
    bring(m[lane], from.m), bring(v[lane], from.v);
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

struct Scales {
  float m, v;
};

// What the lanes of a warp have in common.
struct Common {
  const Numbers& k;
  float keep;
  Noise noise;
  bool ordinary;

  template <class T>
  __device__ __forceinline__ Common(const Numbers& k, const NarrowParameter<T>& t)
      : k(k), keep(t.decay ? k.keep : 1.0f), noise(k, t.parameter), ordinary(adamw::ordinary(k)) {}
};

// Updates one block of moments. whole: the block and its pieces are whole, and `ahead` holds them; else this lane has `many` weights, none if that is
// negative. seen(copy) is told what the copy will be. scales: those of 8-bit moments, read and replaced.
template <bool whole, bool in_parts, bool codes, class T, class G, class Stored, class Seen>
__device__ __forceinline__ void step_block(const Common& common, const Lane<T, G, Stored>& at, std::int64_t element, int many, int parts,
                                           std::int64_t apart, Ahead<T, G, Stored>& ahead, Scales& scales, Seen&& seen) {
  const int lane = int(threadIdx.x) % 32;
  const auto stored = [&](const auto& lanes, const auto* from) {
    if constexpr (whole)
      return lanes[lane];
    else
      return load_some<each>(from, many);
  };
  Pack<float, each> g = widened(stored(ahead.grad, at.grad)), m, v, step, w;
  Pack<Stored, each> m_stored = stored(ahead.m, at.m), v_stored = stored(ahead.v, at.v);
  if constexpr (in_parts)
    for (int p = 1; p < parts; ++p) {
      const G* part = at.grad + p * apart;
      const auto x = widened(whole ? load<each>(part) : load_some<each>(part, many));
#pragma unroll
      for (int e = 0; e < each; ++e) g.at[e] = __fadd_rn(g.at[e], x.at[e]);
    }
  if constexpr (codes) {
#pragma unroll
    for (int e = 0; e < each; e += 4) {
      four_of(m, e) = first_moments(word_of(m_stored, e), scales.m);
      four_of(v, e) = second_moments(word_of(v_stored, e), scales.v);
    }
  } else {
    m = widened(m_stored), v = widened(v_stored);
  }
  const Largest largest = step_fused(common.k, common.ordinary, g.at, m.at, v.at, step.at);

  const auto stepped = [&] {
#pragma unroll
    for (int e = 0; e < each; ++e) w.at[e] = fmaf(common.keep, w.at[e], -step.at[e]);
  };
  if (at.halves) {
    if constexpr (std::is_same_v<T, bf16>) {
      auto copy = stored(ahead.copy(), at.copy);
      auto rest = stored(ahead.rest(), at.rest());
#pragma unroll
      for (int e = 0; e < each; e += 2) pair_of(w, e) = copy::join_pair(word_of(copy, e), word_of(rest, e));
      stepped();
#pragma unroll
      for (int e = 0; e < each; e += 2) copy::split_pair(pair_of(w, e), word_of(copy, e), word_of(rest, e));
      seen(copy);
      store_some<whole>(at.copy, copy, many);
      store_some<whole>(at.rest(), rest, many);
    }
  } else {
    w = stored(ahead.master, at.master());
    stepped();
    store_some<whole>(at.master(), w, many);
    if (at.copied) {
      const auto copy = rounded<T>(w);
      seen(copy);
      store_some<whole>(at.copy, copy, many);
    }
  }

  static_assert(each == Noise::run);
  std::uint32_t bits[each / 4][4];
  common.noise.of_neighbours(element + lane * each, reinterpret_cast<std::uint32_t(&)[each]>(bits));
  if constexpr (codes) {
    scales.m = FirstMoment::Of::scale(float_of(__reduce_max_sync(~0u, largest.m)));
    scales.v = SecondMoment::Of::scale(float_of(__reduce_max_sync(~0u, largest.v)));
    encode(reinterpret_cast<const float4(&)[each / 4]>(m), reinterpret_cast<const float4(&)[each / 4]>(v), bits, scales.m, scales.v,
           reinterpret_cast<std::uint32_t(&)[each / 4]>(m_stored), reinterpret_cast<std::uint32_t(&)[each / 4]>(v_stored));
  } else {
    const bool numbers = max(largest.m, largest.v) <= bits_of(INFINITY);
#pragma unroll
    for (int i = 0; i < each / 4; ++i) {
      const auto halves_of = [&](const float4& x, auto&& of) {
        return numbers ? halves_of_numbers(x, bits[i], of) : halves_of_any(x, bits[i], of);
      };
      reinterpret_cast<uint2*>(&m_stored)[i] = halves_of(four_of(m, 4 * i), Noise::first);
      reinterpret_cast<uint2*>(&v_stored)[i] = halves_of(four_of(v, 4 * i), Noise::second);
    }
  }
  store_some<whole>(at.m, m_stored, many);
  store_some<whole>(at.v, v_stored, many);
}

// Scales of 8-bit moments come and go for a whole piece at once: each read when its block came, they held up a warp once a block, and the update of an H200
// took 14.7 ms in place of 11.3 (2026-11-30).
struct PieceScales {
  float m[piece_blocks], v[piece_blocks];
};

// Updates a piece, with one warp per block of moments. A warp's next block is being loaded while it updates one.
template <bool in_parts, bool codes, class T, class G, class Stored>
__device__ __forceinline__ void step_blocks(const Numbers& k, const NarrowParameter<T>& t, int parts, std::int64_t begin, int n,
                                            Ahead<T, G, Stored> (&ahead)[2], PieceScales& after) {
  constexpr int block = int(moments_block), stride = threads / 32 * block;
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const bool aligned = t.aligned;
  const auto bring = [&](int i, int turn) {
    if (aligned && i + block <= n) ahead[turn].bring(Lane<T, G, Stored>(t, begin + i));
    warp::copies_commit();
  };
  int i = warp * block, turn = 0;
  bring(i, 0);
  static_assert(piece_blocks == 32);
  const std::uint64_t number = std::uint64_t(begin) / block + lane;  // the block whose scales a lane has
  const bool there = codes && lane * block < n;
  const Scales before = there ? Scales{t.m_scale[number], t.v_scale[number]} : Scales{};
  const Common common(k, t);
#pragma unroll 1
  for (; i < n; i += stride, turn ^= 1) {
    bring(i + stride, turn ^ 1);
    warp::copies_wait<1>();
    const Lane<T, G, Stored> at(t, begin + i);
    const std::int64_t element = t.element + begin + i;
    Scales scales{};
    if constexpr (codes) scales = {__shfl_sync(~0u, before.m, i / block), __shfl_sync(~0u, before.v, i / block)};
    const auto unseen = [](const auto&) {};
    if (aligned && i + block <= n)
      step_block<true, in_parts, codes>(common, at, element, each, parts, t.apart, ahead[turn], scales, unseen);
    else
      step_block<false, in_parts, codes>(common, at, element, n - i - lane * each, parts, t.apart, ahead[turn], scales, unseen);
    if (codes && lane == 0) after.m[i / block] = scales.m, after.v[i / block] = scales.v;
  }
  if constexpr (codes) {
    __syncthreads();
    if (there && warp == 0) t.m_scale[number] = after.m[lane];
    if (there && warp == 1) t.v_scale[number] = after.v[lane];
  }
}

// adamw_step_narrow — of moments in 16 or 8 bits: one block of threads per piece of 8192 elements.
//   reads  gradient, weight, moments, scales     writes  weight, moments, scales, copy
//   numerics  the bits of the CPU     limit  bandwidth: in 8 bits 16.06 bytes an element, 18.06 with a 16-bit copy, 14.06 in halves, of FP32 gradients
template <class T, bool in_parts, bool codes>
__global__ void __launch_bounds__(threads, 4) adamw_step_narrow(const __grid_constant__ NarrowArgs<T> a) {
  using Stored = std::conditional_t<codes, std::uint8_t, bf16>;
  __shared__ Ahead<T, float, Stored> wide[threads / 32][2];
  __shared__ PieceScales after;
  const Numbers k = *a.numbers;
  if (k.go == 0) return;
  const NarrowParameter<T>& t = a.table.of(blockIdx.x);
  constexpr int piece = decltype(a.table)::piece;
  const std::int64_t begin = std::int64_t(blockIdx.x - t.first) * piece;
  const int n = int(min(std::int64_t(piece), t.count - begin));
  auto& ahead = wide[threadIdx.x / 32];
  t.narrow ? step_blocks<in_parts, codes>(k, t, a.parts, begin, n, reinterpret_cast<Ahead<T, T, Stored>(&)[2]>(ahead), after)
           : step_blocks<in_parts, codes>(k, t, a.parts, begin, n, ahead, after);
}

}  // namespace headroom::adamw
