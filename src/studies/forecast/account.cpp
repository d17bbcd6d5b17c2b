#include "studies/forecast/account.h"

#include <algorithm>

#include "studies/forecast/reading.h"

namespace headroom::studies {

const GuessedWords& words_of(Guessed guessed) {
  static constexpr GuessedWords words[]{
      {"other experts", "how many tokens go to each expert", "three", "tokens to any of them, as many to each, all to the same",
       "the choice of experts"},
      {"other masks", "which elements of a mask are true, or how many values differ", "four",
       "with half of each such mask, with nothing of it, with all of it, with nearly all of it", "how much of a mask is true"},
      {"other draws", "a size that follows from what is drawn at random", "three",
       "with other numbers each time, of which a fourth may be outside the interval", "what is drawn at random"},
      {"other paddings", "which products torch.compile pads, by their times on the card", "three",
       "as is likely, with none of them padded, with all of them", "which products are padded"},
  };
  return words[std::size_t(guessed)];
}

ReservedRange reserved_range(const dry::Needs& low, const dry::Needs& high, std::uint64_t unsure_bytes) {
  constexpr std::uint64_t segment = 2 << 20;
  const std::uint64_t more = ((high.reserved - low.reserved) / 8 + unsure_bytes + segment - 1) / segment * segment;
  return {std::max(low.reserved - std::min(low.reserved, more), low.allocated - std::min(low.allocated, unsure_bytes)),
          high.reserved + more};
}

// In another order of its threads a program needs what one of them does, or more. Together they had no more than the sum of their peaks, so the
// largest of these is a share of what they had.
std::uint64_t least_allocated(const ProgramAccount& a, std::uint64_t low) {
  return a.threads > 1 ? std::min(low, a.peak_allocated_bytes / a.threads) : low;
}

ReservedRange reserved_range(const ProgramAccount& a) {
  const dry::Needs run{a.peak_allocated_bytes, a.peak_reserved_bytes};
  ReservedRange range = reserved_range(a.spread ? a.spread->low : run, a.spread ? a.spread->high : run, a.unsure_bytes);
  range.low -= std::min(range.low, a.pool_slack_bytes);
  range.low = least_allocated(a, range.low);
  return range;
}

std::int64_t ProcessStory::unknown_values() const {
  std::int64_t n = 0;
  for (const UnknownValueRow& v : values) n += v.count;
  return n;
}

bool ProcessStory::ran_out_at_its_end() const {
  return end.empty() && std::ranges::any_of(cards, [](const ProgramAccount& a) { return a.ran_out && a.ran_out->raised; });
}

ProcessStory story_of(const dry::Process& p) {
  Reading reading(p);
  p.each(reading);
  return reading.story();
}

}  // namespace headroom::studies
