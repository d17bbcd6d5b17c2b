#include "engine/exchange/card_collectives.h"

#include <algorithm>
#include <cstring>

#include "base/divide.h"
#include "base/error.h"
#include "gpu/beside.h"
#include "gpu/peer.h"
#include "ops/rank_sum/rank_sum.h"

namespace headroom {

using dist::CardLane;
using Piece = CardLane::Piece;

namespace {

constexpr std::int64_t grain = 256;             // elements: pieces begin at whole lines of memory, if the tensor does
constexpr std::size_t shared_from = 4 << 20;    // bytes: from here on the lanes share a call, and one's sums run beside the other's copies
constexpr std::size_t whole_until = 256 << 10;  // bytes: until here a rank adds all elements itself, which needs one meeting, not two

char* at_byte(const void* data, std::int64_t element, DType type) {
  return static_cast<char*>(const_cast<void*>(data)) + std::size_t(element) * size_of(type);
}

}  // namespace

CardCollectives::CardCollectives(std::unique_ptr<dist::Cards> cards, int device) : cards_(std::move(cards)) {
  if (!cards_->on_gpu()) return;
  for (int i = 0; i < cards_->lanes(); ++i) streams_.push_back(std::make_unique<UrgentStream>(device));
  for (std::int64_t i = 0; i < 1 + kept; ++i) begins_.emplace_back();
  for (std::int64_t i = 0; i < (1 + kept) * cards_->lanes(); ++i) ends_.emplace_back();
}

// body(first element, elements, lane, stream), at most `most` elements at once. The lanes take turns, in one order on all ranks.
template <class Body>
void CardCollectives::in_pieces(std::int64_t count, DType type, std::int64_t most, Queue queue, Body&& body) {
  if (count == 0) return;
  void* const stream = queue.stream;
  const bool later = queue.ticket != 0;
  const int lanes = cards_->lanes();
  std::int64_t pieces = ceil_div(count, most);
  if (std::size_t(count) * size_of(type) >= shared_from) pieces = std::max<std::int64_t>(pieces, lanes);
  const std::int64_t each = std::min(most, ceil_div(ceil_div(count, pieces), grain) * grain);
  const bool several = each < count && lanes > 1;
  const bool aside = cards_->on_gpu() && (several || later || !stream);  // the default stream would hold up others
  const auto stream_of = [&](int lane) { return aside ? streams_[std::size_t(lane)]->raw() : stream; };
  const int first = next_lane_;
  const auto in_use = [&](int lane) { return aside && (several || lane == first); };
  if (aside && !later) begin_of(0).record(stream);
  for (int i = 0; i < lanes; ++i)
    if (in_use(i)) begin_of(queue.ticket).hold_up(stream_of(i));
  for (std::int64_t at = 0; at < count; at += each) {
    const int i = next_lane_;
    next_lane_ = (next_lane_ + 1) % lanes;
    CardLane& lane = cards_->lane(i);
    lane.begin(stream_of(i));
    body(at, std::min(each, count - at), lane, stream_of(i));
    lane.end(stream_of(i));
  }
  for (int i = 0; i < lanes; ++i) {
    if (!in_use(i)) continue;
    end_of(queue.ticket, i).record(stream_of(i));
    if (!later) end_of(0, i).hold_up(stream);
  }
}

void CardCollectives::begin(std::int64_t ticket, void* stream) const {
  if (cards_->on_gpu()) begin_of(ticket).record(stream);
}

void CardCollectives::wait(std::int64_t ticket, void* stream) const {
  for (int i = 0; cards_->on_gpu() && i < cards_->lanes(); ++i) end_of(ticket, i).hold_up(stream);
}

bool CardCollectives::done(std::int64_t ticket) const {
  bool all = true;
  for (int i = 0; cards_->on_gpu() && i < cards_->lanes(); ++i) all = all && end_of(ticket, i).passed();
  return all;
}

void CardCollectives::add(const char* own, CardLane& lane, std::int64_t count, DType type, int divisor, char* to, char* also,
                          void* stream) const {
  const rank_sum::Parts parts{.own = own,
                              .rank = cards_->rank(),
                              .ranks = cards_->ranks(),
                              .others = lane.slots(),
                              .apart = std::int64_t(lane.apart() / size_of(type)),
                              .count = count,
                              .type = type};
  const rank_sum::Sum sum{.to = to, .also = also, .divisor = divisor};
  cards_->on_gpu() ? beside::call<rank_sum::add_on_gpu>(parts, sum, stream) : rank_sum::add_on_cpu(parts, sum);
}

void CardCollectives::copy(char* to, const char* from, std::size_t bytes, void* stream) const {
  if (bytes == 0 || to == from) return;
  cards_->on_gpu() ? copy_by_engine(to, from, bytes, stream) : void(std::memmove(to, from, bytes));
}

void CardCollectives::broadcast(void* data, std::int64_t count, DType type, int root, Queue queue) {
  const auto most = std::int64_t(cards_->piece_bytes() / size_of(type));
  in_pieces(count, type, most, queue, [&](std::int64_t at, std::int64_t now, CardLane& lane, void* s) {
    lane.spread({at_byte(data, at, type), std::size_t(now) * size_of(type)}, root, s);
  });
}

void CardCollectives::all_gather(const void* part, void* whole, std::int64_t count, DType type, Queue queue) {
  const auto most = std::int64_t(cards_->piece_bytes() / size_of(type));
  in_pieces(count, type, most, queue, [&](std::int64_t at, std::int64_t now, CardLane& lane, void* s) {
    const std::size_t bytes = std::size_t(now) * size_of(type);
    char* const own = at_byte(part, at, type);
    copy(at_byte(whole, cards_->rank() * count + at, type), own, bytes, s);
    lane.give(
        {own, bytes},
        [&](int from) {
          return Piece{at_byte(whole, from * count + at, type), bytes};
        },
        s);
  });
}

void CardCollectives::exchange(const void* mine, void* theirs, std::int64_t count, DType type, Queue queue) {
  const auto most = std::int64_t(cards_->piece_bytes() / size_of(type));
  in_pieces(count, type, most, queue, [&](std::int64_t at, std::int64_t now, CardLane& lane, void* s) {
    const std::size_t bytes = std::size_t(now) * size_of(type);
    lane.send([&](int to) { return Piece{at_byte(mine, to * count + at, type), bytes}; }, s);
    for (int i = 0; i < cards_->ranks(); ++i) {
      const bool own = i == cards_->rank();
      copy(at_byte(theirs, i * count + at, type), own ? at_byte(mine, i * count + at, type) : lane.slots() + std::size_t(i) * lane.apart(),
           bytes, s);
    }
  });
}

void CardCollectives::reduce_scatter(const void* whole, void* part, std::int64_t count, DType type, int divisor, Queue queue) {
  const auto most = std::int64_t(cards_->piece_bytes() / size_of(type));
  in_pieces(count, type, most, queue, [&](std::int64_t at, std::int64_t now, CardLane& lane, void* s) {
    const std::size_t bytes = std::size_t(now) * size_of(type);
    lane.send([&](int to) { return Piece{at_byte(whole, to * count + at, type), bytes}; }, s);
    add(at_byte(whole, cards_->rank() * count + at, type), lane, now, type, divisor, at_byte(part, at, type), nullptr, s);
  });
}

void CardCollectives::all_reduce(void* data, std::int64_t count, DType type, int divisor, Queue queue) {
  const std::size_t size = size_of(type);
  const std::int64_t ranks = cards_->ranks(), most = std::int64_t(cards_->piece_bytes() / size);
  if (ranks <= 2 || std::size_t(count) * size <= whole_until) {  // with two ranks each sends as much either way
    in_pieces(count, type, most, queue, [&](std::int64_t at, std::int64_t now, CardLane& lane, void* s) {
      char* const own = at_byte(data, at, type);
      lane.send([&](int) { return Piece{own, std::size_t(now) * size}; }, s);
      add(own, lane, now, type, divisor, own, nullptr, s);
    });
    return;
  }
  in_pieces(count, type, most * ranks, queue, [&](std::int64_t at, std::int64_t now, CardLane& lane, void* s) {
    const std::int64_t part = std::min(most, ceil_div(ceil_div(now, ranks), grain) * grain);  // a rank's part; the last ones may be shorter
    const auto piece_of = [&](int rank) {
      const std::int64_t begin = std::min(now, rank * part), end = std::min(now, begin + part);
      return Piece{at_byte(data, at + begin, type), std::size_t(end - begin) * size};
    };
    lane.send(piece_of, s);
    const Piece own = piece_of(cards_->rank());
    char* const shelf = lane.shelf();
    add(own.at, lane, std::int64_t(own.bytes / size), type, divisor, own.at, shelf, s);
    lane.give(Piece{shelf ? shelf : own.at, own.bytes}, piece_of, s);
  });
}

}  // namespace headroom
