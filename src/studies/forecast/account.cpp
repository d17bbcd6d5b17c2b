#include "studies/forecast/account.h"

#include <algorithm>

#include "base/text.h"
#include "studies/forecast/reading.h"

namespace headroom::studies {

const GuessedWords& words_of(Guessed guessed) {
  static constexpr GuessedWords words[guesses]{
      {"other experts",
       "reads how many tokens go to each expert",
       "the choice of experts",
       {"tokens to any experts", "as many tokens to each expert", "all tokens to the same experts", nullptr}},
      {"other masks",
       "reads which elements of a mask are true",
       "how much of a mask is true",
       {"half of each such mask true", "no element of such masks true", "every element of such masks true",
        "nearly every element of such masks true"}},
      {"other draws",
       "reads a size that follows from what is drawn at random",
       "what is drawn at random",
       {"one draw", "a second draw", "a third draw", nullptr}},
      {"other paddings",
       "reads which products torch.compile pads, by their times on the card",
       "which products are padded",
       {"products padded as is likely", "no such product padded", "every such product padded", nullptr}},
      {"fewer values that differ",
       "reads how many values differ",
       "how many values differ",
       {"values that all differ", "values that are all the same", nullptr, nullptr}},
      {"numbers that fall and rise",
       "compares numbers with one another",
       "whether numbers that are compared fall or rise",
       {"the same number at each read", "each number smaller than the one before", "each number larger than the one before",
        "each number smaller than the one before"}},
      {"other numbers within their bounds",
       "reads a number of which only bounds are known",
       "where within its bounds a number is",
       {"such numbers in the middle of their bounds", "such numbers at their lower bounds", "such numbers at their upper bounds", nullptr}},
      {"longer searches",
       "searches along lines until values end that",
       "how long LBFGS searches",
       {"the shortest searches", "searches as long as its settings let them be", nullptr, nullptr}},
      {"numbers on the other side of a threshold",
       "holds numbers against a threshold",
       "on which side of a threshold a number is",
       {"0.75 for each such number", nullptr, nullptr, nullptr}},
      {"numbers that jump",
       "compares numbers with multiples of earlier ones",
       "whether numbers that are compared jump",
       {"0.75 for each such number", nullptr, nullptr, nullptr}},
      {"another order",
       "chooses by the order of numbers",
       "which of several has the least or the most",
       {"the same number for each", nullptr, nullptr, nullptr}},
  };
  return words[std::size_t(guessed)];
}

std::string words_of_run(const std::vector<Routing>& routing, std::size_t run) {
  std::vector<std::string> words;
  for (const Routing& one : routing) {
    const char* const how = words_of(one.guessed).runs[run];
    if (how && std::ranges::find(words, how) == words.end()) words.emplace_back(how);
  }
  return words.empty() ? "" : "with " + joined(words, " and ");
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
  if (a.before_update) low = std::min(low, a.before_update->allocated);
  return a.threads > 1 ? std::min(low, a.peak_allocated_bytes / a.threads) : low;
}

ReservedRange reserved_range(const ProgramAccount& a) {
  const dry::Needs run{a.peak_allocated_bytes, a.peak_reserved_bytes};
  ReservedRange range = reserved_range(a.spread ? a.spread->low : run, a.spread ? a.spread->high : run, a.unsure_bytes);
  if (a.before_update) {  // at other addresses it is less by as much, at most
    const std::uint64_t less = run.reserved - std::min(run.reserved, range.low);
    range.low =
        std::min(range.low, std::max(a.before_update->reserved - std::min(a.before_update->reserved, less), a.before_update->allocated));
  }
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
