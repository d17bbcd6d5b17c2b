// Place — what a wet context stands on: one block of a device's memory, and the device's threads or its stream.
#pragma once
#include <memory>
#include <optional>

#include "gpu/buffer.h"
#include "memory/block.h"
#include "ops/op.h"

namespace headroom {

class Place {
 public:
  // threads: the CPU's; a GPU has none.
  Place(const Device&, std::size_t bytes, int threads, Ledger* = nullptr);
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  Arena& arena() { return arena_; }
  Context& context() { return context_; }
  void wait() const;  // until everything launched is done; an Error if any of it failed

 private:
  Device device_;
  std::optional<Stream> stream_;
  std::optional<Buffer> buffer_;
  std::optional<Block> block_;
  std::unique_ptr<Threads> threads_;
  Arena arena_;
  Context context_;
};

}  // namespace headroom
