#include "ops/place.h"

namespace headroom {

namespace {
bool is_gpu(const Device& d) { return d.kind == DeviceKind::cuda; }
}  // namespace

Place::Place(const Device& device, std::size_t bytes, int threads, Ledger* ledger)
    : device_(device),
      stream_(is_gpu(device) ? std::optional<Stream>(std::in_place, device.index) : std::nullopt),
      buffer_(is_gpu(device) ? std::optional<Buffer>(std::in_place, bytes) : std::nullopt),
      block_(is_gpu(device) ? std::nullopt : std::optional<Block>(std::in_place, bytes)),
      threads_(is_gpu(device) ? nullptr : std::make_unique<Threads>(threads)),
      arena_(buffer_ ? buffer_->data() : block_->data(), bytes, ledger),
      context_{arena_, device_, threads_.get(), stream_ ? stream_->raw() : nullptr} {}

void Place::wait() const {
  if (stream_) stream_->wait();
}

}  // namespace headroom
