#include "studies/pytorch_account/allocator.h"

#include <set>
#include <utility>

namespace headroom::pytorch {

Storage::~Storage() { of_.give(piece_); }

std::shared_ptr<Storage> Allocator::take(Piece piece) {
  const auto index = std::uint32_t(pieces_.size());
  live_ += piece.taken;
  pieces_.push_back(std::move(piece));
  events_.push_back({index, true, live_});
  if (live_ > peak_) peak_ = live_, peak_event_ = events_.size();
  return std::make_shared<Storage>(*this, index);
}

std::shared_ptr<Storage> Allocator::make(std::string name, DType dtype, Shape shape) {
  const std::uint64_t bytes = std::uint64_t(shape.count()) * size_of(dtype);
  return take({std::move(name), dtype, shape, bytes, rounded(bytes), phase_});
}

std::shared_ptr<Storage> Allocator::make_bytes(std::string name, std::uint64_t bytes) {
  return take({std::move(name), DType::u8, {std::int64_t(bytes)}, bytes, rounded(bytes), Phase::workspace});
}

void Allocator::give(std::uint32_t piece) {
  live_ -= pieces_[piece].taken;
  pieces_[piece].live = false;
  events_.push_back({piece, false, live_});
}

std::vector<std::uint32_t> Allocator::standing() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].live) out.push_back(i);
  return out;
}

std::vector<std::uint32_t> Allocator::at_peak() const {
  std::set<std::uint32_t> live;
  for (std::size_t e = 0; e < peak_event_; ++e) {
    if (events_[e].take) live.insert(events_[e].piece);
    else live.erase(events_[e].piece);
  }
  return {live.begin(), live.end()};
}

}  // namespace headroom::pytorch
