// What each block keeps, found by dry runs: the levels for which a step fits the memory given and takes least time.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/forecast.h"

namespace headroom::engine {

struct KeepAsked {
  std::optional<Keeping> what = Keeping{};  // none ("auto"): to be found

  friend bool operator==(const KeepAsked&, const KeepAsked&) = default;
};

struct KeepFound {
  std::vector<Keep> levels;  // one for all, or one for each block
  int host = 0;              // blocks whose tensors wait in host memory

  void put_in(Recipe& r) const { r.keep = levels, r.group = 1, r.host = host; }
};

// One level for the first blocks and one that keeps more for the others: blocks are alike, so two levels are enough, and what is made
// again is made when most of what the later blocks kept has been given back. Or one level for all, and some blocks' tensors on the host:
// on a GPU whose link to the host is known, while they fit there. Nothing where not even the least fits.
// workers: threads that take scratch on a CPU.
std::optional<KeepFound> keep_that_fits(Recipe, std::size_t bytes, const Device&, int workers);

// Makes the recipe keep what is asked for, or what is found; an Error (out_of_memory) that says what the least needs.
void keep_as_asked(const KeepAsked&, Recipe&, std::size_t bytes, const Device&, int workers);

std::string kept_in_words(const Recipe&);  // "groups:6", or "input × 4, everything × 8"

}  // namespace headroom::engine

namespace headroom {
template <>
struct WordsOf<engine::KeepAsked> {
  static std::string to(const engine::KeepAsked& k) { return k.what ? WordsOf<engine::Keeping>::to(*k.what) : "auto"; }
  static std::optional<engine::KeepAsked> named(std::string_view word) {
    if (word == "auto") return engine::KeepAsked{std::nullopt};
    const auto k = WordsOf<engine::Keeping>::named(word);
    return k ? std::optional(engine::KeepAsked{*k}) : std::nullopt;
  }
  static std::string why_not(std::string_view word) { return WordsOf<engine::Keeping>::why_not(word); }
  static std::vector<std::string> all() {
    auto words = WordsOf<engine::Keeping>::all();
    words.emplace_back("auto");
    return words;
  }
};
}  // namespace headroom
