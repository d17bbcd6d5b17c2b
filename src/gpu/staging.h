// Copies of values between the host and a card. Read and write wait: use them between steps. Staging does not wait: use it within steps.
#pragma once
#include <cstddef>
#include <vector>

#include "gpu/event.h"

namespace headroom {

// Ordered after everything on the stream (a cudaStream_t); done when they return.
void read_from_device(void* to, const void* from, std::size_t bytes, void* stream);
void write_to_device(void* to, const void* from, std::size_t bytes, void* stream);

// Within a step, by a copy engine: between a card and pinned memory, either way. Does not wait.
void copy_across(void* to, const void* from, std::size_t bytes, void* stream);

// Host memory that copy engines reach, allocated once and freed by the destructor. The driver makes and locks page after page, a second for
// each 1.7 GB; of large memory every core makes pages first, 2 MiB at a time where the system has such, and the driver only locks them.
class Pinned {
 public:
  explicit Pinned(std::size_t bytes);  // throws Error (out_of_memory)
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  void* data() const { return data_; }

 private:
  void take_from_driver(std::size_t bytes);
  bool make_pages(std::size_t bytes);

  void* data_ = nullptr;
  void* mapped_ = nullptr;  // the memory around data_, if our pages were locked
  std::size_t mapped_bytes_ = 0;
};

// Staging — slots of pinned host memory used in turn, so that the host fills one while the card reads another.
// Order of calls: next() gives a slot, waiting only if its last copies are not done; fill it; send() any parts of it; sent().
class Staging {
 public:
  Staging(std::size_t slot_bytes, int slots);
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  void* next();
  void send(void* to, std::size_t offset, std::size_t bytes, void* stream);  // from `offset` in the slot
  void sent(void* stream);

 private:
  char* slot() const { return static_cast<char*>(memory_.data()) + at_ * slot_bytes_; }

  std::size_t slot_bytes_;
  Pinned memory_;
  std::vector<Event> copied_;  // one for each slot
  std::size_t at_ = 0;
};

}  // namespace headroom
