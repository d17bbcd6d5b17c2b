// Workspaces of cuSOLVER's dense functions, in numbers of the matrix's type, as an H200 with CUDA 13.0 told them for float and double
// (bench/results/h200_cusolver_workspaces_2026-11-29.csv). They follow from the sizes alone.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/divide.h"

namespace headroom::dry {

// Columns in panels of 1024 numbers.
constexpr std::int64_t qr_workspace(std::int64_t columns) { return 512 * 1024 + 1024 * std::max<std::int64_t>(columns, 256); }

// Q from its reflectors. From 66 to 127 columns two sizes were asked for; others may differ by what `q_unsure` says.
constexpr std::int64_t q_workspace(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t fixed = 32 * 1024 + 256;
  if (columns >= 128) return fixed + 128 * (rows + 2 * columns - 128);
  const std::int64_t more = columns <= 65 ? 0 : columns <= 96 ? 2048 : 3616;
  return fixed + round_up(rows * columns, 32) + more;
}

constexpr std::int64_t q_unsure(std::int64_t columns) { return columns > 65 && columns < 128 ? 16 * 1024 : 0; }

// A lower triangle takes a word for each tile of 32 x 32.
constexpr std::int64_t cholesky_workspace(bool upper, std::int64_t n, bool wide) {
  if (upper) return wide ? 48 : 64;
  const std::int64_t tiles = ceil_div(n, 32);
  return (32 + round_up(tiles * tiles, 8)) / (wide ? 2 : 1);
}

// LU with pivots. A matrix of many rows has buffers of its own.
constexpr std::int64_t lu_workspace(std::int64_t rows, std::int64_t columns, bool wide) {
  const std::int64_t least = std::min(rows, columns), across = std::max<std::int64_t>(round_up(least, 32), 32);
  const std::int64_t power = std::int64_t(std::bit_ceil(std::uint64_t(across)));
  const std::int64_t tiles = round_up(ceil_div(rows, 32) * ceil_div(columns, 32), 8);
  const std::int64_t plain = std::max(std::min<std::int64_t>(1024, 2 * power), std::max(rows, columns) > 1024 ? tiles : 0);
  const std::int64_t tall = rows < 2000 ? 0 : rows <= 2048 ? (wide ? 8704 : 8960) : (wide ? 9216 : 9728);
  return wide ? 32 + across + std::max(plain / 2, tall) : 64 + 2 * across + std::max(plain, tall);
}

// Eigenvalues of a symmetric matrix; within `eigen_unsure` numbers of a card's.
constexpr std::int64_t eigen_unsure = 64;

constexpr std::int64_t eigen_workspace(std::int64_t n) { return std::max(3 * n * n + 768 * n + 65603, 4 * n * n + 127 * n + 32963); }

// Eigenvalues by Jacobi's method (bench/results/h200_cusolver_jacobi_2026-11-29.csv). At 4096 another algorithm takes more; between, nothing was asked.
constexpr std::int64_t most_by_jacobi = 3000;

constexpr std::int64_t jacobi_workspace(std::int64_t n) {
  const std::int64_t tiles = ceil_div(n, 32);
  return n * n + n + 2053 + (tiles - 1) * (1029 + 4 * tiles);
}

// Q of so many reflectors times a matrix, from the left (bench/results/h200_cusolver_singular_2026-11-29.csv, as all below); of one size of 660 that were asked
// for a card takes `times_q_unsure` more.
constexpr std::int64_t times_q_unsure = 32;

constexpr std::int64_t times_q_workspace(std::int64_t rows, std::int64_t columns, std::int64_t reflectors) {
  const std::int64_t tall = rows > 32 ? 32 : 0;
  return 65760 + tall + 256 * rows + 512 * columns + round_up(reflectors * (rows + reflectors), 32) + 32 * ceil_div(columns, 32);
}

// Singular values by Jacobi's method. Other than square matrices are made square by QR, wide ones after they were turned.
constexpr std::int64_t square_singular_workspace(std::int64_t n) {
  return round_up(jacobi_workspace(n), 32) + round_up(n * n, 32) + 1024 * ceil_div(n, 32);
}

constexpr std::int64_t singular_workspace(std::int64_t rows, std::int64_t columns, bool whole) {  // whole: Q has as many columns as rows
  if (rows == columns) return square_singular_workspace(rows);
  const std::int64_t less = std::min(rows, columns), more = std::max(rows, columns);
  const std::int64_t qr = std::max(times_q_workspace(more, whole ? more : less, less), 32 + qr_workspace(less));
  const std::int64_t turned = rows < columns ? round_up(rows * columns, 32) : 0;
  return std::max(round_up(less, 32) + qr + turned, square_singular_workspace(less) + round_up(less * less, 32));
}

}  // namespace headroom::dry
