#include "pytorch/allocator.h"

#include <algorithm>
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

std::uint32_t Segments::add(Block b) {
  if (unused_.empty()) {
    blocks_.push_back(b);
    return std::uint32_t(blocks_.size() - 1);
  }
  const std::uint32_t block = unused_.back();
  unused_.pop_back();
  blocks_[block] = b;
  return block;
}

void Segments::enter_pool(std::uint32_t block) {
  Pool& pool = pool_of(blocks_[block]);
  pool.insert(std::ranges::lower_bound(pool, as_free(block)), as_free(block));
}

void Segments::leave_pool(std::uint32_t block) {
  Pool& pool = pool_of(blocks_[block]);
  pool.erase(std::ranges::lower_bound(pool, as_free(block)));
}

Segments::Lent Segments::take(std::uint64_t size) {
  const bool small = size <= mib;
  Pool& pool = small ? free_small_ : free_large_;
  std::uint32_t taken;
  if (const auto found = std::ranges::lower_bound(pool, FreeBlock{size, 0, 0}); found != pool.end()) {
    taken = found->block;
    pool.erase(found);
  } else {
    const std::uint64_t bytes = segment_bytes(size);
    taken = add({.at = next_segment_, .size = bytes, .small = small});
    next_segment_ += bytes;
    reserved_ += bytes;
  }
  const std::uint64_t left = blocks_[taken].size - size;
  blocks_[taken].free = false;
  if (small ? left >= rounding : left > mib) {
    const Block b = blocks_[taken];
    const std::uint32_t rest = add({.at = b.at + size, .size = left, .before = taken, .after = b.after, .small = small});
    if (b.after != none) blocks_[b.after].before = rest;
    blocks_[taken].after = rest;
    blocks_[taken].size = size;
    enter_pool(rest);
  }
  return {blocks_[taken].at, blocks_[taken].size, taken};
}

std::uint32_t Segments::joined(std::uint32_t left, std::uint32_t right) {
  const Block b = blocks_[right];
  blocks_[left].size += b.size;
  blocks_[left].after = b.after;
  if (b.after != none) blocks_[b.after].before = left;
  unused_.push_back(right);
  return left;
}

void Segments::give(std::uint32_t block) {
  blocks_[block].free = true;
  if (const auto after = blocks_[block].after; after != none && blocks_[after].free) {
    leave_pool(after);
    block = joined(block, after);
  }
  if (const auto before = blocks_[block].before; before != none && blocks_[before].free) {
    leave_pool(before);
    block = joined(before, block);
  }
  enter_pool(block);
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
    const auto lent = segments_[stream_].take(piece.taken);
    piece.at = lent.at;
    piece.block = lent.block;
    piece.taken = lent.size;
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
  if (count_ == Count::blocks && p.taken > 0) segments_[p.stream].give(p.block);
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
