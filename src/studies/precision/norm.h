// Errors of LayerNorm and RMSNorm in each format, with statistics in fp32 and in the format itself, against FP64 on the same
// (already rounded) inputs: error by width and magnitude, where squares overflow, where epsilon is lost, and the range of
// magnitudes in which the output is correct.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gpu/place.h"
#include "report/record.h"

namespace headroom::studies::precision {

// An output is right when it is finite and its RMS error is at most this share of its RMS.
constexpr double norm_tolerance = 0.01;

struct NormSettings {
  std::vector<std::string> norms{"layernorm", "rmsnorm"};
  std::vector<std::string> dtypes{"fp32", "bf16", "fp16"};
  std::vector<std::int64_t> widths{64, 4096};
  std::vector<double> magnitudes{1e-3, 1, 100, 10000};  // standard deviation of the inputs
  std::vector<double> eps{1e-5};
  std::int64_t rows = 4;  // vectors that each number is measured on
  std::uint64_t seed = 0;
};

std::vector<std::string> norm_names();
std::vector<std::string> norm_dtypes();

void describe(Of<NormSettings> auto& s, auto&& f) {
  constexpr double fp32_largest = std::numeric_limits<float>::max();
  f(s.norms, {.name = "norm", .about = "Which normalisation", .choices = norm_names});
  f(s.dtypes,
    {.name = "dtype", .about = "Format of inputs and outputs; each with statistics in fp32 and in itself", .choices = norm_dtypes});
  f(s.widths, {.name = "width", .about = "Numbers that are normalised together", .allowed = {1, 1'000'000}});
  f(s.magnitudes, {.name = "magnitude", .about = "Standard deviations of the inputs", .real = {1e-40, fp32_largest}});
  f(s.eps, {.name = "eps", .about = "Epsilon, added to the mean square", .real = {0, fp32_largest}});
  f(s.rows, {.name = "rows", .about = "Number of vectors per error", .allowed = {1, 1000}});
  f(s.seed, {.name = "seed"});
}

enum class NormTrouble : std::uint8_t { none, inputs_overflow, squares_overflow, epsilon_is_zero, sums_stall };

struct NormCase {
  std::string norm, dtype, statistics;
  std::int64_t width = 0;
  double eps = 0;
};

struct NormError {  // relative to the RMS of the exact output; infinite when an output is not finite
  double max = 0, rms = 0;
  bool equal_on_card = true;  // its outputs have the same bits, if there is a card
  bool epsilon_lost = false;  // adding it to the mean square changed nothing, in every row
  NormTrouble trouble = NormTrouble::none;
  bool right() const { return rms <= norm_tolerance; }
};

NormError norm_error(const NormCase&, double magnitude, std::int64_t rows, std::uint64_t seed, const Place* card = nullptr);

struct NormLimits {                            // powers of two; none: no such magnitude among those that the format holds
  std::optional<double> right_from, right_to;  // the range in which outputs are right that holds 1, or ends below it; none: nowhere up to 1
  std::optional<double> fails_above;           // below right_from it fails too, unless the format ends there
  std::optional<double> epsilon_lost_from;
  NormTrouble below = NormTrouble::none, above = NormTrouble::none;
};

NormLimits norm_limits(const NormCase&, std::int64_t rows, std::uint64_t seed);

Record norm_record(const NormSettings&, const Place* card = nullptr);

}  // namespace headroom::studies::precision
