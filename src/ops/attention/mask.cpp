#include "ops/attention/mask_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace headroom::attention {

namespace {
constexpr std::string_view top_left = ":top-left";
}

std::string name_of(const Mask& m) {
  const std::string_view tail = m.kind != MaskKind::full && m.align == Align::top_left ? top_left : "";
  switch (m.kind) {
    case MaskKind::full: return "full";
    case MaskKind::causal: return fmt::format("causal{}", tail);
    case MaskKind::window: return fmt::format("window:{}{}{}", m.window, m.ahead ? fmt::format("+{}", m.ahead) : "", tail);
  }
  return "?";
}

std::optional<Mask> mask_named(std::string_view text) {
  if (text == "full") return Mask::full();
  Align align = Align::bottom_right;
  if (text.ends_with(top_left)) {
    align = Align::top_left;
    text.remove_suffix(top_left.size());
  }
  if (text == "causal") return Mask::causal(align);
  constexpr std::string_view head = "window:";
  if (!text.starts_with(head)) return std::nullopt;
  text.remove_prefix(head.size());
  const auto number = [](std::string_view digits, std::int64_t least) -> std::optional<std::int64_t> {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error != std::errc() || end != digits.data() + digits.size() || n < least) return std::nullopt;
    return n;
  };
  const auto plus = text.find('+');
  const auto width = number(text.substr(0, plus), 1), ahead = plus == text.npos ? 0 : number(text.substr(plus + 1), 1);
  if (!width || !ahead) return std::nullopt;
  return Mask::sliding(*width, align, *ahead);
}

void check(const Mask& m) {
  headroom::check(m.kind != MaskKind::window || m.window >= 1, Code::bad_argument, "attention: a window of {} keys; it must be at least 1",
                  m.window);
  headroom::check(m.ahead >= 0 && (m.kind == MaskKind::window || m.ahead == 0), Code::bad_argument,
                  "attention: {} keys ahead; it must be at least 0, and only a window has any", m.ahead);
}

Offsets offsets_of(const Mask& m) {
  const bool from_the_end = m.align == Align::bottom_right;
  switch (m.kind) {
    case MaskKind::full: break;
    case MaskKind::causal: return {.high = 0, .from_the_end = from_the_end, .reach = Reach::before};
    case MaskKind::window: return {.low = 1 - m.window, .high = m.ahead, .from_the_end = from_the_end, .reach = Reach::run};
  }
  return {};
}

Band band_of(const Mask& m, std::int64_t len_q, std::int64_t len_k) {
  const Offsets o = offsets_of(m);
  if (o.reach == Reach::all) return {.len_q = len_q, .len_k = len_k, .low = -len_q, .high = len_k};  // beyond either end
  const std::int64_t own = o.from_the_end ? len_k - len_q : 0, all = len_q + len_k;                  // own: key position of row 0
  return {.len_q = len_q, .len_k = len_k, .low = own + std::max(o.low, -all), .high = own + std::min(o.high, all), .reach = o.reach};
}

BandOf<std::int32_t> in_32_bits(const Band& b) {
  check(std::max(b.len_q, b.len_k) <= longest_in_32_bits, Code::unsupported, "attention: a length of {} is past 2^29",
        std::max(b.len_q, b.len_k));
  const auto bounded = [](std::int64_t x) { return std::int32_t(std::clamp<std::int64_t>(x, -(1 << 30), 1 << 30)); };
  return {.len_q = std::int32_t(b.len_q),
          .len_k = std::int32_t(b.len_k),
          .low = bounded(b.low),
          .high = bounded(b.high),
          .reach = b.reach,
          .keys_of = b.keys_of,
          .rows_of = b.rows_of};
}

// Rows' ends move by one key a row between 0 and len_k, so their sum is a run of zeros, a ramp and a run of len_k.
template <>
double Band::visible() const {
  const auto sum_of_ends = [this](std::int64_t end_of_row_0) {
    const std::int64_t ramp = clamp_row(-end_of_row_0), top = std::max(ramp, clamp_row(len_k - end_of_row_0));
    return double(top - ramp) * double(ramp + top - 1 + 2 * end_of_row_0) / 2 + double(len_q - top) * double(len_k);
  };
  return sum_of_ends(high + 1) - sum_of_ends(low);
}

}  // namespace headroom::attention
