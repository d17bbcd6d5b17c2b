#include "pytorch/allocator.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace headroom::pytorch {

namespace {
constexpr std::uint64_t mib = 1 << 20;
std::uint64_t segment_bytes(std::uint64_t size) {
  if (size <= mib) return 2 * mib;
  if (size < 10 * mib) return 20 * mib;
  return round_up(size, 2 * mib);
}
}  // namespace

Segments::CachedBlock Segments::take(std::uint64_t size) {
  const bool small = size <= mib;
  auto& pool = small ? free_small_ : free_large_;
  auto found = pool.lower_bound({size, 0});
  if (found == pool.end()) {
    const std::uint64_t bytes = segment_bytes(size);
    places_[next_segment_] = {bytes, next_segment_, true, small};
    found = pool.insert({bytes, next_segment_}).first;
    next_segment_ += bytes;
    reserved_ += bytes;
  }
  const std::uint64_t at = found->second;
  pool.erase(found);
  PieceOfSegment& place = places_.at(at);
  place.free = false;
  const std::uint64_t left = place.size - size;
  if (small ? left >= rounding : left > mib) {
    places_[at + size] = {left, place.segment, true, small};
    pool.insert({left, at + size});
    place.size = size;
  }
  return {at, place.size};
}

void Segments::give(CachedBlock b) {
  auto here = places_.find(b.at);
  auto& pool = here->second.small ? free_small_ : free_large_;
  here->second.free = true;
  const auto swallow = [&](std::map<std::uint64_t, PieceOfSegment>::iterator left,
                           std::map<std::uint64_t, PieceOfSegment>::iterator right) {
    for (const auto& i : {left, right}) pool.erase({i->second.size, i->first});
    left->second.size += right->second.size;
    places_.erase(right);
    return left;
  };
  if (const auto after = std::next(here); after != places_.end() && after->second.free && after->second.segment == here->second.segment)
    here = swallow(here, after);
  if (here != places_.begin())
    if (const auto before = std::prev(here); before->second.free && before->second.segment == here->second.segment)
      here = swallow(before, here);
  pool.insert({here->second.size, here->first});
}

Storage::~Storage() {
  if (!empty_) of_.give(piece_);
}
void Storage::resize_to_nothing() {
  if (!std::exchange(empty_, true)) of_.give(piece_);
}
void Storage::refill() {
  if (!std::exchange(empty_, false)) return;
  Piece again = of_.pieces_[piece_];
  again.live = true;
  again.taken = rounded(again.bytes);
  piece_ = of_.enter_piece(std::move(again));
}

std::uint64_t Allocator::reserved() const {
  std::uint64_t all = 0;
  for (const auto& [stream, segments] : segments_) all += segments.reserved();
  return all;
}

std::uint32_t Allocator::enter_piece(Piece piece) {
  const auto index = std::uint32_t(pieces_.size());
  piece.stream = stream_;
  if (count_ == Count::blocks && piece.taken > 0) {
    const auto block = segments_[stream_].take(piece.taken);
    piece.at = block.at;
    piece.taken = block.size;
  }
  live_ += piece.taken;
  pieces_.push_back(std::move(piece));
  events_.push_back({index, true, live_});
  peak_ = std::max(peak_, live_);
  return index;
}

std::shared_ptr<Storage> Allocator::take(Piece piece) { return std::make_shared<Storage>(*this, enter_piece(std::move(piece))); }

std::shared_ptr<Storage> Allocator::make(std::string name, DType dtype, Shape shape) {
  const std::uint64_t bytes = std::uint64_t(shape.count()) * size_of(dtype);
  return take({std::move(name), dtype, shape, bytes, rounded(bytes), phase_});
}

std::shared_ptr<Storage> Allocator::make_empty(std::string name, DType dtype, Shape shape) {
  const auto index = std::uint32_t(pieces_.size());
  pieces_.push_back({std::move(name), dtype, shape, std::uint64_t(shape.count()) * size_of(dtype), 0, phase_, false});
  auto storage = std::make_shared<Storage>(*this, index);
  storage->empty_ = true;
  return storage;
}

std::shared_ptr<Storage> Allocator::make_bytes(std::string name, std::uint64_t bytes) {
  return take({std::move(name), DType::u8, {std::int64_t(bytes)}, bytes, rounded(bytes), Phase::workspace});
}

void Allocator::give(std::uint32_t piece) {
  Piece& p = pieces_[piece];
  if (count_ == Count::blocks && p.taken > 0) segments_[p.stream].give({p.at, p.taken});
  live_ -= p.taken;
  p.live = false;
  events_.push_back({piece, false, live_});
}

std::vector<std::uint32_t> Allocator::standing() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].live) out.push_back(i);
  return out;
}

std::vector<std::uint64_t> Allocator::state() const {
  std::vector<std::uint64_t> out{live_, reserved()};
  for (const Piece& p : pieces_)
    if (p.live) out.insert(out.end(), {std::hash<std::string>{}(p.name), p.at, p.taken, std::uint64_t(p.stream)});
  return out;
}

}  // namespace headroom::pytorch
