// headroom precision fp8 — what fp8 does to products: each product of a step, and products of data that hurts, against FP64 of the numbers
// before they were quantised; scales a tensor, a row and a block side by side, one level of sums beside two.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/halves/products.h"
#include "engine/recipe/formats.h"
#include "report/record.h"

namespace headroom::studies::precision {

struct Fp8Settings {
  std::int64_t width = 128, layers = 2, heads = 4, len = 256, batch = 1;
  std::int64_t steps = 20;  // trained before the step that is measured
  std::vector<engine::Scales> scales{engine::Scales::tensor, engine::Scales::row, engine::Scales::block};
  std::string text{};  // a file; empty: random tokens
  std::uint64_t seed = 0;
  int threads = 0;  // 0: every core
};
void describe(Of<Fp8Settings> auto& s, auto&& f) {
  f(s.width, {.name = "width", .about = "Of the model", .allowed = {16, 4096}});
  f(s.layers, {.name = "layers", .about = "Blocks", .allowed = {1, 64}});
  f(s.heads, {.name = "heads", .about = "Heads; they divide the width", .allowed = {1, 256}});
  f(s.len, {.name = "len", .about = "Tokens of a sequence", .allowed = {1, 8192}});
  f(s.batch, {.name = "batch", .about = "Sequences", .allowed = {1, 64}});
  f(s.steps, {.name = "steps", .about = "Steps of training, in bf16, before the one that is measured", .allowed = {0, 100000}});
  f(s.scales, {.name = "scales", .about = "What shares a scale: a tensor, a row, a block of 128"});
  f(s.text, {.name = "text"});
  f(s.seed, {.name = "seed"});
  f(s.threads, {.name = "threads", .about = "Threads; 0: every core", .allowed = {0, 4096}});
}

// The error of one product whose operands were quantised: 10 log10 of the exact values' squares over the errors' squares, in dB.
struct ProductError {
  double snr_db = 0;                    // sums in FP32
  double worst_row_db = 0;              // the same of the worst row of C
  double hopper_db = 0;                 // with Hopper's sums over the whole of k; in two levels if scales differ along k
  double two_level_db = 0;              // the same adder over 128 of k, FP32 above
  std::int64_t clipped = 0;             // numbers of both operands
  double flushed_a = 0, flushed_b = 0;  // share of the operand's numbers that became 0
};

// a [m, k], b [n, k], FP32. The error is of the first 64 rows and columns of C; scales are made of the whole operands.
ProductError product_error(const Tensor& a, const Tensor& b, ScaledFormat of_a, ScaledFormat of_b, Context&);

struct Fp8AttentionRow;
std::vector<Fp8AttentionRow> fp8_attention_rows(std::uint64_t seed, Context&);  // fp8_attention.cpp

Record fp8_record(const Fp8Settings&);

}  // namespace headroom::studies::precision
