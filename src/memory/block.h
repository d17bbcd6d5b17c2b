// A block of host memory, asked from the system once and given back by the destructor: what a wet arena stands on.
#pragma once
#include <cstddef>
#include <utility>

namespace headroom {

class Block {
 public:
  explicit Block(std::size_t bytes);  // an Error (out_of_memory) when the system refuses
  ~Block();
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace headroom
