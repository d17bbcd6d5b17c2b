#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace headroom {

std::string number_in_words(double x) {
  if (!std::isfinite(x)) return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
  if (x != 0 && (std::abs(x) >= 1e6 || std::abs(x) < 1e-4)) return fmt::format("{:.2e}", x);
  return std::abs(x) >= 1e4 ? fmt::format("{:.0f}", x) : fmt::format("{:.4g}", x);
}

std::string estimate_in_words(double x, double low, double high) {
  const auto step = [&](double of) {  // two digits; three where the ends are within a tenth
    const double digits = high - low > 0.1 * x ? 1 : 2;
    return std::pow(10.0, std::floor(std::log10(of)) - digits);
  };
  const auto rounded = [&](double of) {
    if (!(of > 0 && std::isfinite(of))) return number_in_words(of);
    const double known = std::round(of / step(of)) * step(of);
    return known >= 1e4 && known < 1e15 ? fmt::format("{:.0f}", known) : number_in_words(known);
  };
  return fmt::format("{} ({} to {})", rounded(x), rounded(low), rounded(high));
}

std::string bytes_in_words(double bytes) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  double x = bytes;
  while (std::abs(x) >= 1024 && unit + 1 < std::size(units)) {
    x /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", x);
  return fmt::format("{:.{}f} {}", x, std::abs(x) < 10 ? 2 : std::abs(x) < 100 ? 1 : 0, units[unit]);
}

std::string bytes_exactly(std::uint64_t bytes) {
  return bytes < 1024 ? fmt::format("{} bytes", bytes) : fmt::format("{} bytes ({})", bytes, bytes_in_words(double(bytes)));
}

std::string time_in_words(double ms) {
  if (ms < 1) return fmt::format("{:.3g} µs", ms * 1e3);
  if (ms < 1e3) return fmt::format("{:.3g} ms", ms);
  const double s = ms / 1e3;
  if (s < 60) return fmt::format("{:.3g} s", s);
  const auto whole = std::int64_t(std::llround(s));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string counted(std::uint64_t n, std::string_view one) { return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s"); }

std::string joined(const std::vector<std::string>& words, std::string_view between) { return fmt::format("{}", fmt::join(words, between)); }

std::string repeated(std::string_view what, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += what;
  return out;
}

int columns_of(std::string_view utf8) {
  return int(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string shortened(const std::string& utf8, int columns) {
  if (columns_of(utf8) <= columns) return utf8;
  const auto at = [&](int column) {  // byte offset of that character
    std::size_t i = 0;
    for (int passed = -1; i < utf8.size(); ++i)
      if ((static_cast<unsigned char>(utf8[i]) & 0xc0) != 0x80 && ++passed == column) break;
    return i;
  };
  const int tail = columns * 2 / 5;
  return utf8.substr(0, at(columns - 1 - tail)) + "…" + utf8.substr(at(columns_of(utf8) - tail));
}

std::vector<std::string> parse_list(std::string_view text, std::string_view who) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at <= text.size();) {
    const auto comma = std::min(text.find(',', at), text.size());
    items.emplace_back(text.substr(at, comma - at));
    check(!items.back().empty(), Code::bad_argument,
          "{}: '{}' has an empty item; write a list as {} first,second without a comma at either end", who, text, who);
    at = comma + 1;
  }
  return items;
}

std::int64_t parse_integer(std::string_view text, std::string_view who, Between allowed) {
  std::int64_t x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  const bool read = error == std::errc() && end == text.data() + text.size();
  if (read && x >= allowed.low && x <= allowed.high) return x;
  const std::string_view rest(end, std::size_t(text.data() + text.size() - end));
  const bool thousands = rest == "k" || rest == "K", millions = rest == "m" || rest == "M";
  if (error == std::errc() && (thousands || millions) && x > 0 && x < 1 << 20)
    throw Error(Code::bad_argument, fmt::format("{}: '{}' is {} to some and {} to others; write the number that is meant", who, text,
                                                x * (thousands ? 1000 : 1000000), x * (thousands ? 1024 : 1024 * 1024)));
  const bool beyond = error == std::errc::result_out_of_range && !text.starts_with("-");  // then the limit is what has to be said
  if (allowed.high == std::numeric_limits<std::int64_t>::max() && !beyond)
    throw Error(Code::bad_argument, fmt::format("{}: '{}' is not a whole number of at least {}", who, text, allowed.low));
  throw Error(Code::bad_argument, fmt::format("{}: '{}' is not a whole number from {} to {}", who, text, allowed.low, allowed.high));
}

namespace {

// The number at the front and the text after it; NaN when there is no number.
std::pair<double, std::string_view> leading_number(std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc()) return {std::nan(""), text};
  return {x, text.substr(std::size_t(end - text.data()))};
}

}  // namespace

double parse_number(std::string_view text, std::string_view who, double low, double high) {
  const auto [x, rest] = leading_number(text);
  check(rest.empty() && x >= low && x <= high, Code::bad_argument, "{}: '{}' is not a number from {} to {}", who, text,
        number_in_words(low), number_in_words(high));
  return x;
}

double parse_fraction(std::string_view text, std::string_view who) {
  const auto [x, unit] = number_and_unit(text);
  check((unit == "%" || unit.empty()) && x > 0 && (unit == "%" ? x < 100 : x < 1), Code::bad_argument,
        "{}: '{}' is not a share; write 0.5% or 0.005", who, text);
  return unit == "%" ? x / 100 : x;
}

namespace {

constexpr std::pair<std::string_view, double> units_of_bytes[] = {
    {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},    {"MB", 1e6},
    {"GB", 1e9}, {"TB", 1e12},    {"Ki", 0x1p10},  {"Mi", 0x1p20},  {"Gi", 0x1p30},  {"Ti", 0x1p40},
};

bool same_letters(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return small(x) == small(y); });
}

