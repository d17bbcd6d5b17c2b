// How the shape of an attention problem is asked for: the same options in every command that asks.
#pragma once
#include "base/described.h"
#include "ops/attention/mask.h"

namespace headroom::studies::asked {

inline constexpr std::int64_t most_len = (1ll << 31) - 1;

inline constexpr Description dtype{.name = "dtype", .about = "Storage dtype; tf32: fp32 storage, tf32 products", .option = "--precision"};
inline constexpr Description batch{.name = "batch", .about = "Sequences", .allowed = {1, most_len}};
inline constexpr Description heads{.name = "heads", .about = "Query heads", .allowed = {1, most_len}};
inline constexpr Description kv_heads{.name = "kv_heads", .about = "Key heads; 0: as many as query heads", .allowed = {0, most_len}};
inline constexpr Description dim_v{.name = "dim_v", .about = "Dimension of the values; 0: as --dim", .allowed = {0, 1024}};
inline constexpr Description len_k{.name = "len_k", .about = "Length of the keys; 0: as --len", .allowed = {0, most_len}};
inline constexpr Description mask{.name = "mask", .about = attention::mask_help};
inline constexpr Description page{.name = "page",
                                  .about = "Keys and values lie in pages of N positions, in any order; forward only; 0: no pages",
                                  .allowed = {0, 1 << 29}};
inline constexpr Description softcap{
    .name = "softcap", .about = "Soft cap: each score s becomes X · tanh(s / X); 0: none", .real = {0, 1e9}};
inline constexpr Description dropout{
    .name = "dropout", .about = "Chance that a probability is dropped, in steps of 1/65536; 0: none", .real = {0, 0.9999}};
inline constexpr Description sink{.name = "sink", .about = "Add a logit per head to the softmax's sum"};
inline constexpr Description alibi{
    .name = "alibi", .about = "ALiBi: scores fall with the distance of query and key, by a slope of 2^(-8 h / heads) for head h = 1, 2, …"};
inline constexpr Description deterministic{.name = "deterministic", .about = "Only variants that promise the same bits on every run"};

}  // namespace headroom::studies::asked
