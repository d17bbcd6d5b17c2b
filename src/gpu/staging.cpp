#include "gpu/staging.h"

namespace headroom {

Staging::Staging(std::size_t slot_bytes, int slots)
    : slot_bytes_(slot_bytes), memory_(slot_bytes * std::size_t(slots)), copied_(static_cast<std::size_t>(slots)) {}

void* Staging::next() {
  at_ = (at_ + 1) % copied_.size();
  copied_[at_].wait();
  return slot();
}

void Staging::send(void* to, std::size_t offset, std::size_t bytes, void* stream) { copy_across(to, slot() + offset, bytes, stream); }

void Staging::sent(void* stream) { copied_[at_].record(stream); }

}  // namespace headroom
