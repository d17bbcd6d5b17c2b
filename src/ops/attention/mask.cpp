#include "ops/attention/mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace headroom::attention {

namespace {
constexpr std::string_view top_left = ":top-left";
}

std::string name_of(const Mask& m) {
  const std::string_view tail = m.kind != MaskKind::full && m.align == Align::top_left ? top_left : "";
  switch (m.kind) {
    case MaskKind::full: return "full";
    case MaskKind::causal: return fmt::format("causal{}", tail);
    case MaskKind::window: return fmt::format("window:{}{}", m.window, tail);
  }
  return "?";
}

std::optional<Mask> mask_named(std::string_view text) {
  if (text == "full") return Mask::full();
  Align align = Align::bottom_right;
  if (text.ends_with(top_left)) align = Align::top_left, text.remove_suffix(top_left.size());
  if (text == "causal") return Mask::causal(align);
  constexpr std::string_view head = "window:";
  if (!text.starts_with(head)) return std::nullopt;
  text.remove_prefix(head.size());
  std::int64_t width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  if (error != std::errc() || end != text.data() + text.size() || width < 1) return std::nullopt;
  return Mask::sliding(width, align);
}

Band band_of(const Mask& m, std::int64_t len_q, std::int64_t len_k) {
  Band b{len_q, len_k, 0, 0, 0};
  if (m.kind == MaskKind::full) {
    b.behind = len_q, b.ahead = len_k;  // beyond either end
    return b;
  }
  b.shift = m.align == Align::bottom_right ? len_k - len_q : 0;
  b.behind = m.kind == MaskKind::window ? std::min(m.window - 1, len_q + len_k) : len_q + len_k;
  return b;
}

// Rows' ends move by one key a row between 0 and len_k, so their sum is a run of zeros, a ramp and a run of len_k.
double Band::visible() const {
  const auto sum_of_ends = [this](std::int64_t end_of_row_0) {
    const std::int64_t ramp = clamp_row(-end_of_row_0), top = std::max(ramp, clamp_row(len_k - end_of_row_0));
    return double(top - ramp) * double(ramp + top - 1 + 2 * end_of_row_0) / 2 + double(len_q - top) * double(len_k);
  };
  return sum_of_ends(shift + ahead + 1) - sum_of_ends(shift - behind);
}

}  // namespace headroom::attention
