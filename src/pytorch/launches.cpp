#include "pytorch/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "dry/cuda_types.h"

namespace headroom::pytorch {

namespace {

constexpr double numbers_of_block = 65536, blocks_of_launch = 320;  // what an operator over lists takes at once

std::int32_t cuda_type_of(DType t) {
  using namespace dry::cuda_type;
  return t == DType::bf16 ? brain : t == DType::f16 ? half : single;
}
double bytes_of(double numbers, DType t) { return numbers * double(size_of(t)); }
const char* in_names(DType t) { return t == DType::bf16 ? "c108BFloat16E" : t == DType::f16 ? "c104HalfE" : "f"; }

// A kernel's mangled name, as far as the clock reads it, and the elements of one of its blocks.
struct Named {
  const char* name;
  double elements;
};
constexpr std::uint32_t threads_of_block = 128;
Named named(Kernel k) {
  switch (k) {
    case Kernel::pointwise: return {"vectorized_elementwise_kernel", 1024};
    case Kernel::converting: return {"unrolled_elementwise_kernel", 512};
    case Kernel::strided: return {"18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastI", 256};
    case Kernel::strided_converting: return {"18elementwise_kernelILi128ELi4EZNS0_15gpu_kernel_implI", 512};
    case Kernel::reducing: return {"reduce_kernel", 12288};
    case Kernel::norm: return {"vectorized_layer_norm_kernel", 1024};
    case Kernel::norm_backward: return {"layer_norm_grad_input_kernel", 1024};
    case Kernel::norm_weights: return {"GammaBetaBackwardCUDAKernel", 1024};
    case Kernel::generated: return {"triton_poi_fused", 1024};
    case Kernel::generated_sums: return {"triton_per_fused", 1024};
    case Kernel::other: return {"one of PyTorch's kernels", 1024};
  }
  return {};
}

}  // namespace

Launches::Launches(Precision precision, int sm) : precision_(precision), sm_(sm) {}

void Launches::enter(Phase p) {
  if (p == Phase::optimizer) await_collectives();
  record_.mark("phase", p == Phase::backward ? "backward" : p == Phase::optimizer ? "optimizer" : "forward", 0);
}
void Launches::end_step() { record_.mark("step", "AdamW", ++steps_); }

void Launches::launch(const std::string& name, double blocks, std::uint32_t threads, double bytes, std::uint32_t y, std::uint32_t z) {
  dry::Launch l{};
  l.name = record_.name(name);
  l.grid[0] = std::uint32_t(std::max(1.0, std::ceil(blocks)));
  l.grid[1] = y, l.grid[2] = z;
  l.block[0] = threads;
  l.block[1] = l.block[2] = 1;
  l.reached_bytes = std::uint64_t(bytes);
  record_.add(l);
}

void Launches::kernel(Kernel k, std::int64_t elements, double bytes) {
  const auto [name, of_block] = named(k);
  launch(name, double(elements) / of_block, threads_of_block, bytes);
}

void Launches::product(std::int64_t m, std::int64_t n, std::int64_t k, DType t, std::uint32_t transposed, std::int64_t batch) {
  dry::Product p{};
  p.name = record_.name("cublasGemmEx");
  p.m = m, p.n = n, p.k = k, p.batch = batch;
  p.type_a = p.type_b = p.type_c = cuda_type_of(t);
  p.compute = t == DType::f32 && precision_.math == Math::tf32 ? dry::cublas_compute::fast_tf32 : dry::cublas_compute::fp32;
  p.transposed = transposed;
  record_.add(p);
}

// scaled_dot_product_attention with a causal mask takes the first of these that the card has: cuDNN's on Hopper and Blackwell, flash from Ampere on,
// else the memory-efficient kernels, which serve FP32 too.
void Launches::attention(const Shape& q, std::int64_t len_k, DType t, bool backward) {
  const std::int64_t batch = q[0], heads = q[1], len = q[2], dim = q[3];
  const auto groups = [](std::int64_t n) { return std::uint32_t(n); };
  const double numbers = double(batch * heads * len) * double(dim), rows = double(batch * heads * len);
  if (size_of(t) == 2 && (sm_ / 10 == 9 || sm_ / 10 == 10)) {
    dry::Attention a{};
    a.name = record_.name(backward ? "cuDNN attention, backward" : "cuDNN attention");
    a.batch = batch, a.heads = heads, a.len_q = len, a.len_k = len_k, a.head_dim = dim, a.kv_heads = heads;
    a.type = t == DType::bf16 ? dry::cudnn_type::brain : dry::cudnn_type::half;
    a.backward = backward, a.masked = 1;
    record_.add(a);
  } else if (size_of(t) == 2 && sm_ >= 80) {
    constexpr double tile = 128;
    const std::string traits = fmt::format("19Flash_kernel_traitsILi{}ELi128ELi128ELi8ELb0ELb1ELb0E", dim);
    if (backward) kernel(Kernel::strided, std::int64_t(numbers), 2 * bytes_of(numbers, t));  // dO in order
    if (backward) kernel(Kernel::other, std::int64_t(numbers), 2 * bytes_of(numbers, t));    // row sums of dO·O
    launch((backward ? "flash_bwd_dq_dk_dv_loop" : "flash_fwd_kernel") + traits, double(len) / tile, 256, numbers, groups(batch),
           groups(heads));
    if (backward) kernel(Kernel::other, std::int64_t(numbers), bytes_of(numbers, t) + bytes_of(numbers, DType::f32));
  } else {
    const std::int64_t columns = dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
    const char* const type = t == DType::f32 ? "f32" : t == DType::bf16 ? "bf16" : "f16";
    if (backward) {
      kernel(Kernel::pointwise, std::int64_t(numbers), 3 * bytes_of(numbers, t));
      kernel(Kernel::reducing, std::int64_t(numbers), bytes_of(numbers, t));
      kernel(Kernel::strided, std::int64_t(rows), 2 * bytes_of(rows, DType::f32));
      kernel(Kernel::pointwise, std::int64_t(numbers), bytes_of(numbers, DType::f32));  // zeros of dQ's sums
      launch(fmt::format("fmha_cutlassB_{}_aligned_64x64_k{}_sm80", type, columns), double(len) / 64, 128, numbers, groups(heads),
             groups(batch));
    } else {
      launch(fmt::format("fmha_cutlassF_{}_aligned_64x{}_rf_sm80", type, columns), double(len) / 64, 128, numbers, groups(heads),
             groups(batch));
    }
  }
}

void Launches::softmax(std::int64_t rows, std::int64_t columns, DType t, bool backward) {
  const double bytes = (backward ? 3 : 2) * bytes_of(double(rows) * double(columns), t);
  if (columns <= 1024)
    launch(backward ? "softmax_warp_backward" : "softmax_warp_forward", double(rows) / 4, threads_of_block, bytes);
  else
    launch(backward ? "cunn_SoftMaxBackward" : "cunn_SoftMaxForward", double(rows), 1024, bytes);
}

void Launches::embedding_gradient(std::int64_t tokens, std::int64_t vocab, std::int64_t width, DType t) {
  const double table = double(vocab) * double(width);
  kernel(Kernel::pointwise, std::int64_t(table), bytes_of(table, t));  // zeros
  launch("embedding_backward_feature_kernel", double(width) / 32, 1024, bytes_of(table + double(tokens * width), t));
}

void Launches::lists(const std::string& name, double numbers, double bytes) {
  for (double blocks = std::ceil(numbers / numbers_of_block); blocks > 0; blocks -= blocks_of_launch)
    launch(name, std::min(blocks, blocks_of_launch), 512, bytes * std::min(1.0, blocks_of_launch * numbers_of_block / numbers));
}

void Launches::list(const char* functor, std::int64_t numbers, DType t, int of, int read) {
  lists(fmt::format("multi_tensor_apply_kernel{}Functor{}Li{}ELi{}ELi0E", functor, in_names(t), of, read), double(numbers),
        bytes_of(double(numbers), t) * of);
}

void Launches::fused_adam(std::int64_t numbers, DType t) {
  list("BinaryOpScalar", 1, DType::f32, 1, 1);  // the step counts
  lists(fmt::format("multi_tensor_apply_kernelFusedAdamMathFunctor{}Li4E", in_names(t)), double(numbers), bytes_of(double(numbers), t) * 4);
}

std::uint32_t Launches::collective(const char* name, double bytes, std::int64_t ranks, std::uint32_t stream, Begins begins) {
  const auto event = [&](dry::EventDone done, std::uint32_t on, std::uint32_t number) {
    record_.add(dry::EventEntry{.done = done, .device = 0, .stream = on, .event = number});
  };
  if (begins == Begins::after_work) {
    event(dry::EventDone::record, 0, ++events_);
    event(dry::EventDone::stream_waits, stream, events_);
  }
  dry::Collective c{};
  c.stream = stream;
  c.name = record_.name(name);
  c.ranks = std::uint32_t(ranks);
  c.peer = -1;
  c.bytes = std::uint64_t(bytes);
  record_.add(c);
  event(dry::EventDone::record, stream, ++events_);
  collectives_.push_back(events_);
  return events_;
}

void Launches::await(std::uint32_t event) {
  if (event == 0) return;
  record_.add(dry::EventEntry{.done = dry::EventDone::stream_waits, .device = 0, .stream = 0, .event = event});
  std::erase(collectives_, event);
}

void Launches::await_collectives() {
  while (!collectives_.empty()) await(collectives_.back());
}

}  // namespace headroom::pytorch
