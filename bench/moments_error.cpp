// What it costs to store AdamW's moments in 16 or 8 bits: updates from rounded moments against FP64, by way of rounding. Gradients are normal
// numbers of a mean; `spread` is the standard deviation of the natural logarithm of their sizes within a block. The formats under
// comparison are here; those that training uses come from the op (src/ops/adamw/moments.h).
// cmake --build build/release --target moments_error && build/release/bench/moments_error
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "ops/adamw/moments.h"

namespace {

using namespace headroom;
using adamw::Steps;

constexpr int block = int(adamw::moments_block), blocks = 8, n = block * blocks, steps = 2000, warmup = 100;

using Store = std::function<void(float* x, std::uint64_t random)>;  // rounds a block in place

std::uint32_t noise(std::uint64_t i) { return std::uint32_t(Random{99}.bits(i)) & 0xffff; }

float largest_of(const float* x) {
  float largest = 0;
  for (int i = 0; i < block; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

Store in_half(bool stochastic) {
  return [=](float* x, std::uint64_t at) {
    for (int i = 0; i < block; ++i) x[i] = widen(stochastic ? adamw::half_of(x[i], noise(at + std::uint64_t(i))) : narrow<bf16>(x[i]));
  };
}

// The nearest of a table of values from -1 or 0 to 1, times the block's largest.
Store in_table(std::vector<float> table) {
  std::sort(table.begin(), table.end());
  return [=](float* x, std::uint64_t) {
    const float largest = largest_of(x);
    for (int i = 0; largest > 0 && i < block; ++i) {
      const float y = x[i] / largest;
      const auto above = std::min(std::lower_bound(table.begin(), table.end(), y), table.end() - 1);
      const float high = *above, low = above == table.begin() ? high : *(above - 1);
      x[i] = (y - low < high - y ? low : high) * largest;
    }
  };
}
std::vector<float> linear(bool sign) {
  std::vector<float> table;
  const int most = sign ? 127 : 255;
  for (int i = sign ? -most : 0; i <= most; ++i) table.push_back(float(i) / float(most));
  return table;
}
std::vector<float> dynamic(bool sign) {  // as bitsandbytes has it: seven decades, each with twice the values of the one below
  std::vector<float> table{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int many = 1 << (sign ? decade : decade + 1);
    for (int i = 0; i < many; ++i) {
      const double value = std::pow(10.0, decade - 6) * (0.1 + 0.9 * (i + 0.5) / many);
      table.push_back(float(value));
      if (sign) table.push_back(float(-value));
    }
  }
  return table;
}

// Codes of growing steps, of a magnitude. None becomes zero where `positive`.
template <class Of>
Store in_steps(bool stochastic, bool positive) {
  return [=](float* x, std::uint64_t at) {
    const float scale = Of::scale(largest_of(x)), inverse = adamw::inverse_of(scale);
    for (int i = 0; i < block; ++i) {
      std::uint32_t code = Of::code(std::fabs(x[i]), inverse, stochastic ? noise(at + std::uint64_t(i)) : 0x8000);
      if (positive) code = std::max(code, 1u);
      x[i] = std::copysign(Of::value(code, scale), x[i]);
    }
  };
}

struct Way {
  std::string name;
  Store m, v;
};
template <int m, int v>
Way ways_of_steps(bool stochastic) {
  return {std::string("steps, ") + std::to_string(m) + " and " + std::to_string(v) + (stochastic ? " bits" : " bits, nearest"),
          in_steps<Steps<7, m>>(stochastic, false), in_steps<Steps<8, v>>(stochastic, true)};
}

struct Case {
  double spread, share, beta2;  // share: of steps at which a block has gradients at all
  double steady = 0.2;          // mean of a gradient over its standard deviation
};

void compare(const Case& c, const std::vector<Way>& ways) {
  std::printf("\nspread %g, gradients in %g of the steps, beta2 %g, mean %g\n", c.spread, c.share, c.beta2, c.steady);
  std::printf("| moments | error | bias | largest | path |\n|---|---|---|---|---|\n");
  const Random random{1};
  std::vector<double> size(n), mean(n), m(n), v(n), update(n), path(n);
  for (std::size_t i = 0; i < n; ++i) {
    size[i] = 1e-4 * std::exp(c.spread * double(random.normal(i)));
    mean[i] = c.steady * size[i] * double(random.stream(1).normal(i));
  }
  struct State {
    std::vector<float> m = std::vector<float>(n), v = std::vector<float>(n);
    std::vector<double> path = std::vector<double>(n);
    double error = 0, bias = 0, largest = 0;
  };
  std::vector<State> all(ways.size());
  double squares = 0;
  const float beta1 = 0.9f, beta2 = float(c.beta2), rest1 = 0.1f, rest2 = float(1 - c.beta2);
  for (int t = 1; t <= steps; ++t) {
    const double of_m = 1 - std::pow(0.9, t), of_v = 1 - std::pow(c.beta2, t);
    std::vector<float> g(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (random.stream(2).uniform(std::uint64_t(t) * blocks + i / block) < c.share)
        g[i] = float(mean[i] + size[i] * double(random.stream(3).normal(std::uint64_t(t) * n + i)));
      m[i] = 0.9 * m[i] + 0.1 * double(g[i]);
      v[i] = c.beta2 * v[i] + (1 - c.beta2) * double(g[i]) * double(g[i]);
      update[i] = m[i] / of_m / (std::sqrt(v[i] / of_v) + 1e-8);
      path[i] += update[i];
      if (t > warmup) squares += update[i] * update[i];
    }
    for (std::size_t w = 0; w < ways.size(); ++w) {
      State& s = all[w];
      for (std::size_t i = 0; i < n; ++i) {
        s.m[i] = beta1 * s.m[i] + rest1 * g[i];
        s.v[i] = beta2 * s.v[i] + rest2 * g[i] * g[i];
        const double mine = double(s.m[i]) / of_m / (std::sqrt(double(s.v[i]) / of_v) + 1e-8), error = mine - update[i];
        s.path[i] += mine;
        if (t <= warmup) continue;
        s.error += error * error, s.bias += update[i] > 0 ? error : -error, s.largest = std::max(s.largest, std::fabs(mine));
      }
      for (int b = 0; b < blocks; ++b) {
        const auto at = std::uint64_t(t) * 2 * n + std::uint64_t(b * block);
        ways[w].m(s.m.data() + b * block, at), ways[w].v(s.v.data() + b * block, at + n);
      }
    }
  }
  double path_squares = 0;
  for (const double x : path) path_squares += x * x;
  const double count = double(n) * (steps - warmup), rms = std::sqrt(squares / count);
  for (std::size_t w = 0; w < ways.size(); ++w) {
    double apart = 0;
    for (std::size_t i = 0; i < n; ++i) apart += (all[w].path[i] - path[i]) * (all[w].path[i] - path[i]);
    std::printf("| %s | %.1e | %+.1e | %.1f | %.1e |\n", ways[w].name.c_str(), std::sqrt(all[w].error / squares), all[w].bias / count / rms,
                all[w].largest, std::sqrt(apart / path_squares));
  }
}

}  // namespace

int main() {
  const Store whole = [](float*, std::uint64_t) {};
  const std::vector<Way> ways{{"FP32", whole, whole},
                              {"bf16, nearest", in_half(false), in_half(false)},
                              {"bf16", in_half(true), in_half(true)},
                              {"linear, nearest", in_table(linear(true)), in_table(linear(false))},
                              {"dynamic, nearest", in_table(dynamic(true)), in_table(dynamic(false))},
                              ways_of_steps<3, 3>(false),
                              ways_of_steps<4, 4>(false),
                              ways_of_steps<5, 5>(true),
                              ways_of_steps<4, 4>(true),
                              ways_of_steps<4, 3>(true),
                              ways_of_steps<3, 3>(true)};
  for (const Case& c : {Case{0, 1, 0.95}, {1, 1, 0.95}, {2, 1, 0.95}, {1, 0.02, 0.95}, {1, 1, 0.999}, {1, 1, 0.95, 10}, {1, 1, 0.999, 10}})
    compare(c, ways);
}
