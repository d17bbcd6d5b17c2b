#include "engine/pass/host_keep.h"

#include <algorithm>
#include <cstring>

#include "base/element.h"

namespace headroom::engine {

namespace {

std::size_t sum_of_places(const std::vector<std::size_t>& bytes, int rooms) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i + std::size_t(rooms) < bytes.size(); ++i) sum += bytes[i];
  return sum;
}

}  // namespace

HostKeep::HostKeep(std::vector<int> blocks, std::vector<std::size_t> kept_bytes, Context& ctx, std::unique_ptr<dist::Lane> lane,
                   double host_bytes_per_s)
    : blocks_(std::move(blocks)),
      place_(std::size_t(blocks_.back() + 1), -1),
      bytes_(std::move(kept_bytes)),
      ctx_(ctx),
      lane_(std::move(lane)),
      rate_(host_bytes_per_s),
      host_([&] {
        const std::size_t bytes = sum_of_places(bytes_, rooms);
        if (ctx.dry() || bytes == 0) return Arena();
        if (ctx.on_gpu())
          pinned_.emplace(bytes);
        else
          plain_.emplace(bytes);
        return Arena(ctx.on_gpu() ? pinned_->data() : plain_->data(), bytes);
      }()) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    place_[std::size_t(blocks_[i])] = int(i);
    if (travels(int(i))) there_.push_back(host_.make({"kept on the host", blocks_[i]}, DType::u8, {std::int64_t(bytes_[i])}));
  }
}
HostKeep::~HostKeep() = default;

void HostKeep::begin() {
  const auto most = *std::max_element(bytes_.begin(), bytes_.end());
  rooms_ = ctx_.arena.make("kept, on its way to the host", DType::u8, {rooms, std::int64_t(most)});
}

Context HostKeep::take(int block) {
  const int place = place_[std::size_t(block)];
  if (place >= rooms) lane_->wait(place % rooms, ctx_.stream);  // what was there has arrived on the host
  const Tensor room = part_of(place);
  room_.emplace(ctx_.dry() ? nullptr : room.data, room.bytes());
  return {*room_, ctx_.device, ctx_.threads, ctx_.stream, ctx_.walk, ctx_.dry_workers, ctx_.listener};
}

void HostKeep::leave(int block) {
  if (const int place = place_[std::size_t(block)]; travels(place)) copy(place, true);
}

void HostKeep::come_back(int block) {
  if (const int place = place_[std::size_t(block)]; travels(place)) lane_->wait(place % rooms, ctx_.stream);
}

void HostKeep::done(int block) {
  if (const int place = place_[std::size_t(block)]; place >= rooms) copy(place - rooms, false);
}

void HostKeep::copy(int place, bool to_host) {
  lane_->follow(ctx_.stream);
  const Tensor here = part_of(place), there = there_[std::size_t(place)];
  const double bytes = double(here.bytes());
  {
    const auto op =
        ctx_.note({to_host ? "to_host" : "from_host", blocks_[std::size_t(place)]}, {DType::f32}, {0, ctx_.on_gpu() ? bytes : 2 * bytes});
    const auto move = [&](const Tensor& from, const Tensor& to) {
      if (ctx_.dry()) return;
      if (ctx_.on_gpu()) return copy_across(to.data, from.data, from.bytes(), lane_->stream());
      constexpr std::int64_t piece = 1 << 20;
      const auto count = from.count();
      ctx_.share((count + piece - 1) / piece, [&](std::int64_t i, int) {
        std::memcpy(to.as<char>() + i * piece, from.as<char>() + i * piece, std::size_t(std::min(piece, count - i * piece)));
      });
    };
    to_host ? move(here, there) : move(there, here);
  }
  moved_bytes_ += bytes;
  if (rate_ > 0) lane_->busy_for(1e3 * bytes / rate_);
  lane_->mark(place % rooms);
}

Tensor HostKeep::part_of(int place) const {
  return {element_of(rooms_, place % rooms * rooms_.shape[1]), DType::u8, {std::int64_t(bytes_[std::size_t(place)])}};
}

}  // namespace headroom::engine
