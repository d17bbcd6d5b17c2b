// tiles.h — every tuned number of the Hopper attention kernels, with its reason.
#pragma once

namespace headroom::attention {

// Forward. A block is one warpgroup that fetches and `consumers` that compute, 64 query rows each; it walks tiles of
// `keys` keys. `stages` tiles of K and of V and `q_stages` of Q are in flight. Shared memory: 227 KB.
// The registers of all warpgroups may not exceed 65536 / threads · threads (a greedy setmaxnreg waits for ever).
template <class Type>
struct Forward64 {  // three groups hide each other's softmax; two are 7–19 % slower
  using T = Type;
  static constexpr int dim = 64, consumers = 3, keys = 128, stages = 2, q_stages = 2;
  static constexpr int producer_registers = 32, consumer_registers = 160;
  static constexpr bool maxima_first = true;  // both rows' maxima, then all exponentials: 3 % here, −5 % at 128
  static constexpr bool split = false;        // whether the keys of a row may be dealt to several blocks
};
template <class Type>
struct Forward64Short : Forward64<Type> {  // len ≤ 1k: 256 rows divide 512 and 1024, and more tiles are in flight
  static constexpr int consumers = 4, keys = 64, stages = 4;
  static constexpr int producer_registers = 24, consumer_registers = 112;
};
template <class Type>
struct Forward128 : Forward64<Type> {
  static constexpr int dim = 128, consumers = 2;
  static constexpr int producer_registers = 40, consumer_registers = 232;  // at 24 the producer spills
  static constexpr bool maxima_first = false;
};
template <class Type>
struct Forward256 : Forward128<Type> {  // 64 KB of Q leave room for 80 keys; O goes from registers to global memory
  static constexpr int dim = 256, keys = 80, q_stages = 1;
};
template <class Tiles>
struct Split : Tiles {  // code of its own: the branch alone costs 2 % at 512
  static constexpr bool split = true;
};

}  // namespace headroom::attention
