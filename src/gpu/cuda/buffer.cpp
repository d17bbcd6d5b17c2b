#include "gpu/buffer.h"

#include "base/error.h"
#include "base/text.h"
#include "gpu/check.h"

namespace headroom {

void* card_bytes(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t e = cudaMalloc(&data, bytes);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const DeviceMemory m = device_memory();
    throw Error(Code::out_of_memory, fmt::format("out of memory: the driver refused {}, {} of {} are free", bytes_exactly(bytes),
                                                 bytes_in_words(double(m.free_bytes)), bytes_in_words(double(m.total_bytes))));
  }
  cuda(e);
  return data;
}

void give_back_card_bytes(void* data, std::size_t) { cudaFree(data); }

void copy_to_device(void* to, const void* from, std::size_t bytes, const Stream& s) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda_stream(s.raw())));
}
void copy_to_host(void* to, const void* from, std::size_t bytes, const Stream& s) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda_stream(s.raw())));
}
void copy_rows_to_host(void* to, const void* from, std::size_t row_bytes, std::size_t rows, std::size_t every, const Stream& s) {
  if (row_bytes == every || rows == 1) return copy_to_host(to, from, row_bytes * rows, s);
  cuda(cudaMemcpy2DAsync(to, row_bytes, from, every, row_bytes, rows, cudaMemcpyDeviceToHost, cuda_stream(s.raw())));
}
void set_bytes(void* at, int byte, std::size_t bytes, void* stream) { cuda(cudaMemsetAsync(at, byte, bytes, cuda_stream(stream))); }
void set_rows(void* at, std::size_t every, int byte, std::size_t row_bytes, std::size_t rows, void* stream) {
  cuda(cudaMemset2DAsync(at, every, byte, row_bytes, rows, cuda_stream(stream)));
}

DeviceMemory device_memory() {
  DeviceMemory m;
  cuda(cudaMemGetInfo(&m.free_bytes, &m.total_bytes));
  return m;
}

}  // namespace headroom
