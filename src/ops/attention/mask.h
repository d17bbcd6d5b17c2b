// Which keys a row sees, and so which tiles. Every mask here lets row i see one run of keys [first(i), last(i)), and both ends
// never move left as i grows; kernels use this file and repeat none of its arithmetic.
#pragma once
#include <cstdint>
#include <type_traits>

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
  std::int64_t ahead = 0;   // in a window: so many positions after its own, too

  static Mask full() { return {}; }
  static Mask causal(Align a = Align::bottom_right) { return {MaskKind::causal, a, 0, 0}; }
  static Mask sliding(std::int64_t width, Align a = Align::bottom_right, std::int64_t after = 0) {
    return {MaskKind::window, a, width, after};
  }
  friend bool operator==(const Mask&, const Mask&) = default;
};

void check(const Mask&);  // an Error (bad_argument) that says what is allowed
inline constexpr const char* mask_help = "full, causal, window:W, window:W+A (A positions ahead too); causal:top-left, window:W:top-left";

// What a mask limits. A kernel that knows it at compile time checks only that.
enum class Reach : std::uint8_t {
  all,     // nothing: every row sees every key
  before,  // every row sees all keys up to its own end
  run,     // a row's keys begin and end
  listed,  // the same, from a list: packed documents
  any      // in a call: the band's own reach
};

// What a row sees, counted from its own position: keys low … high of it.
struct Offsets {
  static constexpr std::int64_t anything = std::int64_t(1) << 62;  // as far as there are keys
  std::int64_t low = -anything, high = anything;
  bool from_the_end = false;  // the last row's position is the last key's; else row i's is i
  Reach reach = Reach::all;
};
Offsets offsets_of(const Mask&);

struct Run {  // [first, last)
  std::int32_t first, last;
};

struct TileSpan {  // tiles [begin, end) hold a visible pair; [plain_begin, plain_end) need no mask
  int begin, plain_begin, plain_end, end;
};

// The mask of one problem, in numbers; small enough to pass to a kernel by value. 64 bits at the door (Band), 32 in kernels.
template <class Int>
struct BandOf {
  Int len_q = 0, len_k = 0;
  Int low = 0, high = 0;  // row i sees keys i + low … i + high, of those that exist
  Reach reach = Reach::all;
  const Run* keys_of = nullptr;  // Reach::listed: what each row sees,
  const Run* rows_of = nullptr;  // and by which rows each key is seen

  HEADROOM_HD Int clamp_key(Int j) const { return j < 0 ? 0 : j > len_k ? len_k : j; }
  HEADROOM_HD Int clamp_row(Int i) const { return i < 0 ? 0 : i > len_q ? len_q : i; }

  template <Reach known = Reach::any>
  HEADROOM_HD Int first(Int row) const {
    if (known == Reach::all || known == Reach::before) return 0;
    if (is_listed<known>()) return keys_of[row].first;
    return clamp_key(row + low);
  }
  template <Reach known = Reach::any>
  HEADROOM_HD Int last(Int row) const {  // one past it
    if (known == Reach::all) return len_k;
    if (is_listed<known>()) return keys_of[row].last;
    return clamp_key(row + high + 1);
  }
  // The four below may name rows and keys that do not exist. That is enough to compare an existing one with, and takes fewer instructions.
  template <Reach known>
  HEADROOM_HD Int open_first(Int row) const {
    return known == Reach::run ? row + low : first<known>(row);
  }
  template <Reach known>
  HEADROOM_HD Int open_last(Int row) const {
    return known == Reach::run || known == Reach::before ? row + high + 1 : last<known>(row);
  }
  template <Reach known>
  HEADROOM_HD Int open_first_row(Int key) const {
    return known == Reach::run || known == Reach::before ? key - high : first_row<known>(key);
  }
  template <Reach known>
  HEADROOM_HD Int open_last_row(Int key) const {
    return known == Reach::run ? key - low + 1 : last_row<known>(key);
  }
  HEADROOM_HD bool sees(Int row, Int key) const { return key >= first(row) && key < last(row); }

  // Rows that see a key: [first_row, last_row).
  template <Reach known = Reach::any>
  HEADROOM_HD Int first_row(Int key) const {
    if (known == Reach::all) return 0;
    if (is_listed<known>()) return rows_of[key].first;
    return clamp_row(key - high);
  }
  template <Reach known = Reach::any>
  HEADROOM_HD Int last_row(Int key) const {
    if (known == Reach::all || known == Reach::before) return len_q;
    if (is_listed<known>()) return rows_of[key].last;
    return clamp_row(key - low + 1);
  }

  // Key tiles of `width` that rows top … bottom touch.
  template <Reach known = Reach::any>
  HEADROOM_HD TileSpan keys_between(Int top, Int bottom, Int width) const {
    return span(first<known>(top), last<known>(bottom), first<known>(bottom), last<known>(top), width);
  }
  // The same for rows [row, row + rows); rows past the last do not count.
  template <Reach known = Reach::any>
  HEADROOM_HD TileSpan key_tiles(Int row, Int rows, Int width) const {
    return keys_between<known>(row, row + rows < len_q ? row + rows - 1 : len_q - 1, width);
  }
  // Row tiles of `height` that see keys [key, key + keys). No row sees keys past the last: then no tile is plain.
  template <Reach known = Reach::any>
  HEADROOM_HD TileSpan row_tiles(Int key, Int keys, Int height) const {
    const Int end = key + keys <= len_k ? key + keys - 1 : len_k - 1;
    const bool whole = key + keys <= len_k;
    return span(first_row<known>(key), last_row<known>(end), first_row<known>(end), whole ? last_row<known>(key) : 0, height);
  }
  HEADROOM_HD bool empty_rows() const { return len_k == 0 || last(0) <= first(0) || last(len_q - 1) <= first(len_q - 1); }

  // Visible pairs (row, key), by which FLOPs are counted. Not for a listed band.
  double visible() const;

 private:
  template <Reach known>
  HEADROOM_HD bool is_listed() const {
    return known == Reach::any ? reach == Reach::listed : known == Reach::listed;
  }
  // [lo, hi): seen by any of the rows; [all_lo, all_hi): seen by all. None is negative.
  static HEADROOM_HD TileSpan span(Int lo, Int hi, Int all_lo, Int all_hi, Int size) {
    using Count = std::make_unsigned_t<Int>;
    if (hi <= lo) return {0, 0, 0, 0};
    const int begin = int(Count(lo) / Count(size)), end = int((Count(hi) + Count(size) - 1) / Count(size));
    int plain_begin = int((Count(all_lo) + Count(size) - 1) / Count(size)), plain_end = int(Count(all_hi) / Count(size));
    plain_begin = plain_begin < begin ? begin : plain_begin > end ? end : plain_begin;
    plain_end = plain_end > end ? end : plain_end;
    if (plain_end < plain_begin) plain_end = plain_begin;
    return {begin, plain_begin, plain_end, end};
  }
};
using Band = BandOf<std::int64_t>;
template <>
double Band::visible() const;

Band band_of(const Mask&, std::int64_t len_q, std::int64_t len_k);

// For kernels that count in 32 bits: lengths up to this one keep every sum of a row, an end and a tile below 2^31.
constexpr std::int64_t longest_in_32_bits = 1ll << 29;
BandOf<std::int32_t> in_32_bits(const Band&);

}  // namespace headroom::attention
