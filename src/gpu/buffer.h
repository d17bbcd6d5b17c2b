// A block of device memory, allocated once and freed by the destructor. An arena on a GPU uses one.
#pragma once
#include <cstddef>
#include <utility>

#include "gpu/stream.h"

namespace headroom {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes);  // on the current device; throws Error (out_of_memory)
  ~Buffer();
  Buffer(Buffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // For owners that speak C: what release() gave away, adopt() takes back.
  void* release() { return std::exchange(data_, nullptr); }
  static Buffer adopt(void* data, std::size_t bytes) {
    Buffer owner(0);
    owner.data_ = data;
    owner.bytes_ = bytes;
    return owner;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Both may return before the copy is done; stream.wait() waits for it.
void copy_to_device(void* to, const void* from, std::size_t bytes, const Stream&);
void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream&);
void copy_rows_to_host(void* to, const void* from, std::size_t row_bytes, std::size_t rows, std::size_t every, const Stream&);  // packed
void copy_on_device(void* to, const void* from, std::size_t bytes, const Stream&);  // multiples of 16; by a kernel, at the memory's rate
void fill_bytes(void* at, int byte, std::size_t bytes, const Stream&);

struct DeviceMemory {
  std::size_t free_bytes, total_bytes;
};
DeviceMemory device_memory();  // of the current device

}  // namespace headroom
