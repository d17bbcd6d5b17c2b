// Which keys a row sees, and so which tiles. Every mask here lets row i see one run of keys [first(i), last(i)), and both ends
// never move left as i grows; kernels ask this file and repeat none of its arithmetic.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#ifdef __CUDACC__
#define HEADROOM_HD __host__ __device__ __forceinline__
#else
#define HEADROOM_HD inline
#endif

namespace headroom::attention {

enum class MaskKind : std::uint8_t { full, causal, window };
enum class Align : std::uint8_t {
  bottom_right,  // the last row sees the last key: what decoding with a cache needs
  top_left       // row i sees keys 0 … i, whatever the lengths
};

struct Mask {  // as asked
  MaskKind kind = MaskKind::full;
  Align align = Align::bottom_right;
  std::int64_t window = 0;  // a row sees its own position and the window − 1 before it

  static Mask full() { return {}; }
  static Mask causal(Align a = Align::bottom_right) { return {MaskKind::causal, a, 0}; }
  static Mask sliding(std::int64_t width, Align a = Align::bottom_right) { return {MaskKind::window, a, width}; }
  friend bool operator==(const Mask&, const Mask&) = default;
};

std::string name_of(const Mask&);                  // "full", "causal", "causal:top-left", "window:256", "window:256:top-left"
std::optional<Mask> mask_named(std::string_view);  // the way back

struct TileSpan {  // tiles [begin, end) hold a visible key; of these [plain_begin, plain_end) need no mask
  int begin, plain_begin, plain_end, end;
};

struct Band {  // the mask of one problem, in numbers; small enough to pass to a kernel by value
  std::int64_t len_q = 0, len_k = 0;
  std::int64_t shift = 0;              // key position of row 0
  std::int64_t behind = 0, ahead = 0;  // row i sees keys i + shift − behind … i + shift + ahead

  HEADROOM_HD std::int64_t clamp_key(std::int64_t j) const { return j < 0 ? 0 : j > len_k ? len_k : j; }
  HEADROOM_HD std::int64_t clamp_row(std::int64_t i) const { return i < 0 ? 0 : i > len_q ? len_q : i; }

  HEADROOM_HD std::int64_t first(std::int64_t row) const { return clamp_key(row + shift - behind); }
  HEADROOM_HD std::int64_t last(std::int64_t row) const { return clamp_key(row + shift + ahead + 1); }  // one past it
  HEADROOM_HD bool sees(std::int64_t row, std::int64_t key) const { return key >= first(row) && key < last(row); }

  // Rows that see a key: [first_row, last_row).
  HEADROOM_HD std::int64_t first_row(std::int64_t key) const { return clamp_row(key - shift - ahead); }
  HEADROOM_HD std::int64_t last_row(std::int64_t key) const { return clamp_row(key - shift + behind + 1); }

  // Key tiles of `width` that rows [row, row + rows) touch.
  HEADROOM_HD TileSpan key_tiles(std::int64_t row, std::int64_t rows, std::int64_t width) const {
    const std::int64_t bottom = row + rows < len_q ? row + rows - 1 : len_q - 1;
    return span(first(row), last(bottom), first(bottom), last(row), width);
  }
  // Row tiles of `height` that see keys [key, key + keys).
  HEADROOM_HD TileSpan row_tiles(std::int64_t key, std::int64_t keys, std::int64_t height) const {
    const std::int64_t end = key + keys < len_k ? key + keys - 1 : len_k - 1;
    return span(first_row(key), last_row(end), first_row(end), last_row(key), height);
  }
  HEADROOM_HD bool empty_rows() const { return len_k == 0 || last(0) <= first(0) || last(len_q - 1) <= first(len_q - 1); }

  // Pairs (row, key) that are visible: what FLOPs are counted by.
  double visible() const;

 private:
  // [lo, hi): touched by anyone; [all_lo, all_hi): seen by everyone.
  static HEADROOM_HD TileSpan span(std::int64_t lo, std::int64_t hi, std::int64_t all_lo, std::int64_t all_hi, std::int64_t size) {
    if (hi <= lo) return {0, 0, 0, 0};
    const int begin = int(lo / size), end = int((hi + size - 1) / size);
    int plain_begin = int((all_lo + size - 1) / size), plain_end = int(all_hi / size);
    plain_begin = plain_begin < begin ? begin : plain_begin > end ? end : plain_begin;
    plain_end = plain_end > end ? end : plain_end;
    if (plain_end < plain_begin) plain_end = plain_begin;
    return {begin, plain_begin, plain_end, end};
  }
};

Band band_of(const Mask&, std::int64_t len_q, std::int64_t len_k);

}  // namespace headroom::attention
