// What a block keeps between forward and backward. It computes the rest again, by the same forward code, to the
// same bits. One level, gate_up_fp8, keeps gate and up in 8 bits: its gradients are not those of the others.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/described.h"

namespace headroom::engine {

enum class Keep : std::uint8_t {
  everything,           // every input of every op
  no_product,           // without the SwiGLU product, which backward computes again in the same pass
  no_cheap,             // also without the norms' outputs: elementwise work to repeat
  no_attention_inputs,  // also without q, k, v (and plain attention's P): one matmul (and the scores) again
  input,                // the block's input alone: backward repeats the whole block
  gate_up_fp8  // as no_cheap, with gate and up in E4M3 (1 × 128 scales): backward reads what rounding left of them, but of blocks made again
};
constexpr int exact_levels = int(Keep::input) + 1;  // the first ones, which all give the same bits, from most bytes to fewest

constexpr Keep set_of(Keep k) { return k == Keep::gate_up_fp8 ? Keep::no_cheap : k; }  // the tensors kept, whatever their format

}  // namespace headroom::engine

namespace headroom {
template <>
inline constexpr auto names_of<engine::Keep> = names<engine::Keep>("everything", "no-product", "no-cheap", "no-attention-inputs", "input",
                                                                   "gate-up-fp8");
}

namespace headroom::engine {

// What the blocks of a model keep. In groups only the input of a group's first block lasts from forward to backward. When backward comes to
// a group, its blocks run forward once more, and each keeps what the level says until it has gone back; the last one is then made again by
// itself. What a block keeps beside its input may wait in pinned host memory (host_keep.h).
struct Keeping {
  static constexpr int every_block = -1;
  std::vector<Keep> levels{Keep::everything};  // one for all blocks, or one for each; none ("auto"): still to be found (keep_auto.h)
  int group = 1;                               // consecutive blocks in a group; 0: the root of the number of blocks
  int host = 0;                                // blocks whose kept tensors wait in host memory, spread evenly

  Keeping() = default;
  Keeping(std::initializer_list<Keep> of_each) : levels(of_each) {}
  Keeping(std::vector<Keep> of_each, int group = 1, int host = 0) : levels(std::move(of_each)), group(group), host(host) {}
  Keeping(Keep level, int group, int host = 0) : levels{level}, group(group), host(host) {}

  static Keeping automatic() { return {std::vector<Keep>{}}; }
  static Keeping on_host(int blocks = every_block, Keep level = Keep::everything) { return {level, 1, blocks}; }
  bool found() const { return !levels.empty(); }
  Keep of(int block) const { return !found() ? Keep::everything : levels[levels.size() == 1 ? 0 : std::size_t(block)]; }
  Keep first() const { return of(0); }

  friend bool operator==(const Keeping&, const Keeping&) = default;
};

inline constexpr const char* about_keep =
    "What a block recomputes in backward. no-product: SwiGLU's product; no-cheap: norms too; no-attention-inputs: QKV too; input: all of "
    "it; gate-up-fp8: as no-cheap, with gate and up rounded to 8 bits (other gradients than the other levels'); groups:K: of every K "
    "blocks only the first one's input is kept; backward runs the K again, one input each, then block by block (:LEVEL: they keep what "
    "LEVEL says); groups: K is the square root of the number of blocks; host:N:LEVEL: N blocks keep what LEVEL says in pinned host "
    "memory; host: every block keeps everything there; auto: a level for each block, to fit --memory";

constexpr std::string_view name_of(Keep k) { return names_of<Keep>.of(k); }

}  // namespace headroom::engine

namespace headroom {

// A level's name, auto, groups, groups:K, groups:K:LEVEL, host, host:LEVEL, host:N, host:N:LEVEL; and of levels that were found
// "input × 4, everything × 8", with "; 3 in host memory" where some blocks keep theirs there.
template <>
struct WordsOf<engine::Keeping> {
  static std::string to(const engine::Keeping&);
  static std::optional<engine::Keeping> named(std::string_view word);
  static std::string why_not(std::string_view word);  // the reason why a word is refused
  static std::vector<std::string> all();
};

}  // namespace headroom
