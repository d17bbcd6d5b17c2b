// Every tuned number of flash_simt, flash_sm80 and flash_sm80_fp32, with its reason. TFLOP/s of the arithmetic really done (dQ 3 products, dK and dV
// 4, one of them 3 or 2), 4096 queries and keys, no mask, one H200, CUDA 13.0, 2026-11-21; today's speed: docs/attention.md.
#pragma once

namespace headroom::attention {

// flash_simt. `rows` of a block stay, `columns` are walked by tiles; a lane has rows / warps / 4 × columns / 8 scores and rows / warps / 4 × dim / 8
// of O. Reading shared memory costs as much as computing unless a lane has 8 × 8 of a product: large tiles come before many warps.
// `unroll`: steps of four summed values side by side. `extra_bytes`: scores on their way from lane to lane.
template <int head_dim, int warp_count, int row_count, int column_count, int steps = 2>
struct SimtTiles {
  using T = float;
  static constexpr int dim = head_dim, warps = warp_count, rows = row_count, columns = column_count, unroll = steps;
  static constexpr int extra_bytes = rows * (columns + 4) * 4;
  static constexpr bool turned = true;  // the block's rows lie as [dim][row]
  static constexpr bool across = false;
};
template <int dim>
struct SimtForward;
template <>
struct SimtForward<32> : SimtTiles<32, 4, 128, 64, 2> {};  // 38.7; unrolled once 38.3; 32 columns 37.2
template <>
struct SimtForward<64> : SimtTiles<64, 4, 128, 64, 1> {};  // 43.4; unrolled twice 42.9; 32 columns 40.1; 256 rows by 8 warps 42.2
template <>
struct SimtForward<128> : SimtTiles<128, 8, 128, 64, 8> {
};  // 41.8; unrolled by four 41.3, twice 40.0; 80 columns 40.4, 96 42.0 but 39.5 at 1024; 256 × 32 39.3
template <>
struct SimtForward<256> : SimtTiles<256, 8, 128, 32, 2> {};  // 36.4; 64 rows by 4 warps lost a fifth
template <int dim>
struct SimtBackward;
template <>
struct SimtBackward<32> : SimtTiles<32, 4, 64, 64, 2> {};  // 38.5; 128 rows 38.1
template <>
struct SimtBackward<64> : SimtTiles<64, 4, 64, 64, 4> {};  // 40.2; unrolled twice 39.2, once 37.4
template <>
struct SimtBackward<128> : SimtTiles<128, 4, 64, 32, 4> {};  // 38.8; unrolled twice 37.6, once 36.2
template <>
struct SimtBackward<256> : SimtTiles<256, 4, 64, 32, 2> {};  // 16 columns lose a quarter

// The same where a block may have only 99 KB of shared memory (163 on A100): not tuned.
template <int dim>
struct SimtForwardTight;
template <>
struct SimtForwardTight<64> : SimtTiles<64, 4, 128, 32> {};
template <>
struct SimtForwardTight<128> : SimtTiles<128, 4, 64, 32> {};
template <>
struct SimtForwardTight<256> : SimtTiles<256, 4, 32, 16> {};
template <int dim>
struct SimtBackwardTight;
template <>
struct SimtBackwardTight<128> : SimtTiles<128, 4, 32, 32> {};
template <>
struct SimtBackwardTight<256> : SimtTiles<256, 4, 16, 16> {};

// flash_sm80. A warp has rows / warps of the block's rows, 16 or 32. 32 halve what it reads of shared memory for a product, and take twice the
// registers; tf32 operands are twice as long, so it pays there first.
template <class Type, int head_dim, int warp_count, int row_count, int column_count>
struct Sm80Tiles {
  using T = Type;
  static constexpr int dim = head_dim, warps = warp_count, rows = row_count, columns = column_count, extra_bytes = 0;
  static constexpr bool turned = false, in_parts = false, across = false;
  static constexpr int steps_s = 0, steps_p = 0, steps_o = 0, unroll = 0, groups = 0;
};
template <class T, int dim>
struct Sm80Forward;
template <class T>
struct Sm80Forward<T, 32> : Sm80Tiles<T, 32, 4, 128, 64> {};  // as 64
template <class T>
struct Sm80Forward<T, 64> : Sm80Tiles<T, 64, 4, 128, 64> {};  // bf16 262, tf32 140; 16 rows a warp 255, 115; 32 columns 235, 133
template <class T>
struct Sm80Forward<T, 128> : Sm80Tiles<T, 128, 4, 128, 32> {};  // bf16 292, tf32 148; 64 × 64 276, 110; 8 warps of 16 rows 178, 117
template <class T>
struct Sm80Forward<T, 256> : Sm80Tiles<T, 256, 4, 64, 32> {};  // bf16 246; 8 warps 220
template <>
struct Sm80Forward<float, 256> : Sm80Tiles<float, 256, 8, 128, 32> {};  // tf32 110; 4 warps, 64 rows 73
template <class T, int dim>
struct Sm80Backward;
template <class T>
struct Sm80Backward<T, 32> : Sm80Tiles<T, 32, 4, 64, 64> {};  // as 64
template <>
struct Sm80Backward<float, 32> : Sm80Tiles<float, 32, 4, 128, 32> {};
template <class T>
struct Sm80Backward<T, 64> : Sm80Tiles<T, 64, 4, 64, 64> {};  // bf16 284 and 290; 128 × 32 247 and 285; 8 warps 200 and 216
template <>
struct Sm80Backward<float, 64> : Sm80Tiles<float, 64, 4, 128, 32> {};  // tf32 139 and 145; 64 × 64 127 and 124
template <class T>
struct Sm80Backward<T, 128> : Sm80Tiles<T, 128, 4, 64, 32> {};  // bf16 260 and 240, tf32 114 and 115; 8 warps 193 and 209, 100 and 107
template <class T>
struct Sm80Backward<T, 256> : Sm80Tiles<T, 256, 4, 64, 32> {};  // bf16 268, 271, 237, tf32 75, 76, 69; 16 columns 200, 191, 163, 71, 69, 45

template <class T, int dim>
struct Sm80ForwardTight;
template <>
struct Sm80ForwardTight<float, 256> : Sm80Tiles<float, 256, 4, 64, 16> {};
template <class T, int dim>
struct Sm80BackwardTight;
template <>
struct Sm80BackwardTight<float, 256> : Sm80Tiles<float, 256, 2, 32, 16> {};

// flash_sm80_fp32: three tf32 products for each of fp32 (sm80_parts.cuh). `steps_s`, `steps_o`: so many steps of 8 are summed by the unit, from 0,
// for S and for O; `unroll`: so many sums of S side by side. TFLOP/s of an H200 at 4096 full, and at 1024 causal, 2026-11-28.
template <int head_dim, int warp_count, int row_count, int column_count, int of_s = 1, int of_o = 4, int side_by_side = 2, int of_p = of_s,
          int groups_of_16 = 1>
struct Sm80Parts : Sm80Tiles<float, head_dim, warp_count, row_count, column_count> {
  static constexpr bool in_parts = true;
  static constexpr int steps_s = of_s, steps_p = of_p, steps_o = of_o, unroll = side_by_side, groups = groups_of_16;
};
// Backward with scores in shared memory (sm80_across.cuh): so many warps share out the rows of scores, those of dK and dV (or dQ), and those of the dQ
// that a block of keys adds to; the others share out columns. `once`: P and dS have one place, in turns; `blocks`: so many run on a unit at once.
template <int head_dim, int warp_count, int row_count, int column_count, int of_scores, int of_own, int of_other, bool once, int blocks,
          int of_s = 1, int of_o = 4, int side_by_side = 1, int of_p = of_s, int groups_of_16 = 1>
struct Sm80Across : Sm80Parts<head_dim, warp_count, row_count, column_count, of_s, of_o, side_by_side, of_p, groups_of_16> {
  static constexpr bool across = true, one_place = once;
  static constexpr int down_s = of_scores, down_o = of_own, down_q = of_other, at_once = blocks;
  static constexpr int extra_bytes = (once ? 1 : 2) * row_count * (column_count + 4) * 4;
};
template <int dim>
struct Sm80PartsForward;
template <>
struct Sm80PartsForward<32> : Sm80Parts<32, 4, 128, 64> {};  // 59.0, 48.1; 32 columns, four blocks a unit 54.6, 46.2
template <>
struct Sm80PartsForward<64> : Sm80Parts<64, 4, 128, 64, 1, 2, 1> {
};  // 62.1, 53.3; O by 4 steps, twice unrolled 60.3, 51.4; 8 warps 50.8, 42.9
template <>
struct Sm80PartsForward<128> : Sm80Parts<128, 4, 128, 32, 2> {
};  // 61.8, 54.3; S by 1 step 61.0, 53.6, by 4 59.3, 51.4; 256 rows by 8 warps 62.2, 46.9; 64 rows 51.5, 48.0
template <>
struct Sm80PartsForward<256> : Sm80Parts<256, 8, 128, 32, 1, 4, 2, 1, 2> {
};  // 53.9, 46.6; one group of 16 columns at a time 52.1, 45.1; 16 columns 45.7, 40.0
template <int dim>
struct Sm80PartsForwardTight;
template <>
struct Sm80PartsForwardTight<256> : Sm80Parts<256, 4, 64, 16, 1, 2> {};  // not timed
// S takes as many steps as forward, so that both passes have the same scores. TFLOP/s at 4096 full and 1024 causal, as one kernel.
template <int dim>
struct Sm80PartsBackward;
template <>
struct Sm80PartsBackward<32> : Sm80Parts<32, 4, 128, 32, 1, 4, 1, 2> {};  // 56.1, 44.9; 64 × 64 47.0, 39.9
template <>
struct Sm80PartsBackward<64> : Sm80Parts<64, 4, 64, 64, 1, 4, 1, 2> {};  // 57.5, 49.8; 128 × 32 53.8, 44.9; across 51.6, 43.8
template <>
struct Sm80PartsBackward<128> : Sm80Parts<128, 4, 64, 32, 2, 4, 1> {};  // 54.0, 49.7; across 128 × 32 53.4, 44.7; 64 × 32 48.9, 44.7
template <>
struct Sm80PartsBackward<256> : Sm80Across<256, 8, 64, 32, 4, 2, 1, false, 1, 1, 4, 1, 2> {
};  // 47.6, 41.8; O from 0 every 2 steps 46.6, 40.9; 16 warps 43.8, 39.0
template <int dim>
struct Sm80PartsBackwardTight;
template <>
struct Sm80PartsBackwardTight<256> : Sm80Across<256, 4, 32, 32, 2, 1, 1, false, 1, 1, 2, 1, 2> {};

}  // namespace headroom::attention
