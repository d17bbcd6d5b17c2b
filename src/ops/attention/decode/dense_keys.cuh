// What blocks that read a dense cache share (dense.cuh, heads.cuh): no pages, lists or caps, and every row sees the same first key.
#pragma once
#include "ops/attention/decode/keys.cuh"

namespace headroom::attention::decode {

template <class T, class S, bool boxes>
struct DenseKeys : KeysBlock<T, S, boxes> {
  using Base = Block<T, S>;
  using KeysBlock<T, S, boxes>::KeysBlock;
  using typename KeysBlock<T, S, boxes>::State;
  using Base::a, Base::dim, Base::lane;

  __device__ __forceinline__ void start_rows(State& s, int batch, int unit) const {
    const typename Base::Row row = Base::row_of(Place{batch, unit, 0, {}}, lane / 4);
    const T* const from = static_cast<const T*>(a.q.data) + batch * a.q.batch + row.position * a.q.row + row.head * a.q.head;
#pragma unroll
    for (int k = 0; k < dim / 8; ++k)
      s.q[k / 2][k % 2] = row.exists ? *reinterpret_cast<const std::uint32_t*>(from + 8 * k + lane % 4 * 2) : 0;
#pragma unroll
    for (float& x : s.o) x = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) s.maximum[r] = -INFINITY, s.sum[r] = s.offset[r] = 0;
  }
  struct Unseen {
    int mine[2], most;  // how many of the last keys this lane's two rows do not see, and the most of any row
  };
  __device__ __forceinline__ Unseen unseen_of(const Sequence& keys) const {
    Unseen unseen{};
#pragma unroll
    for (int r = 0; r < 2; ++r) unseen.mine[r] = keys.last - a.band.last(Base::row_of(Place{}, lane % 4 * 2 + r).position);
    if (a.band.len_q > 1) unseen.most = keys.last - a.band.last(0);
    return unseen;
  }
  __device__ __forceinline__ void limit(float (&x)[4], int valid, const Unseen& unseen) const {
    if (valid - unseen.most >= 16) return;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (lane / 4 + i / 2 * 8 >= valid - unseen.mine[i % 2]) x[i] = -INFINITY;
  }
};

}  // namespace headroom::attention::decode
