// Quiet — an Error that this process does not print, because another rank does or because no reader is left. It ends with its code.
#pragma once
#include "base/error.h"

namespace headroom::dist {

struct Quiet : Error {
  using Error::Error;
};

}  // namespace headroom::dist
