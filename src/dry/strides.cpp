#include "dry/strides.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace headroom::dry {

namespace {

constexpr std::size_t most_dimensions = 25, word = 4, address = 8;

std::uint32_t word_at(const void* from, std::size_t index) {
  std::uint32_t value = 0;
  std::memcpy(&value, static_cast<const char*>(from) + index * word, word);
  return value;
}

// A size is divided by with three words; then come the strides.
constexpr std::size_t words_of_table(std::size_t operands) { return 1 + most_dimensions * (3 + operands); }

std::size_t operands_within(std::size_t bytes) {
  std::size_t operands = 0;
  while ((words_of_table(operands + 1) * word + address - 1) / address * address + (operands + 1) * address <= bytes) ++operands;
  return operands;
}

std::uint64_t offset_of(const Strides& s, std::size_t operand, std::uint64_t element) {
  std::uint64_t offset = 0;
  for (std::size_t d = 0; d < s.sizes.size(); ++d) {
    offset += element % s.sizes[d] * s.operands[operand][d];
    element /= s.sizes[d];
  }
  return offset;
}

// So many elements go by until the operand is asked for the same sector again: 1 where that is the next one.
std::uint64_t elements_between(const Strides& s, std::size_t operand, std::uint32_t sector) {
  std::uint64_t between = 1, found = 1;
  std::uint32_t least = sector;
  for (std::size_t d = 0; d < s.sizes.size(); ++d) {
    const std::uint32_t stride = s.operands[operand][d];
    if (stride != 0 && stride < least && s.sizes[d] > 1) {
      least = stride;
      found = between;
    }
    between *= s.sizes[d];
  }
  return found;
}

std::uint64_t bytes_of_operand(const Strides& s, std::size_t operand) {
  std::uint64_t count = 1, step = 0;
  for (std::size_t d = 0; d < s.sizes.size(); ++d) {
    if (s.operands[operand][d] == 0) continue;
    count *= s.sizes[d];
    step = std::gcd(step, std::uint64_t(s.operands[operand][d]));
  }
  return count * std::clamp<std::uint64_t>(step, 1, 32);
}

// So many pieces of memory each group of neighbouring elements reads, summed. Some blocks stand for all.
std::uint64_t pieces_of(const Strides& s, std::size_t operand, std::uint64_t elements, std::uint32_t block, std::uint32_t group,
                        std::uint32_t piece_bytes) {
  constexpr std::uint64_t looks = 4;
  const std::uint64_t blocks = (elements + block - 1) / block, looked = std::min(blocks, looks);
  std::uint64_t found = 0;
  std::vector<std::uint64_t> pieces;
  for (std::uint64_t look = 0; look < looked; ++look) {
    const std::uint64_t begin = look * blocks / looked * block, end = std::min(elements, begin + block);
    for (std::uint64_t first = begin; first < end; first += group) {
      pieces.clear();
      for (std::uint64_t e = first; e < std::min(end, first + group); ++e) pieces.push_back(offset_of(s, operand, e) / piece_bytes);
      std::sort(pieces.begin(), pieces.end());
      found += std::uint64_t(std::unique(pieces.begin(), pieces.end()) - pieces.begin());
    }
  }
  return looked > 0 ? found * blocks / looked : 0;
}

}  // namespace

std::optional<Strides> strides_of(const void* parameter, std::size_t bytes) {
  const std::size_t operands = operands_within(bytes), dimensions = bytes < word ? 0 : word_at(parameter, 0);
  if (operands == 0 || dimensions > most_dimensions) return {};
  Strides s;
  s.operands.resize(operands);
  for (std::size_t d = 0; d < dimensions; ++d) {
    s.sizes.push_back(word_at(parameter, 1 + 3 * d));
    if (s.sizes.back() == 0) return {};
    for (std::size_t k = 0; k < operands; ++k) s.operands[k].push_back(word_at(parameter, 1 + 3 * most_dimensions + d * operands + k));
  }
  return s;
}

Touched touched_by(const Strides& s, std::uint64_t elements, std::uint32_t block) {
  constexpr std::uint32_t warp = 32, sector = 32, line = 128;
  Touched t{};
  t.elements = elements, t.dimensions = s.sizes.size();
  std::uint64_t between = 1;
  for (std::size_t k = 0; k < s.operands.size(); ++k) between = std::max(between, elements_between(s, k, sector));
  double reread = 0;
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    const std::uint64_t bytes = bytes_of_operand(s, k);
    t.bytes += bytes;
    t.block_sectors += pieces_of(s, k, elements, block, block, sector);
    t.warp_lines += pieces_of(s, k, elements, block, warp, line);
    const double lines = double(pieces_of(s, k, elements, block, block, line));
    reread += std::min(double(between) * lines * line / double(elements), double(bytes));
  }
  if (between > 1) t.reread_bytes = std::uint64_t(reread);
  return t;
}

}  // namespace headroom::dry
