// How adamw_step_tiles holds moments: as words from the beginning, as of bytes the compiler would make words again.
#pragma once
#include "ops/adamw/step_narrow.cuh"

namespace headroom::adamw {

template <class Stored>
struct Words : Pack<std::uint32_t, int(sizeof(Pack<Stored, each>)) / 4> {};

__device__ __forceinline__ std::uint32_t& word_of(Words<std::uint8_t>& codes, int e) { return codes.at[e / 4]; }
__device__ __forceinline__ Pack<float, each> widened(const Words<bf16>& halves) {
  Pack<float, each> x;
#pragma unroll
  for (int e = 0; e < each; e += 4) four_of(x, e) = four_of_halves({halves.at[e / 2], halves.at[e / 2 + 1]});
  return x;
}

// The largest and the least of a lane's moments, as bits that order as magnitudes do, with NaN above all. Scales follow from the largest, and whether root
// and quotient give the language's bits (Usual): a step and its divisor grow with the moments.
class Magnitudes {
 public:
  __device__ __forceinline__ explicit Magnitudes(const Numbers& k) : k_(k) {}
  __device__ __forceinline__ void add(float m, float v, float, float) {
    const std::uint32_t m_bits = __funnelshift_l(bits_of(m), bits_of(m), 1), v_bits = bits_of(v) & 0x7fffffff;  // m's sign last
    m_least_ = min(m_least_, m_bits - 1), m_most_ = max(m_most_, m_bits);                                       // less one, +0 is above all
    v_least_ = min(v_least_, v_bits - 1), v_most_ = max(v_most_, v_bits);
  }
  __device__ __forceinline__ bool all() {
    const float least = k_.step * float_of((m_least_ + 1) >> 1), b = divisor(k_, root(float_of(v_most_)));
    usual_ = v_least_ >= bits_of(0x1p-101f) - 1 && (m_most_ == 0 ? k_.step >= 0 : least >= 0x1p-96f) &&
             k_.step * float_of(m_most()) <= 0x1p60f && k_.eps >= 0x1p-30f && b <= 0x1p30f;
    return usual_;
  }
  __device__ __forceinline__ bool usual() const { return usual_; }  // what all() said
  __device__ __forceinline__ std::uint32_t m_most() const { return m_most_ >> 1; }
  __device__ __forceinline__ std::uint32_t v_most() const { return v_most_; }

 private:
  const Numbers& k_;
  std::uint32_t m_least_ = ~0u, m_most_ = 0, v_least_ = ~0u, v_most_ = 0;
  bool usual_ = false;
};

// On: what the kernel does beside an update, with seen(copy) and noise(numbers, parameter, element).
template <class On>
struct TileWay {
  template <class Stored>
  using Moments = Words<Stored>;
  using Magnitudes = adamw::Magnitudes;
  On& on;

  static __device__ __forceinline__ void round(Words<bf16>& m_to, Words<bf16>& v_to, int e, Pack<float, each>& m, Pack<float, each>& v,
                                               const std::uint32_t (&bits)[4], const Magnitudes& sizes) {
    const auto halves_of = [&](const float4& x, auto&& of) {
      return sizes.usual() ? halves_of_numbers(x, bits, of) : halves_of_any(x, bits, of);
    };
    const uint2 m_two = halves_of(four_of(m, e), Noise::first), v_two = halves_of(four_of(v, e), Noise::second);
    m_to.at[e / 2] = m_two.x, m_to.at[e / 2 + 1] = m_two.y;
    v_to.at[e / 2] = v_two.x, v_to.at[e / 2 + 1] = v_two.y;
  }
  static __device__ __forceinline__ std::uint64_t block_of(std::int64_t begin) { return std::uint64_t(begin) / moments_block; }
  __device__ __forceinline__ const Noise& noise(const Numbers& k, std::uint32_t parameter, std::int64_t element) const {
    return on.noise(k, parameter, element);
  }
  __device__ __forceinline__ const Pack<bf16, each>& seen(const Pack<bf16, each>& copy) const {
    on.seen(copy);
    return copy;
  }
};

}  // namespace headroom::adamw
