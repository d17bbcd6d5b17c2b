// cuDNN's descriptions of tensors, and its batch norm: what a pass takes beside its tensors follows what an H100 was seen to take.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/divide.h"
#include "dry/library/tensor.h"
#include "dry/library/work.h"
#include "dry/library/world.h"

using namespace headroom::dry;
using headroom::ceil_div;

extern "C" int cudnnGetStream(const void* handle, StreamHandle*);  // dnn.cpp

namespace {

enum class Direction : std::uint8_t { forward, backward };

constexpr int persistent = 2;  // cudnnBatchNormMode_t: PyTorch's for channels_last
constexpr int norm_alone = 0;  // cudnnBatchNormOps_t

// What a pass takes; cuDNN does not publish it. Blocks of rows keep two sums of each channel, channels in tiles of 64; up to four channels are
// one tile of four, with four times the rows. Other modes take nothing, and nothing is reserved between the passes. These are all bytes of the
// sizes of 1088 shapes and types that cuDNN 9.19 gave on an H100 (bench/results/h100_batch_norm_2026-11-26.csv); a test walks them.
std::int64_t workspace_of(const Tensor& x, int mode, Direction pass) {
  if (mode != persistent || x.dims < 2 || x.size[1] < 1) return 0;
  const std::int64_t channels = x.size[1], rows = x.elements() / channels;
  const bool few = channels <= 4;
  const std::int64_t tiles = few ? 1 : ceil_div(channels, 64), sums = (few ? 4 : 64 * tiles) * 8, longer = few ? 4 : 1;
  if (pass == Direction::backward) return 1056 + 4 * tiles + sums * ceil_div(rows, 96 * longer);
  return 1072 + 4 * tiles + (sums + 4 * tiles) * ceil_div(rows, (x.type == cudnn_type::single ? 64 : 160) * longer);
}

// Between four and sixteen channels, where no size was asked, the tile may be the smaller one.
std::int64_t unsure_of(const Tensor& x, int mode, Direction pass) {
  if (mode != persistent || x.dims < 2 || x.size[1] <= 4 || x.size[1] >= 16) return 0;
  Tensor few = x;
  few.size[1] = 4;
  return std::max<std::int64_t>(0, workspace_of(x, mode, pass) - workspace_of(few, mode, pass));
}

int answer(const char* name, const Tensor& x, int mode, int ops, Direction pass, std::size_t* bytes) {
  *bytes = std::size_t(workspace_of(x, mode, pass));
  if (ops != norm_alone)
    note(Said::no_workspace, name);
  else if (*bytes > 0)
    note(Said::by_rule, "cuDNN batch norm", std::uint64_t(unsure_of(x, mode, pass)));
  return ok;
}

int passed(KernelName& name, const void* handle, const Tensor& x, int tensors) {
  StreamHandle stream = nullptr;
  cudnnGetStream(handle, &stream);
  launched(name, {unsigned(card().units), 1, 1}, {512, 1, 1}, 0, stream, std::uint64_t(x.bytes() * tensors));
  return ok;
}

}  // namespace

extern "C" {

int cudnnCreateTensorDescriptor(Tensor** out) {
  *out = new Tensor;
  return ok;
}
int cudnnDestroyTensorDescriptor(Tensor* t) {
  delete t;
  return ok;
}
int cudnnSetTensorNdDescriptor(Tensor* t, int type, int dims, const int* size, const int* stride) {
  t->type = type;
  t->dims = std::clamp(dims, 0, Tensor::most_dims);
  std::copy_n(size, t->dims, t->size);
  std::copy_n(stride, t->dims, t->stride);
  return ok;
}
int cudnnGetTensorNdDescriptor(const Tensor* t, int room, int* type, int* dims, int* size, int* stride) {
  *type = t->type;
  *dims = t->dims;
  std::copy_n(t->size, std::min(room, t->dims), size);
  std::copy_n(t->stride, std::min(room, t->dims), stride);
  return ok;
}

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(const void*, int mode, int ops, const Tensor* x, const void*, const void*,
                                                             const void*, const void*, std::size_t* bytes) {
  return answer("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", *x, mode, ops, Direction::forward, bytes);
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(const void*, int mode, int ops, const Tensor* x, const void*, const void*,
                                                      const void*, const void*, const void*, const void*, std::size_t* bytes) {
  return answer("cudnnGetBatchNormalizationBackwardExWorkspaceSize", *x, mode, ops, Direction::backward, bytes);
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(const void*, int, int ops, const void*, const Tensor*, std::size_t* bytes) {
  *bytes = 0;
  if (ops != norm_alone) note(Said::no_workspace, "cudnnGetBatchNormalizationTrainingExReserveSpaceSize");
  return ok;
}

int cudnnBatchNormalizationForwardTrainingEx(const void* handle, int, int, const void*, const void*, const Tensor* x) {
  static KernelName& name = *new KernelName("cuDNN batch norm, forward");
  return passed(name, handle, *x, 2);
}
int cudnnBatchNormalizationForwardInference(const void* handle, int, const void*, const void*, const Tensor* x) {
  static KernelName& name = *new KernelName("cuDNN batch norm, evaluation");
  return passed(name, handle, *x, 2);
}
int cudnnBatchNormalizationBackwardEx(const void* handle, int, int, const void*, const void*, const void*, const void*, const Tensor* x) {
  static KernelName& name = *new KernelName("cuDNN batch norm, backward");
  return passed(name, handle, *x, 3);
}
}
