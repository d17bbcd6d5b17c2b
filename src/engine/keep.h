// What a block keeps between forward and backward. It computes the rest again, by the same forward code, to the
// same bits.
#pragma once
#include <cstdint>
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

inline constexpr const char* keep_help =
    "What a block recomputes in backward. no-product: SwiGLU's product; no-cheap: norms too; no-attention-inputs: QKV too; input: all of "
    "it";
inline constexpr const char* keep_auto_help =
    "What a block recomputes in backward. no-product: SwiGLU's product; no-cheap: norms too; no-attention-inputs: QKV too; input: all of "
    "it; auto: a level for each block, to fit --memory";

constexpr std::string_view name_of(Keep k) { return names_of<Keep>.of(k); }

}  // namespace headroom::engine
