// Signal over error in dB: 10 log10 of the exact values' squares over the errors' squares.
#pragma once
#include <cmath>
#include <span>

#include "report/record.h"

namespace headroom::studies::precision {

template <class F>
Value decibels_of(std::span<const double> exact, F&& got) {  // got(i): the value beside exact[i]
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = double(got(i)) - exact[i];
    signal += exact[i] * exact[i];
    noise += error * error;
  }
  return noise == 0 ? Value(std::string("exact")) : Value(10 * std::log10(signal / noise));
}

}  // namespace headroom::studies::precision
