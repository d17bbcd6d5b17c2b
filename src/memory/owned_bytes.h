// Bytes that are taken once and given back by the destructor. The two functions decide where: memory/block.h (host), gpu/buffer.h (card).
#pragma once
#include <cstddef>
#include <utility>

namespace headroom {

template <void* (*take)(std::size_t bytes), void (*give_back)(void*, std::size_t bytes)>
class OwnedBytes {
 public:
  explicit OwnedBytes(std::size_t bytes) : data_(bytes ? take(bytes) : nullptr), bytes_(bytes) {}
  ~OwnedBytes() {
    if (data_) give_back(data_, bytes_);
  }
  OwnedBytes(OwnedBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  OwnedBytes& operator=(OwnedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // For owners in C: adopt() takes back what release() gave away.
  void* release() { return std::exchange(data_, nullptr); }
  static OwnedBytes adopt(void* data, std::size_t bytes) {
    OwnedBytes owner(0);
    owner.data_ = data;
    owner.bytes_ = bytes;
    return owner;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace headroom
