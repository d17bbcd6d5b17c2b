// Which sizes of a model a GPU's 8-bit units do not take.
#pragma once
#include <string>

#include "engine/training.h"

namespace headroom::engine {

std::string fp8_misfit(const Recipe&, const Device&);  // a sentence; empty: all fit, or it is not fp8 on a GPU

}  // namespace headroom::engine
