// A block's walk over the rows of matrices of one layout. It prefetches the next rows into shared memory while it works on one. A thread
// copies the pieces of a row that Row::each gives it and reads only these, so no barrier is needed.
//
// Row: pieces of `vec` elements, each(width, f(which of the thread's pieces, where it begins)).
// Order of calls: while more(): arrive(), any number of read(), next(). depth: rows ahead; 0: nothing is copied, read() reads memory.
// apart: rows lie `strides` elements apart, for each matrix; else `width`.
#pragma once
#include "gpu/mma_sm80.cuh"
#include "gpu/vec.cuh"

namespace headroom {

struct RowRange {
  std::int64_t first, step, end;
};

template <class T, class Row, int tensors, int depth, bool apart = false>
class RowsAhead {
 public:
  static_assert(depth == 0 || sizeof(T) * Row::vec == 16);
  static constexpr std::size_t shared_bytes(std::int64_t width) { return std::size_t(depth) * tensors * std::size_t(width) * sizeof(T); }

  // A null matrix is not read; with rows ahead, its elements are zeros. The first matrix must not be null.
  __device__ RowsAhead(const void* shared, const T* const (&from)[tensors], int width, const RowRange& range,
                       const std::int64_t* strides = nullptr)
      : row_(range.first), step_(range.step), left_(range.end - range.first), width_(width) {
    asm volatile("mov.b32 %0, %1;" : "=r"(shared_) : "r"(warp::shared_address(shared)));
#pragma unroll
    for (int t = 0; t < tensors; ++t) {
      wanted_[t] = from[t];
      if constexpr (apart) strides_[t] = strides[from[t] ? t : 0];
      from_[t] = (from[t] ? from[t] : from[0]) + row_ * stride(t);
    }
#pragma unroll
    for (int d = 0; d < depth; ++d) fetch(d);
  }
  __device__ bool more() const { return left_ > 0; }
  __device__ std::int64_t row() const { return row_; }
  __device__ void arrive() const {
    if constexpr (depth > 0) warp::copies_wait<depth - 1>();
  }
  __device__ Pack<T, Row::vec> read(int tensor, int i) const {  // i: where one of the thread's pieces begins
    if constexpr (depth > 0)
      return arrived(place(tensor, i));
    else
      return load<Row::vec>(from_[tensor] + i);
  }
  __device__ void next() {
    if constexpr (depth > 0) {
      __syncwarp();  // every lane has read the slot before it is overwritten
      fetch(depth);
    } else {
      advance();
    }
    row_ += step_;
    left_ -= step_;
  }

 private:
  // Shared memory by its 32-bit address in one register: with pointers the compiler recomputes the address at every use.
  __device__ static void copy(std::uint32_t to, const void* from, bool wanted) {  // 16 bytes; zeros if not wanted
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(wanted ? 16 : 0) : "memory");
  }
  __device__ static Pack<T, Row::vec> arrived(std::uint32_t from) {
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(from) : "memory");
    return reinterpret_cast<const Pack<T, Row::vec>&>(x);
  }
  __device__ std::int64_t stride(int tensor) const {
    if constexpr (apart)
      return strides_[tensor];
    else
      return width_;
  }
  __device__ std::uint32_t place(int tensor, int i) const { return shared_ + slot_ + (tensor * width_ + i) * int(sizeof(T)); }
  __device__ void advance() {
#pragma unroll
    for (int t = 0; t < tensors; ++t) from_[t] += step_ * stride(t);
  }
  __device__ void fetch(int ahead) {  // the row `ahead` rows from here, at from_
    if (left_ > ahead * step_) {
#pragma unroll
      for (int t = 0; t < tensors; ++t) Row::each(width_, [&](int, int i) { copy(place(t, i), from_[t] + i, wanted_[t]); });
      advance();
    }
    warp::copies_commit();
    const int row_bytes = tensors * width_ * int(sizeof(T));
    slot_ = slot_ + row_bytes < depth * row_bytes ? slot_ + row_bytes : 0;
  }

  std::uint32_t shared_;
  const T* from_[tensors];  // depth 0: of this row; else of the next to fetch
  bool wanted_[tensors];
  std::int64_t row_, step_, left_;
  std::int64_t strides_[apart ? tensors : 1];
  int width_, slot_ = 0;  // byte offset of this row's pieces
};

}  // namespace headroom
