// A block of host memory, allocated once and freed by the destructor. An arena with memory uses one.
#pragma once
#include <cstddef>
#include <utility>

namespace headroom {

class Block {
 public:
  explicit Block(std::size_t bytes);  // throws Error (out_of_memory)
  ~Block();
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // For owners that speak C: what release() gave away, adopt() takes back.
  void* release() { return std::exchange(data_, nullptr); }
  static Block adopt(void* data, std::size_t bytes) {
    Block owner(0);
    owner.data_ = data;
    owner.bytes_ = bytes;
    return owner;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace headroom
