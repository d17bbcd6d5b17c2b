// A block of device memory. An arena on a GPU uses one.
#pragma once
#include "gpu/stream.h"
#include "memory/owned_bytes.h"

namespace headroom {

void* card_bytes(std::size_t bytes);  // on the current device; throws Error (out_of_memory)
void give_back_card_bytes(void* data, std::size_t bytes);

using Buffer = OwnedBytes<card_bytes, give_back_card_bytes>;

// Both may return before the copy is done; stream.wait() waits for it.
void copy_to_device(void* to, const void* from, std::size_t bytes, const Stream&);
void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream&);
void copy_rows_to_host(void* to, const void* from, std::size_t row_bytes, std::size_t rows, std::size_t every, const Stream&);  // packed
void copy_on_device(void* to, const void* from, std::size_t bytes, const Stream&);  // multiples of 16; by a kernel, at the memory's rate
void set_bytes(void* at, int byte, std::size_t bytes, void* stream);                // a cudaStream_t
inline void fill_bytes(void* at, int byte, std::size_t bytes, const Stream& s) { set_bytes(at, byte, bytes, s.raw()); }
// Each of `rows` rows of row_bytes, one every `every` bytes.
void set_rows(void* at, std::size_t every, int byte, std::size_t row_bytes, std::size_t rows, void* stream);

struct DeviceMemory {
  std::size_t free_bytes, total_bytes;
};
DeviceMemory device_memory();  // the current CUDA device's

}  // namespace headroom
