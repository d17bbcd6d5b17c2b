// A sum of equal numbers in each format: value, error, the addition from which it stalls and why, and the results of
// pairwise, Kahan, blocked and stochastically rounded sums of the same numbers.
// Every addition is rounded to the sum's format, nearest even: fp32 arithmetic and one conversion give exactly that, as fp32
// has more than twice the digits of every narrower format.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/place.h"
#include "report/record.h"

namespace headroom::studies::precision {

struct AccumulateSettings {
  struct Sum {
    double value = 0.01;
    std::int64_t count = 1000;
  };
  std::vector<Sum> sums{{0.01, 1000}, {0.001, 10000}};
  std::vector<std::string> dtypes{"fp32", "fp16", "bf16", "e4m3", "e5m2"};  // formats of the sum or the addend
  std::vector<std::string> methods{"sequential", "pairwise", "kahan", "blocked", "stochastic"};
  std::int64_t block = 32;  // addends that a blocked sum adds before it adds them to the total
  std::uint64_t seed = 0;   // seed of stochastic rounding
};

std::vector<std::string> accumulate_methods();
std::vector<std::string> accumulate_dtypes();

void describe(Of<AccumulateSettings> auto& s, auto&& f) {
  f(s.dtypes, {.name = "dtype", .about = "Formats of the sum and of what is added", .choices = accumulate_dtypes});
  f(s.methods, {.name = "method", .about = "How numbers are added", .choices = accumulate_methods});
  f(s.block, {.name = "block", .about = "Numbers in a block of the blocked sum", .allowed = {1, 1'000'000}});
  f(s.seed, {.name = "seed"});
}

struct Stall {
  std::int64_t step = 0;  // the first addition, from 1, from which on nothing changes any more, however many follow
  double at = 0;          // the sum, from then on
};

struct Accumulation {
  std::string experiment, method, dtype, addend_dtype;
  double value = 0;
  std::int64_t count = 0;
  double addend = 0;  // the value, rounded to the addend's format
  double result = 0, exact = 0;
  std::optional<Stall> stall;            // it did
  std::optional<Stall> block_stall;      // for blocked sums: inside every block, counted from its first addend
  std::optional<double> would_stall_at;  // it has not yet, but will at this sum if the range reaches so far
  std::string why;
  std::vector<std::pair<double, double>> path;  // additions, relative error of the running sum
  double error() const;                         // relative
};

std::vector<Accumulation> accumulate(const AccumulateSettings&);
Record accumulate_record(const AccumulateSettings&, const Place* card = nullptr);  // a card: its results beside the CPU's

}  // namespace headroom::studies::precision
