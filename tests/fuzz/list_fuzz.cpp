// Values as typed on a command line: understood, or refused with one line that says why; nothing else.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace {

using namespace headroom;

template <class Parse>
void understood_or_refused(Parse&& parse) {
  try {
    parse();
  } catch (const Error& e) {
    if (e.at.code != Code::bad_argument || !*e.what()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  understood_or_refused([&] {
    const auto items = parse_list(text, "--len");
    if (items.empty()) std::abort();
    for (const auto& item : items) {
      if (item.empty()) std::abort();
      understood_or_refused([&] {
        const auto n = parse_integer(item, "--len", {1, 65536});
        if (n < 1 || n > 65536) std::abort();
      });
    }
  });
  understood_or_refused([&] {
    const double x = parse_number(text, "--scale", -2.0, 2.0);
    if (!(x >= -2.0 && x <= 2.0)) std::abort();
  });
  understood_or_refused([&] {
    const double x = parse_fraction(text, "--until");
    if (!(x >= 0.0)) std::abort();
  });
  understood_or_refused([&] { parse_bytes(text, "--memory"); });
  closest(text.substr(0, 64), {"plain", "flash", "all"});
  columns_of(text);
  return 0;
}
