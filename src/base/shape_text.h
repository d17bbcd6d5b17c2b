// A shape as text, for tables and errors.
#pragma once
#include <string>

#include "base/tensor.h"

namespace headroom {

std::string shape_text(const Shape&);  // "8×1×256×256"

}  // namespace headroom
