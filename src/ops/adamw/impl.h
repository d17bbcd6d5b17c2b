// The implementations behind the public functions, which have checked the arguments and allocated the scratch.
#pragma once
#include "ops/adamw/adamw.h"

namespace headroom::adamw {

struct Numbers {  // one update's numbers, in FP32 as the elements use them
  float factor, beta1, beta2, rest1, rest2, step, root2, eps, keep;
  float go;              // 0: the gradient was not finite; nothing may change
  std::uint32_t random;  // this update's, from its number and the seed
};

constexpr std::int64_t piece = 65536;  // elements that a thread of the CPU takes at once; whole units

std::int64_t* row_of(const Tensor& sums, int rank);

void start_cpu(const Tensor& state, double loss_scale);
void set_cpu(const Tensor& state, Field, double value);
void squares_cpu(std::span<const Update>, std::int64_t* sum, Context&);
void begin_cpu(const Tensor& state, const Hyper&, const Tensor& sums, const Tensor& numbers);
void advance_cpu(std::span<const Update>, const Tensor& numbers, Context&);

void start_cuda(const Tensor& state, double loss_scale, Context&);
void set_cuda(const Tensor& state, Field, double value, Context&);
void squares_cuda(std::span<const Update>, std::int64_t* sum, Context&);
void begin_cuda(const Tensor& state, const Hyper&, const Tensor& sums, const Tensor& numbers, Context&);
void advance_cuda(std::span<const Update>, const Tensor& numbers, Context&);

// A card writes 8-bit copies as it updates where tiles of 128 rows, as high as a scale reaches, and one block of moments are all of a weight. Others are
// quantised from the copy after it. What does so, within advance_cuda:
constexpr std::int64_t tile_rows = scale_block, tile_columns = moments_block;
inline bool writes_copies(const Update& t, const Device& device) {
  const auto in_blocks = [](const Scaled& y) { return y && y.kind == ScaleKind::block && y.values.dtype == DType::e4m3; };
  return device.kind == DeviceKind::cuda && in_blocks(t.as_is) && in_blocks(t.transposed) && t.m.dtype != DType::f32 &&
         t.copy.dtype == DType::bf16 && t.parts == 1 && t.copy.shape[0] % tile_rows == 0 && t.copy.shape[1] % tile_columns == 0;
}
void advance_tiles(std::span<const Update>, const Tensor& numbers, Context&);

}  // namespace headroom::adamw