double bytes_of_unit(std::string_view word) {  // 0: it is no unit
  for (const auto& [unit, bytes] : units_of_bytes)
    if (same_letters(word, unit)) return bytes;
  return 0;
}

std::string_view without_blanks_around(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r";
  const auto first = text.find_first_not_of(blanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace

NumberAndUnit number_and_unit(std::string_view text) {
  const auto [x, rest] = leading_number(without_blanks_around(text));
  return {x, without_blanks_around(rest)};
}

bool is_unit_of_bytes(std::string_view word) { return bytes_of_unit(word) > 0; }

std::uint64_t parse_bytes(std::string_view text, std::string_view who, std::string_view usual) {
  const auto [x, unit] = number_and_unit(text);
  const double bytes = x * bytes_of_unit(unit.empty() ? usual : unit);
  if (bytes >= 1 && bytes < 0x1p62) return std::uint64_t(bytes);
  for (const char letter : std::string_view("KMGT"))  // 24G
    check(!(x > 0) || !same_letters(unit, {&letter, 1}), Code::bad_argument,
          "{}: '{}' is {:g} {}iB to some and {:g} {}B to others; write the one that is meant", who, text, x, letter, x, letter);
  throw Error(Code::bad_argument,
              fmt::format("{}: '{}' is not an amount of memory; write {} as a number (24) or with a unit (512MiB, 80GB)", who, text,
                          usual == "B" ? "bytes" : usual));
}

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string& c : candidates) {  // edit distance in which swapping two neighbours counts once
    std::vector<std::vector<std::size_t>> d(word.size() + 1, std::vector<std::size_t>(c.size() + 1));
    for (std::size_t i = 0; i <= word.size(); ++i)
      for (std::size_t j = 0; j <= c.size(); ++j) {
        if (i == 0 || j == 0) {
          d[i][j] = i + j;
          continue;
        }
        const bool same = same_letters({&word[i - 1], 1}, {&c[j - 1], 1});
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
        if (i > 1 && j > 1 && word[i - 1] == c[j - 2] && word[i - 2] == c[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    if (d[word.size()][c.size()] < best_distance) {
      best_distance = d[word.size()][c.size()];
      best = c;
    }
  }
  return best;
}

std::string as_typed_in_a_shell(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=%+@{}";
  const bool braces_expand = word.find('{') != word.npos && (word.find(',') != word.npos || word.find("..") != word.npos);
  if (!word.empty() && !braces_expand && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string as_typed_in_a_shell(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const std::string& word : command) words.push_back(as_typed_in_a_shell(word));
  return joined(words, " ");
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = closest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
}

}  // namespace headroom
