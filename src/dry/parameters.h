// Where addresses are among the bytes of a kernel's parameter, and which parameters a kernel writes through, by its name. Kernels of PyTorch hold tables
// with room for 25 dimensions or 110 tensors, of which only those that are used are written; the rest is what was on the stack before, old addresses
// among it, and differs from run to run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace headroom::dry {

enum class Holds : std::uint8_t {
  anywhere,
  elementwise,  // a table of dimensions, then an address for each operand, then the function
  reduction,    // tables; the last 64 bytes begin with the addresses of the input and of the first result
  tensor_info,  // an address, then tables of dimensions, in each parameter that is as long as such a description of a tensor
};

constexpr Holds holds_of(std::string_view kernel) {
  if (kernel.find("6native18elementwise_kernelI") != kernel.npos) return Holds::elementwise;
  if (kernel.find("6native13reduce_kernelI") != kernel.npos) return Holds::reduction;
  if (kernel.find("10TensorInfoI") != kernel.npos) return Holds::tensor_info;
  return Holds::anywhere;
}

// Elements of a block of `elementwise_kernel<threads, elements of each>`; 0 of another kernel.
constexpr std::uint32_t block_elements_of(std::string_view kernel) {
  constexpr std::string_view before = "18elementwise_kernelI";
  std::size_t at = kernel.find(before);
  if (at == kernel.npos) return 0;
  at += before.size();
  std::uint32_t product = 1;
  for (int number = 0; number < 2; ++number) {
    if (kernel.substr(at, 2) != "Li") return 0;
    std::uint32_t value = 0;
    for (at += 2; at < kernel.size() && kernel[at] >= '0' && kernel[at] <= '9'; ++at) value = value * 10 + std::uint32_t(kernel[at] - '0');
    product *= value;
    ++at;  // its E
  }
  return product;
}

struct ByteRange {
  std::size_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

// For a parameter of so many bytes. Sizes are divided by multiplication (three words each), and each operand has strides (a word each).
constexpr ByteRange addresses_within(Holds holds, std::size_t bytes) {
  constexpr std::size_t dimensions = 25, word = 4, address = 8, end_of_reduction = 64;
  if (holds == Holds::reduction && bytes > end_of_reduction) return {bytes - end_of_reduction, bytes - end_of_reduction + 2 * address};
  for (const std::size_t index : {4, 8})  // sizes, strides, and how many of them are used
    if (holds == Holds::tensor_info && bytes == address + 2 * dimensions * index + 8) return {0, address};
  ByteRange found{0, bytes};
  if (holds != Holds::elementwise) return found;
  for (std::size_t operands = 1;; ++operands) {
    const std::size_t table = word + dimensions * (3 + operands) * word, begin = (table + address - 1) / address * address;
    if (begin + operands * address > bytes) return found;
    found = {begin, begin + operands * address};
  }
}

// A table of tensors that one launch updates (multi_tensor_apply_kernel): so many lists with room for `room` addresses each, the tensors' sizes, other
// words of them, and for each of up to 320 blocks the number of its tensor, a byte, and of its piece.
struct Lists {
  std::size_t depth = 0;  // 0: no such table
  std::size_t room = 0, other_words = 0, end_words = 0;
  bool operator==(const Lists&) const = default;
  constexpr std::size_t blocks_at() const { return 8 * (depth + 1) * room + other_words; }
  constexpr std::size_t bytes() const { return (blocks_at() + 5 * most_blocks + end_words + 7) / 8 * 8; }

  static constexpr std::size_t most_blocks = 320;
};

constexpr Lists lists_of(std::string_view kernel) {
  constexpr std::size_t room[] = {110, 64, 48, 36, 30}, room_with_numbers[] = {96, 64, 48, 36, 30};
  const auto digit_behind = [&](std::string_view words) -> std::size_t {
    const std::size_t at = kernel.find(words);
    const std::size_t digit = at == kernel.npos || at + words.size() >= kernel.size() ? 0 : std::size_t(kernel[at + words.size()] - '0');
    return digit >= 1 && digit <= 5 ? digit : 0;
  };
  if (kernel.find("multi_tensor_apply_kernelI") == kernel.npos) return {};
  if (const std::size_t n = digit_behind("18TensorListMetadataILi")) return {n, room[n - 1], 0, 4};
  if (const std::size_t n = digit_behind("FusedOptimizerTensorListMetadataILi")) return {n, room[n - 1], 8 * room_with_numbers[n - 1], 4};
  for (const auto& [type, bytes] : {std::pair{"TensorListScalarListMetadataIfLi", 4}, {"TensorListScalarListMetadataIdLi", 8}})
    if (const std::size_t n = digit_behind(type)) return {n, room_with_numbers[n - 1], std::size_t(bytes) * room_with_numbers[n - 1], 0};
  return {};
}

// How many tensors a launch of so many blocks has: those up to its last block's.
inline std::size_t tensors_of(const Lists& l, const void* table, std::size_t blocks) {
  if (blocks < 1 || blocks > Lists::most_blocks) return l.room;
  const std::size_t last = static_cast<const unsigned char*>(table)[l.blocks_at() + blocks - 1];
  return last < l.room ? last + 1 : l.room;
}

struct Written {
  std::size_t parameters = 0;  // how many the name tells; another number than the kernel has: it was not understood
  std::uint64_t which = 0;     // by number, as bits
  bool operator==(const Written&) const = default;
};

// The parameters that are addresses and not constant: "…22gather_keep_from_maskEPbPKyi" writes through its first. PyTorch's own kernels are left out: an
// observer sees their operations.
constexpr Written written_by(std::string_view kernel) {
  const std::size_t end = kernel.rfind('E');
  if (!kernel.starts_with("_Z") || end == kernel.npos || kernel.find("2at6native") != kernel.npos) return {};
  std::string_view rest = kernel.substr(end + 1);
  if (rest.starts_with('v')) rest.remove_prefix(1);  // what a template returns; alone it is a list without parameters
  Written written;
  for (; !rest.empty() && written.parameters < 64; ++written.parameters) {
    const bool address = rest.starts_with('P');
    if (address) rest.remove_prefix(1);
    const bool constant = rest.starts_with('K');
    if (constant) rest.remove_prefix(1);
    if (rest.starts_with('T') || rest.starts_with('S')) {  // a template's parameter, or a type that was there before
      const std::size_t last = rest.find('_');
      if (last == rest.npos) return {};
      rest.remove_prefix(last + 1);
    } else if (!rest.empty() && rest[0] >= 'a' && rest[0] <= 'z') {
      rest.remove_prefix(1);
    } else {
      return {};
    }
    if (address && !constant) written.which |= std::uint64_t(1) << written.parameters;
  }
  return written;
}

}  // namespace headroom::dry
