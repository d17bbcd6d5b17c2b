// A shape as people write it, in tables and in errors.
#pragma once
#include <string>

#include "base/tensor.h"

namespace headroom {

std::string shape_text(const Shape&);  // "8×1×256×256"

}  // namespace headroom
