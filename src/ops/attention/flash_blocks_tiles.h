// Every tuned number of flash_simt and flash_sm80, with its reason.
#pragma once

namespace headroom::attention {

// flash_simt. `rows` of a block stay, `columns` are walked by tiles; a lane has rows / warps / 4 × columns / 8 scores and rows / warps / 4 × dim / 8
// of O. `extra_bytes`: scores on their way from lane to lane.
template <int head_dim, int warp_count, int row_count, int column_count>
struct SimtTiles {
  using T = float;
  static constexpr int dim = head_dim, warps = warp_count, rows = row_count, columns = column_count;
  static constexpr int extra_bytes = rows * (columns + 8) * 4;
};
template <int dim>
struct SimtForward;
template <>
struct SimtForward<32> : SimtTiles<32, 4, 128, 64> {};
template <>
struct SimtForward<64> : SimtTiles<64, 4, 128, 64> {};
template <>
struct SimtForward<128> : SimtTiles<128, 8, 128, 64> {};
template <>
struct SimtForward<256> : SimtTiles<256, 8, 128, 32> {};
template <int dim>
struct SimtBackward;
template <>
struct SimtBackward<32> : SimtTiles<32, 4, 128, 32> {};
template <>
struct SimtBackward<64> : SimtTiles<64, 4, 64, 64> {};
template <>
struct SimtBackward<128> : SimtTiles<128, 4, 64, 32> {};
template <>
struct SimtBackward<256> : SimtTiles<256, 4, 64, 16> {};

// flash_sm80. A warp has rows / warps of the block's rows, 16 or 32.
template <class Type, int head_dim, int warp_count, int row_count, int column_count>
struct Sm80Tiles {
  using T = Type;
  static constexpr int dim = head_dim, warps = warp_count, rows = row_count, columns = column_count, extra_bytes = 0;
};
template <class T, int dim>
struct Sm80Forward;
template <class T>
struct Sm80Forward<T, 32> : Sm80Tiles<T, 32, 4, 128, 64> {};
template <class T>
struct Sm80Forward<T, 64> : Sm80Tiles<T, 64, 4, 128, 64> {};
template <class T>
struct Sm80Forward<T, 128> : Sm80Tiles<T, 128, 4, 128, 32> {};
template <class T>
struct Sm80Forward<T, 256> : Sm80Tiles<T, 256, 4, 64, 32> {};
template <class T, int dim>
struct Sm80Backward;
template <class T>
struct Sm80Backward<T, 32> : Sm80Tiles<T, 32, 4, 64, 64> {};
template <class T>
struct Sm80Backward<T, 64> : Sm80Tiles<T, 64, 4, 64, 64> {};
template <class T>
struct Sm80Backward<T, 128> : Sm80Tiles<T, 128, 4, 64, 32> {};
template <class T>
struct Sm80Backward<T, 256> : Sm80Tiles<T, 256, 4, 64, 32> {};

}  // namespace headroom::attention
