#include "base/error.h"

#include "base/printable.h"

namespace headroom {

Error::Error(At where, std::string_view text) : std::runtime_error(printable(text, Lines::many)), at(where) {}

}  // namespace headroom
