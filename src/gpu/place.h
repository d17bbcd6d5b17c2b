// Place is where work runs, the CPU or a CUDA device, as one value: memory, threads or stream, and the copies there and back. Code
// written with a Place runs on either.
//
// Order of calls: take memory, fill it or copy in, run ops with a Context of threads() and stream(), copy_out (which waits).
#pragma once
#include <optional>

#include "base/device.h"
#include "base/random.h"
#include "base/tensor.h"
#include "base/threads.h"
#include "gpu/buffer.h"
#include "gpu/stream.h"
#include "memory/block.h"

namespace headroom {

class PlaceMemory {  // memory for an arena: allocated once, freed by the destructor
 public:
  explicit PlaceMemory(Block b) : host_(std::move(b)) {}
  explicit PlaceMemory(Buffer b) : device_(std::move(b)) {}
  void* data() const { return device_ ? device_->data() : host_->data(); }
  std::size_t bytes() const { return device_ ? device_->bytes() : host_->bytes(); }

 private:
  std::optional<Block> host_;
  std::optional<Buffer> device_;
};

class Place {
 public:
  explicit Place(const Device&, int threads = 0);  // makes a CUDA device current for this thread; threads 0: every core
  bool on_gpu() const { return queue_.has_value(); }
  Threads& threads() { return threads_; }                              // threads for work on the host; a GPU's Place has them, too
  const Stream& queue() const { return *queue_; }                      // only a GPU's Place has a queue
  void* stream() const { return on_gpu() ? queue_->raw() : nullptr; }  // the stream that a Context takes

  PlaceMemory take(std::size_t bytes) const;                 // throws Error (out_of_memory)
  void fill_normal(const Tensor&, Random, float scale = 1);  // contiguous; the same numbers everywhere (gpu/fill.h)
  void copy_in(void* to, const void* from, std::size_t bytes) const;
  // Packs `rows` pieces of row_bytes, one every `every` bytes of `from`, into `to`; waits for the work queued before.
  void copy_out(void* to, const void* from, std::size_t row_bytes, std::size_t rows, std::size_t every) const;
  void copy_out(void* to, const void* from, std::size_t bytes) const { copy_out(to, from, bytes, 1, bytes); }
  void wait() const;  // waits for everything queued; an Error if any of it failed

 private:
  Threads threads_;
  std::optional<Stream> queue_;
};

}  // namespace headroom
