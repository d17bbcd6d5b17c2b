// mask_named: a text is a mask whose name is that text again (or names the same mask), or it is nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "ops/attention/mask_name.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom::attention;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto mask = mask_named(text);
  if (!mask) return 0;
  const auto again = mask_named(name_of(*mask));
  if (!again || *again != *mask) std::abort();
  const Band band = band_of(*mask, 7, 5);
  for (std::int64_t row = 0; row < 7; ++row)
    for (std::int64_t key = 0; key < 5; ++key)
      if (band.sees(row, key) != (row >= band.first_row(key) && row < band.last_row(key))) std::abort();
  return 0;
}
