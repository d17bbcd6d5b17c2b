// Quiet — an Error that another rank prints: this rank ends with the same code and prints nothing.
#pragma once
#include "base/error.h"

namespace headroom::dist {

struct Quiet : Error {
  using Error::Error;
};

}  // namespace headroom::dist
