// Numbers, bytes, times and lists as text, and back. A parser that fails throws bad_argument with one line that
// says which option, what was written, and what is allowed.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// Formatting.
std::string bytes_in_words(double bytes);        // "1.50 GiB", "256 B"
std::string bytes_exactly(std::uint64_t bytes);  // "1610612736 bytes (1.50 GiB)"; below a KiB the number alone
std::string time_in_words(double ms);            // "183 µs", "1.23 ms", "12.3 s", "4 min 5 s"
std::string number_in_words(double x);           // four digits that matter: "0.01235", "123.4", "1.2e+12"
// An estimate and the ends of its interval, with no more digits than the interval allows: "960 (580 to 1900)"
std::string estimate_in_words(double x, double low, double high);
std::string counted(std::uint64_t n, std::string_view one);  // "1 step", "2 steps"
std::string joined(const std::vector<std::string>& words, std::string_view between = ", ");
std::string repeated(std::string_view what, int times);
int columns_of(std::string_view utf8);                        // columns that the text takes on a terminal
std::string shortened(const std::string& utf8, int columns);  // "attention_fwd…bf16, 64>": keeps both ends

// Parsing. `who` is the option or key that the value belongs to: "--len".
std::vector<std::string> parse_list(std::string_view text, std::string_view who);  // "a,b,c"; an empty item is an error
struct Between {
  std::int64_t low = 0, high = std::numeric_limits<std::int64_t>::max();
};
std::int64_t parse_integer(std::string_view text, std::string_view who, Between allowed = {});
double parse_number(std::string_view text, std::string_view who, double low, double high);
double parse_fraction(std::string_view text, std::string_view who);  // "0.5%" is 0.005
// "512MiB", "80 GB", "24gib", "4096B"; a number alone is of the usual unit.
std::uint64_t parse_bytes(std::string_view text, std::string_view who, std::string_view usual = "GiB");
bool is_unit_of_bytes(std::string_view word);  // in any letters: "GiB", "gb", "B"
struct NumberAndUnit {
  double number = 0;      // NaN: the text does not begin with one
  std::string_view unit;  // what follows it, without blanks around
};
NumberAndUnit number_and_unit(std::string_view text);

// A word, or a command, as a shell reads it: in quotes where a word has a space or a sign.
std::string as_typed_in_a_shell(const std::string& word);
std::string as_typed_in_a_shell(const std::vector<std::string>& command);

// The most similar candidate, or "" when none is similar.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);
// "; did you mean 'flash'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace headroom
