#include "engine/recipe/keep.h"

#include <charconv>

namespace headroom {

using engine::Keep;
using engine::Keeping;

namespace {

constexpr std::string_view times = " × ", host_words = " of them in host memory";

Keep usual_level(bool host) { return host ? Keep::everything : Keep::input; }  // where the word names none

// A whole number that is all of the text.
std::optional<int> number_in(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(n) : std::nullopt;
}

std::string_view taken(std::string_view& text, std::string_view until) {  // what stands before it, or everything
  const auto at = text.find(until);
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + until.size());
  return before;
}

std::string words_of_levels(const Keeping& k) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < k.levels.size();) {
    std::size_t end = i;
    while (end < k.levels.size() && k.levels[end] == k.levels[i]) ++end;
    words.push_back(fmt::format("{}{}{}", name_of(k.levels[i]), times, end - i));
    i = end;
  }
  return joined(words) + (k.host > 0 ? fmt::format("; {}{}", k.host, host_words) : "");
}

std::optional<Keeping> levels_named(std::string_view word) {
  Keeping k = Keeping::automatic();
  std::string_view levels = taken(word, "; ");
  if (!word.empty()) {
    const auto n = word.ends_with(host_words) ? number_in(word.substr(0, word.size() - host_words.size())) : std::nullopt;
    if (!n || *n < 1) return std::nullopt;
    k.host = *n;
  }
  while (!levels.empty()) {
    std::string_view run = taken(levels, ", ");
    const auto level = names_of<Keep>.named(taken(run, times));
    const auto blocks = number_in(run);
    if (!level || !blocks || *blocks < 1 || *blocks > 1 << 20) return std::nullopt;
    k.levels.insert(k.levels.end(), std::size_t(*blocks), *level);
  }
  return k;
}

}  // namespace

std::string WordsOf<Keeping>::to(const Keeping& k) {
  if (!k.found()) return "auto";
  if (k.levels.size() > 1) return words_of_levels(k);
  const bool host = k.host != 0;
  if (k.group == 1 && !host) return std::string(name_of(k.first()));
  const int n = host ? std::max(0, k.host) : k.group;
  std::string word = host ? "host" : "groups";
  if (n > 0) word += fmt::format(":{}", n);
  return k.first() == usual_level(host) ? word : fmt::format("{}:{}", word, name_of(k.first()));
}

std::optional<Keeping> WordsOf<Keeping>::named(std::string_view word) {
  if (word == "auto") return Keeping::automatic();
  if (const auto level = names_of<Keep>.named(word)) return Keeping{*level};
  if (word.find(times) != std::string_view::npos) return levels_named(word);
  const bool host = word.starts_with("host");
  const std::string_view before = host ? "host" : "groups";
  if (!word.starts_with(before)) return std::nullopt;
  word.remove_prefix(before.size());
  Keeping k{usual_level(host), host ? 1 : 0, host ? Keeping::every_block : 0};
  const auto next = [&] {  // what stands after a colon
    const auto end = std::min(word.find(':', 1), word.size());
    const std::string_view part = word.substr(1, end - 1);
    word.remove_prefix(end);
    return part;
  };
  if (word.empty()) return k;
  if (word.front() != ':') return std::nullopt;
  const std::string_view part = next();
  if (const auto level = names_of<Keep>.named(part); host && level) {
    k.levels = {*level};
    return word.empty() ? std::optional(k) : std::nullopt;
  }
  const auto n = number_in(part);
  if (!n || *n < (host ? 1 : 2)) return std::nullopt;
  (host ? k.host : k.group) = *n;
  if (word.empty()) return k;
  const auto named = names_of<Keep>.named(next());
  if (!named || !word.empty()) return std::nullopt;
  k.levels = {*named};
  return k;
}

std::string WordsOf<Keeping>::why_not(std::string_view word) {
  if (word == "full" || word == "selective")
    return word == "full"
               ? "full checkpointing keeps the input of each block: input; what keeps all: everything"
               : "how much of a block is kept says no-product, no-cheap or no-attention-inputs; with --as pytorch --selective ops";
  const bool host = word.starts_with("host:");
  if (!host && !word.starts_with("groups:")) return {};
  return host ? fmt::format("in host:N, host:LEVEL and host:N:LEVEL, N is 1 or more and LEVEL one of {}", joined(names_of<Keep>.all()))
              : fmt::format("in groups:K and groups:K:LEVEL, K is 2 or more and LEVEL one of {}", joined(names_of<Keep>.all()));
}

std::vector<std::string> WordsOf<Keeping>::all() {
  auto words = names_of<Keep>.all();
  words.insert(words.end(), {"groups", "groups:K", "groups:K:LEVEL", "host", "host:LEVEL", "host:N", "host:N:LEVEL", "auto"});
  return words;
}

}  // namespace headroom
