#include "ops/matmul/matmul.h"

#include "gpu/blas.h"
#include "ops/copy/copy.h"
#include "ops/matmul/impl.h"

namespace headroom::matmul {

namespace {

constexpr unsigned bit_of(DType t) { return 1u << unsigned(t); }
template <class... Types>
constexpr unsigned any_of(Types... types) {
  return (bit_of(types) | ...);
}

struct Combination {  // dtypes that a device multiplies: any of `a` with any of `b` into any of `c`
  DeviceKind device;
  unsigned a, b, c;
  bool scaled;  // with a_scale and b_scale
};

using enum DType;
constexpr unsigned for_cpu = any_of(f32, bf16, f16, e4m3, e5m2);
constexpr Combination combinations[] = {
    {DeviceKind::cpu, for_cpu, for_cpu, any_of(f32, bf16, f16), true},
    {DeviceKind::cuda, any_of(f32), any_of(f32), any_of(f32), false},
    {DeviceKind::cuda, any_of(bf16), any_of(bf16), any_of(bf16, f32), false},
    {DeviceKind::cuda, any_of(f16), any_of(f16), any_of(f16, f32), false},
};

void check_scale(const Tensor& scale, const char* of) {
  check(!scale || (scale.dtype == DType::f32 && scale.count() == 1), Code::bad_argument,
        "matmul: the scale of {} must be one fp32 value; it has {} of {}", of, scale.count(), name_of(scale.dtype));
}

void check_product(const Product& p) {
  check_scale(p.a_scale, "a");
  check_scale(p.b_scale, "b");
  const int rank = p.c.shape.rank, last = rank - 1;
  check(rank >= 2 && p.a.shape.rank == rank && p.b.shape.rank == rank, Code::bad_argument,
        "matmul: ranks {}, {} and {}; all three must be equal, 2 to 4", p.a.shape.rank, p.b.shape.rank, rank);
  for (int d = 0; d < last - 1; ++d)
    check(p.a.shape[d] == p.c.shape[d] && p.b.shape[d] == p.c.shape[d], Code::bad_argument, "matmul: batch sizes {}, {} and {} differ",
          p.a.shape[d], p.b.shape[d], p.c.shape[d]);
  const auto m = p.c.shape[last - 1], n = p.c.shape[last], k = p.a.shape[last];
  check(p.a.shape[last - 1] == m && p.b.shape[last - 1] == k && p.b.shape[last] == n, Code::bad_argument,
        "matmul: {}x{} times {}x{} does not give {}x{}", p.a.shape[last - 1], k, p.b.shape[last - 1], p.b.shape[last], m, n);
  const auto one_of_two = [&](const Tensor& t) {
    return t.stride[std::size_t(last)] == 1 || t.stride[std::size_t(last - 1)] == 1 || t.shape[last] <= 1 || t.shape[last - 1] <= 1;
  };
  check(one_of_two(p.a) && one_of_two(p.b) && (n <= 1 || p.c.stride[std::size_t(last)] == 1), Code::bad_argument,
        "matmul: a and b need stride 1 in one of their last two dimensions, c in its last");
  check(!p.add || (p.add.shape == p.c.shape && p.add.dtype == p.c.dtype && p.add.stride == p.c.stride && p.add.contiguous()),
        Code::bad_argument, "matmul: what is added must have the shape, type and strides of the product, both contiguous");
}

}  // namespace

Support supports(const Product& p, const Device& device) {
  const bool scaled = p.a_scale || p.b_scale;
  for (const Combination& row : combinations)
    if (row.device == device.kind && (row.a & bit_of(p.a.dtype)) && (row.b & bit_of(p.b.dtype)) && (row.c & bit_of(p.c.dtype)) &&
        (row.scaled || !scaled))
      return {};
  return Support::no(fmt::format("{} does not multiply {} by {} into {}{}", device.kind == DeviceKind::cpu ? "the CPU" : "a GPU",
                                 name_of(p.a.dtype), name_of(p.b.dtype), name_of(p.c.dtype), scaled ? " with scales" : ""));
}

Tensor transposed(Tensor t) {
  const auto last = std::size_t(t.shape.rank - 1);
  std::swap(t.shape.dim[last], t.shape.dim[last - 1]);
  std::swap(t.stride[last], t.stride[last - 1]);
  return t;
}

Tensor part(Tensor t, int dimension, std::int64_t begin, std::int64_t end) {
  t.data = t.as<std::byte>() + begin * t.stride[std::size_t(dimension)] * std::int64_t(size_of(t.dtype));
  t.shape.dim[std::size_t(dimension)] = end - begin;
  return t;
}

double flops(const Product& p) { return 2.0 * double(p.c.count()) * double(p.a.shape[p.a.shape.rank - 1]); }

Cost cost_of(const Product& p) { return {flops(p), double(p.a.bytes() + p.b.bytes() + (p.beta != 0 ? 2 : 1) * p.c.bytes())}; }

void multiply(const Product& p, Context& ctx, Name name) {
  check_product(p);
  const Support support = supports(p, ctx.device);
  check(bool(support), Code::unsupported, "matmul: {}", support.why);
  const auto op = ctx.note(name, {p.a.dtype, p.math}, cost_of(p), Work::matmul);
  auto scope = ctx.arena.scope();
  if (ctx.on_gpu()) {
    const Tensor workspace = ctx.arena.make("matmul.workspace", DType::u8, {std::int64_t(blas::workspace_bytes)});
    if (!ctx.dry()) multiply_cuda(p, workspace, ctx);
    return;
  }
  if (p.beta != 0 && p.add) copy::copy(p.add, p.c, ctx);
  multiply_cpu(p, ctx);
}

}  // namespace headroom::matmul
