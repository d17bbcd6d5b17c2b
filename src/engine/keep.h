// What a block keeps between forward and backward. It computes the rest again, by the same forward code, to the
// same bits.
#pragma once
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
  input                 // the block's input alone: the whole block again
};

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Keep> = names<engine::Keep>("everything", "no-product", "no-cheap", "no-attention-inputs", "input");
}

namespace headroom::engine {

// Of a model's blocks. In groups only the input of a group's first block lasts from forward to backward. When backward comes to a group, its
// blocks run forward once more, and each keeps what the level says until it has gone back; the last one is then made again by itself.
struct Keeping {
  Keep level = Keep::everything;
  int group = 1;  // consecutive blocks of a group; 0: the root of the number of blocks

  friend bool operator==(const Keeping&, const Keeping&) = default;
};

inline constexpr const char* keep_help =
    "What a block recomputes in backward. no-product: SwiGLU's product; no-cheap: norms too; no-attention-inputs: QKV too; input: all of "
    "it; groups:K: K blocks (2 to all) keep one input, in backward each its own, or what LEVEL says; groups: K is the root of the blocks";
inline constexpr const char* keep_auto_help =
    "What a block recomputes in backward. no-product: SwiGLU's product; no-cheap: norms too; no-attention-inputs: QKV too; input: all of "
    "it; groups:K: K blocks (2 to all) keep one input, in backward each its own, or what LEVEL says; groups: K is the root of the blocks; "
    "auto: a "
    "level for each block, to fit --memory";

constexpr std::string_view name_of(Keep k) { return names_of<Keep>.of(k); }

}  // namespace headroom::engine

namespace headroom {

// A level's name, or groups, groups:K, groups:K:LEVEL.
template <>
struct WordsOf<engine::Keeping> {
  static std::string to(engine::Keeping k) {
    if (k.group == 1) return std::string(name_of(k.level));
    std::string word = k.group == 0 ? "groups" : fmt::format("groups:{}", k.group);
    return k.level == engine::Keep::input ? word : fmt::format("{}:{}", word, name_of(k.level));
  }
  static std::optional<engine::Keeping> named(std::string_view word) {
    using engine::Keep;
    if (const auto level = names_of<Keep>.named(word)) return engine::Keeping{*level};
    if (word == "groups") return engine::Keeping{Keep::input, 0};
    constexpr std::string_view before = "groups:";
    if (!word.starts_with(before)) return std::nullopt;
    word.remove_prefix(before.size());
    engine::Keeping k{Keep::input};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), k.group);
    if (error != std::errc() || k.group < 2) return std::nullopt;
    word.remove_prefix(std::size_t(end - word.data()));
    if (word.empty()) return k;
    const auto level = word.front() == ':' ? names_of<Keep>.named(word.substr(1)) : std::nullopt;
    if (!level) return std::nullopt;
    k.level = *level;
    return k;
  }
  static std::vector<std::string> all() {
    auto words = names_of<engine::Keep>.all();
    words.insert(words.end(), {"groups", "groups:K", "groups:K:LEVEL"});
    return words;
  }
};

}  // namespace headroom
