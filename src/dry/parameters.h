// Where addresses are among the bytes of a kernel's parameter. Two kinds of PyTorch's kernels hold tables of up to 25 dimensions, of which only
// those that are used are written; the rest is what was on the stack before, old addresses among it, and differs from run to run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headroom::dry {

enum class Holds : std::uint8_t {
  anywhere,
  elementwise,  // a table of dimensions, then an address for each operand, then the function
  reduction,    // tables; the last 64 bytes begin with the addresses of the input and of the first result
};

constexpr Holds holds_of(std::string_view kernel) {
  if (kernel.find("6native18elementwise_kernelI") != kernel.npos) return Holds::elementwise;
  if (kernel.find("6native13reduce_kernelI") != kernel.npos) return Holds::reduction;
  return Holds::anywhere;
}

struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

// For a parameter of so many bytes. Sizes are divided by multiplication (three words each), and each operand has strides (a word each).
constexpr ByteRange addresses_within(Holds holds, std::size_t bytes) {
  constexpr std::size_t dimensions = 25, word = 4, address = 8, end_of_reduction = 64;
  if (holds == Holds::reduction && bytes > end_of_reduction) return {bytes - end_of_reduction, bytes - end_of_reduction + 2 * address};
  ByteRange found{0, bytes};
  if (holds != Holds::elementwise) return found;
  for (std::size_t operands = 1;; ++operands) {
    const std::size_t table = word + dimensions * (3 + operands) * word, begin = (table + address - 1) / address * address;
    if (begin + operands * address > bytes) return found;
    found = {begin, begin + operands * address};
  }
}

}  // namespace headroom::dry
