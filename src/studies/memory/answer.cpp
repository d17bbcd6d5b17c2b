#include "studies/memory/answer.h"

namespace headroom::studies {

std::string fits_in_words(const Room& room, const Device& device, std::uint64_t peak) {
  const std::uint64_t needed = room.needed_bytes(peak);
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  if (room.holds(peak)) return fmt::format("Fits on {}: {} of {}", device.name, words(needed), words(room.memory_bytes));
  return fmt::format("Does not fit on {}: it needs {} of {}, {} too much", device.name, words(needed), words(room.memory_bytes),
                     words(needed - room.memory_bytes));
}

std::string fits_in_words(const Room& room, const Device& device, std::size_t fitting, std::size_t rows) {
  return fmt::format("{} of {} rows fit on {} in {}", fitting, rows, device.name, bytes_in_words(double(room.memory_bytes)));
}

}  // namespace headroom::studies
