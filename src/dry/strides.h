// What a kernel of PyTorch that goes by elements touches, from the table of sizes and strides in its parameter (TensorIterator's offset calculator).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dry/record.h"

namespace headroom::dry {

// Sizes of the dimensions, the quickest first, and each operand's strides in bytes.
struct Strides {
  std::vector<std::uint32_t> sizes;
  std::vector<std::vector<std::uint32_t>> operands;  // the result first
};

// The strides in a parameter of `elementwise_kernel`; nothing where it has no such table.
std::optional<Strides> strides_of(const void* parameter, std::size_t bytes);

// By blocks of so many elements that follow each other.
Touched touched_by(const Strides&, std::uint64_t elements, std::uint32_t block);

}  // namespace headroom::dry
