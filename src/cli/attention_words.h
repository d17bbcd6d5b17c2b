// What other programs call the two families of attention: transformers' attn_implementation, and PyTorch's backends.
#pragma once
#include <string>
#include <string_view>

#include "base/other_words.h"

namespace headroom::cli {

inline std::string attention_in_our_words(const std::string& word) {
  constexpr std::string_view fused[] = {"sdpa", "flash_attention", "flash_attention_2", "flash_attention_3", "flash_attn", "fa2", "fa3",
                                        "fused"},
                             whole[] = {"eager", "naive", "math"};
  for (const std::string_view theirs : fused)
    if (is_same_word(theirs, word)) return "flash";
  for (const std::string_view theirs : whole)
    if (is_same_word(theirs, word)) return "plain";
  return word;
}

}  // namespace headroom::cli
