// What a block keeps between forward and backward. It computes the rest again, by the same forward code, to the
// same bits. One level, gate_up_fp8, keeps gate and up in 8 bits: its gradients are not those of the others.
#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/described.h"

namespace headroom::engine {

enum class Keep : std::uint8_t {
  everything,           // every input of every op
  no_product,           // without the SwiGLU product, which backward makes again in passing
  no_cheap,             // also without the norms' outputs: elementwise to compute again
  no_attention_inputs,  // also without q, k, v (and plain attention's P): one matmul (and the scores) again
  input,                // the block's input alone: the whole block again
  gate_up_fp8  // as no_cheap, with gate and up in E4M3 (1 × 128 scales): backward reads what rounding left of them, but of blocks made again
};
constexpr int exact_levels = int(Keep::input) + 1;  // the first ones, which all give the same bits, from most bytes to fewest

constexpr Keep set_of(Keep k) { return k == Keep::gate_up_fp8 ? Keep::no_cheap : k; }  // which tensors, whatever their format

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Keep> = names<engine::Keep>("everything", "no-product", "no-cheap", "no-attention-inputs", "input",
                                                                   "gate-up-fp8");
}

namespace headroom::engine {

// Of a model's blocks. In groups only the input of a group's first block lasts from forward to backward. When backward comes to a group, its
// blocks run forward once more, and each keeps what the level says until it has gone back; the last one is then made again by itself.
// What a block keeps beside its input may wait in pinned host memory (host_keep.h).
struct Keeping {
  static constexpr int every_block = -1;
  Keep level = Keep::everything;
  int group = 1;  // consecutive blocks of a group; 0: the root of the number of blocks
  int host = 0;   // blocks whose kept tensors wait in host memory, spread evenly

  friend bool operator==(const Keeping&, const Keeping&) = default;
};

#define HEADROOM_KEEP_HELP                                                                                                               \
  "What a block recomputes in backward. no-product: SwiGLU's product; no-cheap: norms too; no-attention-inputs: QKV too; input: all of " \
  "it; gate-up-fp8: as no-cheap, with gate and up rounded to 8 bits (other gradients than the other levels'); groups:K: K blocks (2 to " \
  "all) keep one input, in backward each its own, or what LEVEL says; groups: K is the root of the blocks; host:N:LEVEL: N blocks keep " \
  "what LEVEL says in pinned host memory; host: every block keeps everything there"
inline constexpr const char* keep_help = HEADROOM_KEEP_HELP;
inline constexpr const char* keep_auto_help = HEADROOM_KEEP_HELP "; auto: a level for each block, to fit --memory";
#undef HEADROOM_KEEP_HELP

constexpr std::string_view name_of(Keep k) { return names_of<Keep>.of(k); }

}  // namespace headroom::engine

namespace headroom {

// A level's name, or groups, groups:K, groups:K:LEVEL, host, host:LEVEL, host:N, host:N:LEVEL.
template <>
struct WordsOf<engine::Keeping> {
  static std::string to(engine::Keeping k) {
    const bool host = k.host != 0;
    if (k.group == 1 && !host) return std::string(name_of(k.level));
    const int n = host ? std::max(0, k.host) : k.group;
    std::string word = host ? "host" : "groups";
    if (n > 0) word += fmt::format(":{}", n);
    return k.level == usual(host) ? word : fmt::format("{}:{}", word, name_of(k.level));
  }
  static std::optional<engine::Keeping> named(std::string_view word) {
    using engine::Keep;
    if (const auto level = names_of<Keep>.named(word)) return engine::Keeping{*level};
    const bool host = word.starts_with("host");
    const std::string_view before = host ? "host" : "groups";
    if (!word.starts_with(before)) return std::nullopt;
    word.remove_prefix(before.size());
    engine::Keeping k{usual(host), host ? 1 : 0, host ? engine::Keeping::every_block : 0};
    const auto next = [&] {  // what stands after a colon
      const auto end = std::min(word.find(':', 1), word.size());
      const std::string_view part = word.substr(1, end - 1);
      word.remove_prefix(end);
      return part;
    };
    if (word.empty()) return k;
    if (word.front() != ':') return std::nullopt;
    std::string_view part = next();
    const auto level = names_of<Keep>.named(part);
    if (host && level) return k.level = *level, word.empty() ? std::optional(k) : std::nullopt;
    int& n = host ? k.host : k.group;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || n < (host ? 1 : 2)) return std::nullopt;
    if (word.empty()) return k;
    const auto named = names_of<Keep>.named(next());
    if (!named || !word.empty()) return std::nullopt;
    k.level = *named;
    return k;
  }
  static std::string why_not(std::string_view word) {  // of a word that is not named
    const bool host = word.starts_with("host:");
    if (!host && !word.starts_with("groups:")) return {};
    return host ? fmt::format("in host:N, host:LEVEL and host:N:LEVEL, N is 1 or more and LEVEL one of {}",
                              joined(names_of<engine::Keep>.all()))
                : fmt::format("in groups:K and groups:K:LEVEL, K is 2 or more and LEVEL one of {}", joined(names_of<engine::Keep>.all()));
  }
  static std::vector<std::string> all() {
    auto words = names_of<engine::Keep>.all();
    words.insert(words.end(), {"groups", "groups:K", "groups:K:LEVEL", "host", "host:LEVEL", "host:N", "host:N:LEVEL"});
    return words;
  }

 private:
  static constexpr engine::Keep usual(bool host) { return host ? engine::Keep::everything : engine::Keep::input; }  // level of no level
};

}  // namespace headroom
