// The largest size whose bytes stay within a limit, asked of few sizes: bytes of most things grow along a line.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace headroom {

inline constexpr std::uint64_t no_memory_holds = std::numeric_limits<std::uint64_t>::max();  // bytes of a size that cannot be

// The largest n in [0, most] with bytes_of(n) <= limit; bytes_of never falls. It is found where a line meets the limit: through the last two sizes
// that do not fit, or through one of each. Where the bytes are no line the next guess overshoots, by more each time, and in the end the rest is
// bisected. A size near which the answer may lie is asked first, after 1.
template <class BytesOf>
std::int64_t largest_within(std::int64_t most, std::uint64_t limit, BytesOf bytes_of, std::int64_t near_by = 4) {
  struct Size {
    std::int64_t n;
    std::uint64_t bytes;
  };
  if (most < 1) return 0;
  Size yes{1, bytes_of(1)};
  if (yes.bytes > limit) return 0;
  std::optional<Size> no, larger_no, smaller_yes;
  bool fitted = true;
  int on_one_side = 0;
  for (int tried = 1; yes.n < most && (!no || no->n - yes.n > 1); ++tried) {
    const std::int64_t next = tried == 1 ? std::max<std::int64_t>(near_by, 2) : 4 * yes.n;
    const std::int64_t farthest = no ? no->n - 1 : std::min(most, std::max(next, 8 * yes.n));
    std::int64_t n = no ? yes.n + (no->n - yes.n) / 2 : std::min(next, farthest);
    const bool past = larger_no && !fitted && larger_no->bytes != no_memory_holds && larger_no->bytes != no->bytes;
    const auto& other = past ? larger_no : no ? no : smaller_yes;
    const Size& one = past ? *no : yes;
    if (other && other->bytes != no_memory_holds && other->bytes != one.bytes && tried <= 16) {
      const double sizes_per_byte = double(other->n - one.n) / (double(other->bytes) - double(one.bytes));
      const double beyond = no ? double((std::int64_t(1) << on_one_side) - 1) : 1;
      const double at = double(one.n) + (double(limit) - double(one.bytes)) * sizes_per_byte + (fitted ? beyond : -beyond);
      n = std::int64_t(std::clamp(at, double(yes.n + 1), double(farthest)));
    }
    const Size asked{n, bytes_of(n)};
    const bool fits = asked.bytes <= limit;
    on_one_side = no && fits == fitted ? on_one_side + 1 : 0;
    fitted = fits;
    if (fits)
      smaller_yes = yes, yes = asked;
    else
      larger_no = no, no = asked;
  }
  return yes.n;
}

}  // namespace headroom
