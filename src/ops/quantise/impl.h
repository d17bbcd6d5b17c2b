// The implementations behind quantise.cpp, which has checked the arguments and allocated the scratch.
#pragma once
#include "ops/quantise/quantise.h"

namespace headroom::quantise {

struct Maxima {    // FP32, of each strip of 128 rows; none where no scale reaches beyond a strip
  Tensor strips;   // [strips]
  Tensor columns;  // [strips, columns]
};

void quantise_cpu(const Request&, const Maxima&, Context&);

}  // namespace headroom::quantise
