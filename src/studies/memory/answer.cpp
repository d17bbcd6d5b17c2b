#include "studies/memory/answer.h"

namespace headroom::studies {

std::string fits_in_words(const Room& room, const Device& device, std::uint64_t peak, Besides besides) {
  const std::uint64_t needed = room.needed_bytes(peak, besides.pinned_bytes);
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  const std::string where = room.gpus > 1 ? fmt::format("{} × {}", room.gpus, device.name) : device.name,
                    of = words(room.memory_bytes) + (room.gpus > 1 ? " each" : "");
  if (room.holds(peak, besides.pinned_bytes))
    return fmt::format("Fits on {}: {} of {}", where, words(needed), of) +
           (room.holds(besides.peak_of_others, besides.pinned_bytes)
                ? ""
                : fmt::format(" (some programs would not: up to {})",
                              words(room.needed_bytes(besides.peak_of_others, besides.pinned_bytes)))) +
           (besides.host_bytes == 0
                ? ""
                : fmt::format(", and {} of host memory{}", words(besides.host_bytes), room.gpus > 1 ? " for each" : ""));
  return fmt::format("Does not fit on {}: it needs {} of {}, {} too much", where, words(needed), of, words(needed - room.memory_bytes));
}

std::string fits_in_words(const Room& room, const Device& device, std::size_t fitting, std::size_t rows) {
  return fmt::format("{} of {} rows fit on {}{} in {}", fitting, rows, room.gpus > 1 ? fmt::format("each of {} × ", room.gpus) : "",
                     device.name, bytes_in_words(double(room.memory_bytes)));
}

std::string as_it_is_in_words(std::optional<int> gpus, std::string_view with) {
  return gpus ? fmt::format(" As it is it takes {} such GPUs (--gpus {} --shard everything{}).", *gpus, *gpus, with) : "";
}

}  // namespace headroom::studies
