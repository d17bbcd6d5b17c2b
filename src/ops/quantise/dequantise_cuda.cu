// dequantise on a card: a thread takes 16 neighbours, which have one scale.
#include <cuda_fp8.h>

#include "base/divide.h"
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/quantise/impl.h"

namespace headroom::quantise {

namespace {

constexpr int of_thread = 16, threads_of_block = 256;

template <class T>
struct FromArgs {
  const std::uint8_t* codes;
  const float* scale;
  T* x;
  std::int64_t rows, columns, pieces;  // pieces: of a row
  std::int64_t apart;                  // scales from one run, or block of lines, to the next
  ScaleKind kind;
  bool whole;  // pieces are whole and begin on 16 bytes
};

template <class T>
__device__ float scale_of_piece(const FromArgs<T>& a, std::int64_t row, std::int64_t column) {
  switch (a.kind) {
    case ScaleKind::one: return a.scale[0];
    case ScaleKind::row: return a.scale[row];
    case ScaleKind::run: return a.scale[column / scale_block * a.apart + row];
    default: return a.scale[row / scale_block * a.apart + column / scale_block];
  }
}

template <class T, __nv_fp8_interpretation_t format>
__global__ void __launch_bounds__(threads_of_block) dequantise_pieces(const __grid_constant__ FromArgs<T> a) {
  const std::int64_t piece = std::int64_t(blockIdx.x) * threads_of_block + threadIdx.x;
  if (piece >= a.rows * a.pieces) return;
  const std::int64_t row = piece / a.pieces, column = piece % a.pieces * of_thread, at = row * a.columns + column;
  const float scale = scale_of_piece(a, row, column);
  if (a.whole) {
    const uint4 codes = *reinterpret_cast<const uint4*>(a.codes + at);
    const std::uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
    Pack<T, of_thread> out;
#pragma unroll
    for (int i = 0; i < of_thread / 2; ++i) {
      const __half2 two = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(word[i / 2] >> i % 2 * 16), format);  // exact
      out.at[2 * i] = rounded<T>(__low2float(two) * scale), out.at[2 * i + 1] = rounded<T>(__high2float(two) * scale);
    }
    store(a.x + at, out);
  } else {
    for (int i = 0; i < of_thread && column + i < a.columns; ++i)
      a.x[at + i] = rounded<T>(__half2float(__nv_cvt_fp8_to_halfraw(a.codes[at + i], format)) * scale);
  }
}

}  // namespace

void dequantise_cuda(const Scaled& from, const Tensor& to, Context& ctx) {
  with_float(to.dtype, [&]<class T>() {
    const std::int64_t rows = to.shape[0], columns = to.shape[1], pieces = ceil_div(columns, of_thread);
    const auto aligned = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0; };
    const FromArgs<T> a{.codes = from.values.as<std::uint8_t>(),
                        .scale = from.scale.as<float>(),
                        .x = to.as<T>(),
                        .rows = rows,
                        .columns = columns,
                        .pieces = pieces,
                        .apart = from.scale.stride[0],
                        .kind = from.kind,
                        .whole = columns % of_thread == 0 && aligned(from.values) && aligned(to)};
    const Grid grid{grid_of(ceil_div(rows * pieces, threads_of_block)), dim3(threads_of_block)};
    launch(cuda_stream(ctx.stream), from.values.dtype == DType::e4m3 ? dequantise_pieces<T, __NV_E4M3> : dequantise_pieces<T, __NV_E5M2>,
           grid, a);
  });
}

}  // namespace headroom::quantise
