// A block's walk over rows of matrices that lie alike, the next rows under way from memory to shared memory while one is at work. A thread
// copies the pieces of `vec` elements that begin at vec · (its number + a multiple of the block's threads), and reads only these: no barrier.
//
// Order of calls: while more(): arrive(), any number of read(), next(). depth: rows ahead; 0: nothing is copied, read() reads memory.
#pragma once
#include "gpu/mma_sm80.cuh"
#include "gpu/vec.cuh"

namespace headroom {

struct RowRange {
  std::int64_t first, step, end;
};

template <class T, int vec, int tensors, int depth>
class RowsAhead {
 public:
  static_assert(depth == 0 || sizeof(T) * vec == 16 || sizeof(T) * vec == 4);
  static constexpr std::size_t shared_bytes(std::int64_t width) { return std::size_t(depth) * tensors * std::size_t(width) * sizeof(T); }

  // A matrix that is null is not read. stride: elements from row to row, of which `width` are read.
  __device__ RowsAhead(void* shared, const T* const (&from)[tensors], int width, std::int64_t stride, const RowRange& range)
      : shared_(static_cast<T*>(shared)), stride_(stride), row_(range.first), step_(range.step), end_(range.end), width_(width) {
#pragma unroll
    for (int t = 0; t < tensors; ++t) from_[t] = from[t];
#pragma unroll
    for (slot_ = 0; slot_ < depth; ++slot_) fetch(row_ + slot_ * step_);
    slot_ = 0;
  }
  __device__ bool more() const { return row_ < end_; }
  __device__ std::int64_t row() const { return row_; }
  __device__ void arrive() const {
    if constexpr (depth > 0) warp::copies_wait<depth - 1>();
  }
  __device__ Pack<T, vec> read(int tensor, int i) const {  // i: where one of the thread's pieces begins
    if constexpr (depth > 0) return load<vec>(place(tensor) + i);
    return load<vec>(from_[tensor] + row_ * stride_ + i);
  }
  __device__ void next() {
    if constexpr (depth > 0) {
      __syncwarp();  // what was read is read before its place is written
      fetch(row_ + depth * step_);
      slot_ = slot_ + 1 < depth ? slot_ + 1 : 0;
    }
    row_ += step_;
  }

 private:
  __device__ T* place(int tensor) const { return shared_ + (slot_ * tensors + tensor) * width_; }
  __device__ void fetch(std::int64_t row) const {
    if (row < end_) {
#pragma unroll
      for (int t = 0; t < tensors; ++t)
        if (from_[t])
          for (int i = int(threadIdx.x) * vec; i < width_; i += int(blockDim.x) * vec) {
            if constexpr (sizeof(T) * vec == 16)
              warp::copy_16(place(t) + i, from_[t] + row * stride_ + i, true);
            else
              warp::copy_4(place(t) + i, from_[t] + row * stride_ + i);
          }
    }
    warp::copies_commit();
  }

  T* shared_;
  const T* from_[tensors];
  std::int64_t stride_, row_, step_, end_;
  int width_, slot_ = 0;
};

}  // namespace headroom
