#include "gpu/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "gpu/check.h"

namespace headroom {

void read_from_device(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda_stream(stream)));
  cuda(cudaStreamSynchronize(cuda_stream(stream)));
}

void write_to_device(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda_stream(stream)));
  cuda(cudaStreamSynchronize(cuda_stream(stream)));
}

void copy_across(void* to, const void* from, std::size_t bytes, void* stream) {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream(stream)));
}

Pinned::Pinned(std::size_t bytes) {
  constexpr std::size_t large = 256 << 20;
  if (bytes < large || !make_pages(bytes)) take_from_driver(bytes);
}

bool Pinned::make_pages(std::size_t bytes) {
  constexpr std::size_t page = 2 << 20, small_page = 4096, piece = 64 << 20;
  mapped_bytes_ = (bytes + 2 * page - 1) / page * page;
  void* const mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  char* const at = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(mapped) + page - 1) / page * page);
  madvise(at, bytes, MADV_HUGEPAGE);
  madvise(at, bytes, MADV_DONTFORK);  // a child's copy-on-write would part us from what the card writes
  Threads().share(std::int64_t((bytes + piece - 1) / piece), [&](std::int64_t i, int) {
    const std::size_t end = std::min(bytes, std::size_t(i + 1) * piece);
    for (std::size_t o = std::size_t(i) * piece; o < end; o += small_page) static_cast<volatile char*>(at)[o] = 0;
  });
  if (cudaHostRegister(at, bytes, cudaHostRegisterPortable) != cudaSuccess) {
    cudaGetLastError();
    munmap(mapped, mapped_bytes_);
    return false;
  }
  data_ = at, mapped_ = mapped;
  return true;
}

void Pinned::take_from_driver(std::size_t bytes) {
  const cudaError_t e = cudaHostAlloc(&data_, bytes, cudaHostAllocPortable);
  if (e == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(Code::out_of_memory, fmt::format("out of memory: the driver refused to pin {} of host memory", bytes_exactly(bytes)));
  }
  cuda(e);
}
Pinned::~Pinned() {
  if (!mapped_) {
    cudaFreeHost(data_);
    return;
  }
  cudaHostUnregister(data_);
  munmap(mapped_, mapped_bytes_);
}

}  // namespace headroom
