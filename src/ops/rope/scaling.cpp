#include "ops/rope/scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace headroom::rope {

namespace {

constexpr double turn = 2 * std::numbers::pi;

// Llama 3.1: wavelengths longer than original / low are stretched, those shorter than original / high stay.
double llama3(double frequency, const Positions& p) {
  const double wavelength = turn / frequency;
  if (wavelength > p.original / p.low) return frequency / p.factor;
  if (wavelength < p.original / p.high) return frequency;
  const double smooth = (p.original / wavelength - p.low) / (p.high - p.low);
  return (1 - smooth) * frequency / p.factor + smooth * frequency;
}

// YaRN: frequency i is kept below the ramp's low end and stretched above its high end.
std::vector<double> yarn(std::vector<double> plain, const Positions& p, std::int64_t dim) {
  const auto end = [&](double turns) { return double(dim) * std::log(p.original / (turns * turn)) / (2 * std::log(p.theta)); };
  double low = end(p.fast), high = end(p.slow);
  if (p.whole_ends) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, double(dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double stretched = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    plain[i] = plain[i] / p.factor * stretched + plain[i] * (1 - stretched);
  }
  return plain;
}

double magnitude_of(const Positions& p) {
  if (p.magnitude > 0) return p.magnitude;
  if (p.factor <= 1) return 1;
  if (p.scaling == Scaling::yarn) return 0.1 * std::log(p.factor) + 1;
  return p.scaling == Scaling::longrope ? std::sqrt(1 + std::log(p.factor) / std::log(p.original)) : 1;
}

}  // namespace

Frequencies frequencies(const Positions& p, std::int64_t dim, std::int64_t len) {
  const auto pairs = std::size_t(dim / 2);
  double theta = p.theta;
  if (p.scaling == Scaling::dynamic && double(len) > p.original)
    theta *= std::pow(p.factor * double(len) / p.original - (p.factor - 1), double(dim) / double(dim - 2));
  Frequencies f;
  for (std::size_t i = 0; i < pairs; ++i) f.of_pair.push_back(std::pow(theta, -double(i) / double(pairs)));
  f.magnitude = magnitude_of(p);
  switch (p.scaling) {
    case Scaling::none:
    case Scaling::dynamic: break;
    case Scaling::linear:
      for (double& x : f.of_pair) x /= p.factor;
      break;
    case Scaling::llama3:
      for (double& x : f.of_pair) x = llama3(x, p);
      break;
    case Scaling::yarn: f.of_pair = yarn(std::move(f.of_pair), p, dim); break;
    case Scaling::longrope: {
      const auto& factors = double(len) > p.original ? p.long_factors : p.short_factors;
      check(factors.size() == pairs, Code::bad_argument, "rope: longrope has {} factors, the heads turn in {} pairs", factors.size(),
            pairs);
      for (std::size_t i = 0; i < pairs; ++i) f.of_pair[i] /= factors[i];
      break;
    }
    case Scaling::unknown: throw Error(Code::unsupported, "rope: this scaling of the rotary positions is not known");
  }
  return f;
}

}  // namespace headroom::rope
